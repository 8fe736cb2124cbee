"""Where the data of an experiment come from: files, a folder of datasets, or a generator."""

from __future__ import annotations

import dataclasses
import glob
import hashlib
import itertools
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dpbeam.errors import InputError
from dpbeam.io.pairs import read_pairs
from dpbeam.io.released import sha256_of
from dpbeam.io.sources import preflight
from dpbeam.io.spec import InputSpec
from dpbeam.kernels import canonical
from dpbeam_lab.evaluation.data import HISTOGRAM, MARKET, PAIRS, Data, HistogramData, MarketData, PairData
from dpbeam_lab.evaluation.indexed import index_pairs
from dpbeam_lab.experiments.folders import owned_folder
from dpbeam_lab.synth import write_synthetic
from dpbeam_lab.synth_market import write_market

#: File of a dataset of pairs in its folder; columns `user` and `item`.
ENTRIES = "entries.parquet"
#: Likewise, of a histogram; columns `item` and `count`.
HISTOGRAM_FILE = "histogram.parquet"
_CHUNK = 1 << 20
# What generated data take in memory at least, before anything runs on them.
_BYTES_PER_PAIR, _BYTES_PER_DEMAND = 40, 16


class AbsentError(InputError):
    """A dataset that the folder of datasets does not hold."""


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

    def reads(self) -> tuple[str, ...]:
        """Files and patterns."""
        return ()

    def memory(self) -> float:
        """Bytes that reading takes at least; 0 where only the files tell."""
        return 0.0

    @abstractmethod
    def load(self) -> Data:
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
        spec = dataclasses.replace(self.spec, patterns=())  # wherever the files lie
        hashed = hashlib.sha256(json.dumps(dataclasses.asdict(spec), sort_keys=True).encode())
        for path in self._paths():
            hashed.update(sha256_of(path))
        return hashed.hexdigest()

    def reads(self) -> tuple[str, ...]:
        return self.spec.patterns

    def _paths(self) -> list[str]:
        return sorted(file.path for file in preflight(self.spec).files)

    def load(self) -> PairData:
        return PairData(index_pairs(read_pairs(self.spec, preflight(self.spec))))


@dataclass(frozen=True)
class HistogramFile(Source):
    """Items and counts of a file, columns `item` and `count`."""

    path: str
    kind = HISTOGRAM
    facts = ("items", "entries")

    def reads(self) -> tuple[str, ...]:
        return (self.path,)

    def digest(self) -> str:
        return hashlib.sha256(b"histogram" + sha256_of(self.path)).hexdigest()

    def load(self) -> HistogramData:
        table = pq.read_table(self.path)
        if not {"item", "count"} <= set(table.schema.names) or not pa.types.is_integer(table["count"].type):
            raise InputError(f"{self.path}: expected the columns 'item' and 'count', of integers")
        if table["item"].null_count or table["count"].null_count:
            raise InputError(f"{self.path}: an item or a count is null")
        items, _ = canonical.encode(table["item"].combine_chunks(), self.path)
        return HistogramData(canonical.plain(items), table["count"].cast(pa.int64()).to_numpy())


@dataclass(frozen=True)
class _Generated(Source):
    """Data that follow from the settings of a generator alone."""

    settings: Mapping[str, Any]
    generator: ClassVar[str]

    def digest(self) -> str:
        about = json.dumps([self.generator, dict(self.settings)], sort_keys=True)
        return hashlib.sha256(about.encode()).hexdigest()


class SynthPairs(_Generated, _PairSource):
    """Pairs by power laws, as `dpbeam synth` draws them."""

    generator = "pairs"

    def memory(self) -> float:
        return _BYTES_PER_PAIR * float(self.settings["users"]) * self.settings["mean_items_per_user"]

    def load(self) -> PairData:
        with owned_folder() as folder:
            write_synthetic(os.path.join(folder, "synth"), **self.settings)
            return PairData(index_pairs(_columns(glob.glob(os.path.join(folder, "synth-*")))))


class UniformPairs(_Generated, _PairSource):
    """Users with equally many items each, drawn at random without replacement, besides those that all users hold."""

    generator = "uniform"

    def memory(self) -> float:
        held = self.settings["items_per_user"] + self.settings["common_items"]
        return _BYTES_PER_PAIR * float(self.settings["users"]) * held

    def load(self) -> PairData:
        users, items = self.settings["users"], self.settings["items"]
        own, common = self.settings["items_per_user"], self.settings["common_items"]
        generator = np.random.default_rng(self.settings["seed"])
        held = np.empty((users, own + common), np.int64)
        # Floyd's: what was drawn before gives way to an item that could not have been.
        for column, last in enumerate(range(items - own, items)):
            drawn = generator.integers(0, last, users, endpoint=True)
            again = (held[:, :column] == drawn[:, None]).any(axis=1)
            held[:, column] = np.where(again, last, drawn)
        held[:, own:] = items + np.arange(common)
        pairs = (np.repeat(np.arange(users), own + common), held.ravel())
        return PairData(
            index_pairs([tuple(pa.array(ids).cast(pa.string()).cast(pa.large_binary()) for ids in pairs)])
        )


class SynthMarket(_Generated):
    """A market as `dpbeam synth --agents` draws it."""

    generator = "market"
    kind = MARKET
    facts = ("agents", "resources", "supply_share")

    def memory(self) -> float:
        return _BYTES_PER_DEMAND * float(self.settings["agents"]) * self.settings["resources"]

    def load(self) -> MarketData:
        with owned_folder() as folder:
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


_PAIRS = {
    "users": int,
    "items": int,
    "mean_items_per_user": float,
    "user_exponent": float,
    "item_exponent": float,
    "item_bytes": int,
    "seed": int,
}
_UNIFORM = {"users": int, "items": int, "items_per_user": int, "common_items": int, "seed": int}
_MARKET = {"agents": int, "resources": int, "filled": float, "supply_share": float, "seed": int}


def sources_of(
    about: Mapping[str, Any], input_of: Callable[[Mapping[str, Any], str], InputSpec], folder: str
) -> dict[str, Source]:
    """What an entry of `datasets` describes: suffix of its name -> source; one without suffix, or a grid of generators.

    Args:
      about: `folder`, `histogram`, `synth`, `uniform`, or flags of the input.
      input_of: (flags, place for messages) -> what to read.
      folder: of datasets.

    Raises:
      AbsentError: a dataset that is not in the folder.
      InputError: naming the key.
    """

    def entries(name: Any) -> Source:
        path = _existing(folder, name, ENTRIES)
        flags = {"input": [glob.escape(path)], "user_column": "user", "item_column": "item"}
        return Files(input_of(flags, "folder"))

    kinds: dict[str, Callable[[Any], dict[str, Source]]] = {
        "synth": _synth,
        "uniform": lambda about: {"": _uniform(about)},
        "folder": lambda name: {"": entries(name)},
        "histogram": lambda name: {"": HistogramFile(_existing(folder, name, HISTOGRAM_FILE))},
    }
    for key, made in kinds.items():
        if key in about:
            if len(about) > 1:
                raise InputError(f"{key} goes with no other key")
            return made(about[key])
    if not about:
        raise InputError(f"give {', '.join(sorted(kinds))}, or the flags of an input")
    return {"": Files(input_of(about, "input"))}


def _existing(folder: str, name: Any, file: str) -> str:
    """The file of a dataset in the folder of datasets.

    Raises:
      AbsentError: there is none.
    """
    path = os.path.join(folder, str(name), file)
    if not os.path.exists(path):
        raise AbsentError(f"there is no '{path}'; DPBEAM_DATA or --data names the folder of datasets")
    return path


def _synth(about: Any) -> dict[str, Source]:
    market = isinstance(about, dict) and ("agents" in about or "resources" in about)
    known, needed = (_MARKET, ("agents", "resources")) if market else (_PAIRS, ("users", "items"))
    grid = _settings("synth", about, known, needed)
    sources: dict[str, Source] = {}
    for values in itertools.product(*grid.values()):
        settings = dict(zip(grid, values))
        swept = [f" {name}={settings[name]}" for name in grid if isinstance(about[name], list)]
        pairs = {"mean_items_per_user": 10.0, **settings}
        sources["".join(swept)] = SynthMarket(settings) if market else SynthPairs(pairs)
    return sources


def _uniform(about: Any) -> UniformPairs:
    grid = _settings("uniform", about, _UNIFORM, ("users", "items", "items_per_user"))
    if swept := [name for name, values in grid.items() if isinstance(about[name], list)]:
        raise InputError(f"uniform.{swept[0]}: takes no list")
    settings = {"common_items": 0, "seed": 0, **{name: values[0] for name, values in grid.items()}}
    for name, value in settings.items():
        least = int(name not in ("common_items", "seed"))
        if value < least:
            raise InputError(f"uniform.{name}: must be at least {least}, got {value}")
    if settings["items_per_user"] > settings["items"]:
        raise InputError(
            f"uniform.items_per_user: there are {settings['items']} items, got {settings['items_per_user']}"
        )
    return UniformPairs(settings)


def _settings(key: str, about: Any, known: Mapping[str, type], needed: Sequence[str]) -> dict[str, list[Any]]:
    """The values of every setting of a generator.

    Raises:
      InputError: a setting is unknown, missing or of another type.
    """
    if not isinstance(about, dict):
        raise InputError(f"{key} maps settings to values")
    grid: dict[str, list[Any]] = {}
    for name, value in about.items():
        if name not in known:
            raise InputError(f"{key}: unknown key {name!r}; one of {', '.join(known)}")
        grid[name] = value if isinstance(value, list) else [value]
        for one in grid[name]:
            if isinstance(one, bool) or not isinstance(one, int | known[name]):
                kind = "a number" if known[name] is float else "an integer"
                raise InputError(f"{key}.{name}: must be {kind}, got {one!r}")
    for name in needed:
        if name not in about:
            raise InputError(f"{key}: {name} is missing")
    return grid
