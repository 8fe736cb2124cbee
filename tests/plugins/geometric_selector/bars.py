"""Reading files whose columns a bar separates."""

from dpbeam.io.formats.delimited import Tsv
from dpbeam.io.spec import InputSpec


class Bars(Tsv):
    name, title, suffixes = "bars", "a bar-separated", ("bars",)

    def separator(self, spec: InputSpec) -> str:
        return "|"

    def fields(self, line: str, spec: InputSpec) -> list[str]:
        return line.split("|")
