"""Where the data of an experiment come from: files, a folder of datasets, or a generator."""

from __future__ import annotations

import dataclasses
import glob
import hashlib
import itertools
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dpbeam.errors import DataError, SettingError
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

_CHUNK = 1 << 20
# What generated data take in memory at least, before anything runs on them.
_BYTES_PER_PAIR, _BYTES_PER_DEMAND = 40, 16


class AbsentError(DataError):
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

    def at(self, folder: str) -> Source:
        """Itself: it lies in no folder of datasets."""
        return self

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
            raise DataError(f"{self.path}: expected the columns 'item' and 'count', of integers")
        if table["item"].null_count or table["count"].null_count:
            raise DataError(f"{self.path}: an item or a count is null")
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


def synth(
    *,
    users: int,
    items: int,
    mean_items_per_user: float = 10.0,
    user_exponent: float = 0.5,
    item_exponent: float = 1.0,
    item_bytes: int = 0,
    seed: int = 0,
) -> SynthPairs:
    """Pairs that `dpbeam synth` would write with these flags."""
    return SynthPairs(locals())


def synth_market(
    *, agents: int, resources: int, filled: float = 0.5, supply_share: float = 0.1, seed: int = 0
) -> SynthMarket:
    """A market for packing that `dpbeam synth --agents` would write with these flags."""
    return SynthMarket(locals())


def uniform(
    *, users: int, items: int, items_per_user: int, common_items: int = 0, seed: int = 0
) -> UniformPairs:
    """Users who hold `items_per_user` of the items each, drawn at random, and `common_items` more that all hold.

    Raises:
      InputError: a number is too small, or there are too few items.
    """
    settings = locals()
    for name, value in settings.items():
        least = int(name not in ("common_items", "seed"))
        if value < least:
            raise SettingError(f"uniform: {name} must be at least {least}, got {value}")
    if items_per_user > items:
        raise SettingError(f"uniform: there are {items} items, and items_per_user is {items_per_user}")
    return UniformPairs(settings)


def files(**flags: Any) -> Files:
    """Files of pairs, by the input flags of `dpbeam select`: `input=["a.csv"], user_column="u", item_column="i"`.

    Raises:
      InputError: naming the flag.
    """
    from dpbeam.cli.flags import FlagParser
    from dpbeam.cli.settings import input_spec
    from dpbeam.jobs.options import InputOptions

    parser = FlagParser("evaluate", "", InputOptions, beam=False)
    return Files(input_spec(parser.parse_values("input", flags)))


@dataclass(frozen=True)
class Named:
    """A dataset of the folder of datasets: a folder of its own, with this file."""

    name: str
    file: str
    kind: Callable[[str], Source]

    def at(self, folder: str) -> Source:
        """The dataset below a folder.

        Raises:
          AbsentError: it is not there.
        """
        path = os.path.join(folder, self.name, self.file)
        if not os.path.exists(path):
            raise AbsentError(f"there is no '{path}'; DPBEAM_DATA or --data names the folder of datasets")
        return self.kind(path)


def folder(name: str) -> Named:
    """`NAME/entries.parquet`, columns `user` and `item`."""
    columns = {"user_column": "user", "item_column": "item"}
    return Named(name, "entries.parquet", lambda path: files(input=[glob.escape(path)], **columns))


def histogram(name: str) -> Named:
    """`NAME/histogram.parquet`, columns `item` and `count`, for what needs no users."""
    return Named(name, "histogram.parquet", HistogramFile)


def each(name: str, make: Callable[..., Source], **settings: Any) -> dict[str, Source]:
    """A dataset for every combination of the settings that are lists: `m` and `resources=[1, 5]` give `m resources=1`
    and `m resources=5`."""
    swept = [setting for setting, value in settings.items() if isinstance(value, list)]
    datasets = {}
    for values in itertools.product(*(settings[setting] for setting in swept)):
        point = dict(zip(swept, values))
        datasets[name + "".join(f" {n}={value}" for n, value in point.items())] = make(**settings | point)
    return datasets
