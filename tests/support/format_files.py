"""Files of every format of the input: what the inherited tests of formats read."""

import io
import json

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from dpbeam.testing import FormatContract
from tests.support.crawls import warc, wet

_NAMES = ("user", "item")
_PLACEHOLDER = "\2\2\2"  # of bytes that no writer takes for a string


def _column(values: list) -> pa.Array:
    """Bytes among strings stand for strings that are no UTF-8."""
    if any(isinstance(value, bytes) for value in values):
        data = [value.encode() if isinstance(value, str) else value for value in values]
        return pa.array(data, pa.binary()).view(pa.string())
    return pa.array(values)


def _table(rows: list) -> pa.Table:
    return pa.table({name: _column([row[place] for row in rows]) for place, name in enumerate(_NAMES)})


def _lists(rows: list) -> pa.Table:
    return pa.table({"items": pa.array(rows, pa.list_(pa.string()))})


class TableFiles(FormatContract):
    """A format whose files are written from tables of Arrow."""

    def pairs(self, rows):
        return self.written(_table(rows))

    def users(self, rows):
        return self.written(_lists(rows))


class OrcFiles(TableFiles):
    name = "orc"

    def written(self, table):
        """Stripes of seven rows."""
        sink = io.BytesIO()
        with orc.ORCWriter(sink, stripe_size=1) as writer:
            for start in range(0, max(table.num_rows, 1), 7):
                writer.write(table.slice(start, 7))
        return sink.getvalue()


class ParquetFiles(TableFiles):
    name = "parquet"

    def written(self, table):
        """Row groups of seven rows."""
        sink = io.BytesIO()
        pq.write_table(table, sink, row_group_size=7)
        return sink.getvalue()


class AvroFiles(FormatContract):
    name = "avro"

    def pairs(self, rows):
        kinds = {
            name: ["null", "long" if isinstance(rows[0][place], int) else "string"]
            for place, name in enumerate(_NAMES)
        }
        shown = [[_PLACEHOLDER if isinstance(value, bytes) else value for value in row] for row in rows]
        data = self._written([dict(zip(_NAMES, row)) for row in shown], kinds, codec="null")
        raw = [value for row in rows for value in row if isinstance(value, bytes)]
        return data.replace(_PLACEHOLDER.encode(), raw[0]) if raw else data

    def users(self, rows):
        items = {"type": "array", "items": ["null", "string"]}
        return self._written([{"items": user} for user in rows], {"items": ["null", items]}, codec="deflate")

    def _written(self, rows, kinds, codec):
        fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
        sink = io.BytesIO()
        fastavro.writer(
            sink, {"type": "record", "name": "row", "fields": fields}, rows, codec=codec, sync_interval=200
        )
        return sink.getvalue()


class JsonFiles(FormatContract):
    name = "jsonl"

    def pairs(self, rows):
        return b"".join(b'{"user": %s, "item": %s}\n' % tuple(map(_json, row)) for row in rows)

    def users(self, rows):
        return "".join(json.dumps({"items": user}) + "\n" for user in rows).encode()


def _json(value) -> bytes:
    return b'"%s"' % value if isinstance(value, bytes) else json.dumps(value).encode()


class CsvFiles(FormatContract):
    name, mark = "csv", b","
    options = {"layout": "grouped", "item_columns": ["text"], "tokenizer": "whitespace"}  # noqa: RUF012

    def pairs(self, rows):
        return self._lines([_NAMES, *rows])

    def users(self, rows):
        return self._lines([("text", "n"), *((" ".join(user), "1") for user in rows)])

    def _lines(self, rows):
        return b"".join(self.mark.join(map(_text, row)) + b"\n" for row in rows)


def _text(value) -> bytes:
    return value if isinstance(value, bytes) else b"" if value is None else str(value).encode()


class TsvFiles(CsvFiles):
    name, mark = "tsv", b"\t"


class TextFiles(FormatContract):
    name, options = "text", {}

    def users(self, rows):
        return "".join(" ".join(user) + "\n" for user in rows).encode()


class WetFiles(FormatContract):
    name, options = "wet", {"user": "record"}

    def users(self, rows):
        return wet(_pages(rows), compressed=False)


class WarcFiles(WetFiles):
    name = "warc"

    def users(self, rows):
        return warc([(uri, text.encode()) for uri, text in _pages(rows)], compressed=False)


def _pages(rows: list) -> list[tuple[str, str]]:
    return [(f"https://{n}.example/", " ".join(user)) for n, user in enumerate(rows)]


_ALL = (ParquetFiles, OrcFiles, JsonFiles, AvroFiles, CsvFiles, TsvFiles, TextFiles, WetFiles, WarcFiles)
#: Name of every format that reads files -> how they are written.
FILES = {files.name: files() for files in _ALL}
