"""Where the data of an experiment come from: files, a folder of datasets, or a generator."""

from __future__ import annotations

import dataclasses
import glob
import hashlib
import json
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dpbeam.errors import InputError
from dpbeam.evaluation.data import MARKET, PAIRS, MarketData, PairData
from dpbeam.evaluation.indexed import index_pairs
from dpbeam.io.pairs import read_pairs
from dpbeam.io.released import opened
from dpbeam.io.sources import preflight
from dpbeam.io.spec import InputSpec
from dpbeam.io.synth import write_synthetic
from dpbeam.io.synth_market import write_market

#: File of a dataset in its folder; columns `user` and `item`.
ENTRIES = "entries.parquet"
_CHUNK = 1 << 20


class Source(ABC):
    """Data that can be read again.

    Attributes:
      kind: "pairs" or "market".
      facts: names of what the data say of themselves, as columns of tables.
    """

    kind: ClassVar[str]
    facts: ClassVar[tuple[str, ...]]

    @abstractmethod
    def digest(self) -> str:
        """Of everything that the data follow from; reads files once."""

    @abstractmethod
    def load(self) -> PairData | MarketData:
        """Read everything.

        Raises:
          InputError: naming flag, file, column.
        """


class _PairSource(Source):
    kind = PAIRS
    facts = ("users", "items", "entries")


@dataclass(frozen=True)
class Files(_PairSource):
    """Files of pairs, as the flags of the input describe them."""

    spec: InputSpec

    def digest(self) -> str:
        found = hashlib.sha256(json.dumps(dataclasses.asdict(self.spec), sort_keys=True).encode())
        for path in self._paths():
            found.update(_file_digest(path))
        return found.hexdigest()

    def _paths(self) -> list[str]:
        return sorted(file.path for file in preflight(self.spec).files)

    def load(self) -> PairData:
        return PairData(index_pairs(read_pairs(self.spec, preflight(self.spec))))


@dataclass(frozen=True)
class SynthPairs(_PairSource):
    """Pairs by power laws, as `dpbeam synth` draws them."""

    settings: Mapping[str, Any]

    def digest(self) -> str:
        return hashlib.sha256(json.dumps(["pairs", dict(self.settings)], sort_keys=True).encode()).hexdigest()

    def load(self) -> PairData:
        with tempfile.TemporaryDirectory() as folder:
            write_synthetic(os.path.join(folder, "synth"), **self.settings)
            return PairData(index_pairs(_columns(glob.glob(os.path.join(folder, "synth-*")))))


@dataclass(frozen=True)
class SynthMarket(Source):
    """A market as `dpbeam synth --agents` draws it."""

    settings: Mapping[str, Any]
    kind = MARKET
    facts = ("agents", "resources")

    def digest(self) -> str:
        return hashlib.sha256(
            json.dumps(["market", dict(self.settings)], sort_keys=True).encode()
        ).hexdigest()

    def load(self) -> MarketData:
        with tempfile.TemporaryDirectory() as folder:
            paths = write_market(os.path.join(folder, "synth"), **self.settings)
            tables = [pq.read_table(path) for path in paths if path.endswith(".parquet")]
        table = pa.concat_tables(tables)
        names = [name for name in table.schema.names if name not in ("agent", "value")]
        demands = np.column_stack([table[name].to_numpy() for name in names])
        share = self.settings.get("supply_share", 0.1)
        return MarketData(table["value"].to_numpy(), demands, share * len(demands))


def _columns(paths: list[str]) -> Iterator[tuple[pa.Array, pa.Array]]:
    for path in sorted(paths):
        for batch in pq.ParquetFile(path).iter_batches(_CHUNK):
            yield tuple(batch.column(name).cast(pa.large_binary()) for name in ("user", "item"))


def _file_digest(path: str) -> bytes:
    content = hashlib.sha256()
    with opened(path) as file:
        while chunk := file.read(_CHUNK):
            content.update(chunk)
    return content.digest()


_PAIRS = {
    "users": int,
    "items": int,
    "mean_items_per_user": float,
    "user_exponent": float,
    "item_exponent": float,
    "item_bytes": int,
    "seed": int,
}
_MARKET = {"agents": int, "resources": int, "filled": float, "supply_share": float, "seed": int}


def source_of(
    about: Mapping[str, Any], input_of: Callable[[Mapping[str, Any], str], InputSpec], folder: str
) -> Source:
    """The source that an entry of `datasets` describes.

    Args:
      about: `folder`, or `synth`, or flags of the input.
      input_of: (flags, place for messages) -> what to read.
      folder: of datasets.

    Raises:
      InputError: naming the key.
    """
    if "synth" in about:
        return _synth(about)
    if "folder" in about:
        if len(about) > 1:
            raise InputError("folder names a dataset: it goes with no other key")
        path = os.path.join(folder, str(about["folder"]), ENTRIES)
        if not os.path.exists(path):
            raise InputError(
                f"folder: there is no '{path}'; DPBEAM_DATA or --data names the folder of datasets"
            )
        flags = {"input": [glob.escape(path)], "user_column": "user", "item_column": "item"}
        return Files(input_of(flags, "folder"))
    if not about:
        raise InputError("give folder, synth, or the flags of an input")
    return Files(input_of(about, "input"))


def _synth(about: Mapping[str, Any]) -> Source:
    given = about["synth"]
    if len(about) > 1 or not isinstance(given, dict):
        raise InputError("synth maps the flags of dpbeam synth to values, and goes with no other key")
    market = "agents" in given or "resources" in given
    known = _MARKET if market else _PAIRS
    for name, value in given.items():
        if name not in known:
            raise InputError(f"synth: unknown key {name!r}; one of {', '.join(known)}")
        if isinstance(value, bool) or not isinstance(value, int | (float if known[name] is float else int)):
            raise InputError(f"synth.{name}: must be {'a number' if known[name] is float else 'an integer'}")
    for name in ("agents", "resources") if market else ("users", "items"):
        if name not in given:
            raise InputError(f"synth: {name} is missing")
    if market:
        return SynthMarket(given)
    return SynthPairs({"mean_items_per_user": 10.0, **given})
