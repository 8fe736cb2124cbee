"""Packing as methods of experiments: the command, and the algorithms of the literature. NOT PRIVATE."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dpbeam.errors import naming_arguments
from dpbeam.in_memory.pack import run_in_memory
from dpbeam.kernels.canonical import Kinds
from dpbeam.packing.batches import agent_batch
from dpbeam.packing.config import make_plan
from dpbeam.packing.family import PackingConfig
from dpbeam_lab.evaluation.data import MARKET, MarketData, Repetition
from dpbeam_lab.evaluation.methods import PACKING, Method, Outcome, Prepared, whole
from dpbeam_lab.evaluation.packing import Solved, fixed_steps, gradient_descent, online, published

_MAX_ROUNDS = 1_000_000


def _config(epsilon: float, delta: float, settings: Mapping[str, Any]) -> PackingConfig:
    with naming_arguments():
        return PackingConfig(epsilon, delta, **{"allow_small_supply": True, **settings})


def _batch(data: MarketData) -> pa.RecordBatch:
    """Agents of numbered names, made once."""
    if "batch" not in data.notes:
        names = np.arange(len(data.values)).astype("<i8").view(np.uint8)
        offsets = np.arange(0, len(names) + 1, 8, dtype=np.int64)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(names)]
        agents = pa.Array.from_buffers(pa.large_binary(), len(data.values), buffers)
        metadata = Kinds("bytes", ("bytes",)).metadata()
        data.notes["batch"] = agent_batch(agents, data.values, data.demands, metadata)
    return data.notes["batch"]


def _packed(config: PackingConfig, data: MarketData, repetition: Repetition) -> Solved:
    plan = make_plan(config, data.described())
    table, prices = run_in_memory(plan, _batch(data), repetition.key)
    return Solved(table["allocation"].to_numpy(), int(prices.rounds[-1]))


def _outcome(solved: Solved) -> Outcome:
    return Outcome(allocation=solved.allocation, facts={"rounds": solved.rounds})


class Pack(Method):
    """`dpbeam pack`, also where the supply is smaller than alpha needs."""

    name = "pack"
    kind = PACKING
    data = MARKET

    def settings(self, settings: Mapping[str, Any]) -> Collection[str]:
        return [f.name for f in fields(PackingConfig) if f.name not in ("epsilon", "delta")]

    def prepare(self, epsilon: float, delta: float, settings: Mapping[str, Any]) -> Prepared:
        config = _config(epsilon, delta, settings)
        return lambda data, repetition: _outcome(_packed(config, data, repetition))


class _Literature(Method):
    """An algorithm on arrays. Without `rounds` it takes as many as `pack` of the same alpha, budget and key.

    Attributes:
      solve: the algorithm: values, demands, supply, epsilon, delta, then `rounds` or `alpha` if it has any, `rng`.
      takes: its settings.
    """

    kind = PACKING
    data = MARKET
    solve: ClassVar[Callable[..., Solved]]
    takes: ClassVar[tuple[str, ...]] = ("rounds", "alpha")

    def settings(self, settings: Mapping[str, Any]) -> Collection[str]:
        return self.takes

    def prepare(self, epsilon: float, delta: float, settings: Mapping[str, Any]) -> Prepared:
        alpha = {name: settings[name] for name in ("alpha",) if name in settings}
        config = _config(epsilon, delta, alpha)
        rounds = whole(settings, "rounds", 1, _MAX_ROUNDS) if "rounds" in settings else None
        return functools.partial(self._run, config, rounds)

    def _run(
        self, config: PackingConfig, rounds: int | None, data: MarketData, repetition: Repetition
    ) -> Outcome:
        own: dict[str, float] = {}
        if "rounds" in self.takes:
            own["rounds"] = _rounds_of_pack(config, data, repetition) if rounds is None else rounds
        elif "alpha" in self.takes:
            own["alpha"] = config.alpha
        market = (data.values, data.demands, data.supply)
        return _outcome(type(self).solve(*market, config.epsilon, config.delta, **own, rng=repetition.rng()))


def _rounds_of_pack(config: PackingConfig, data: MarketData, repetition: Repetition) -> int:
    noted = (config, repetition)
    if noted not in data.notes:
        data.notes[noted] = _packed(config, data, repetition).rounds
    return data.notes[noted]


class PackPublished(_Literature):
    """Algorithm 1 of Huang and Zhu as printed."""

    name = "pack-published"
    note = "its steps and its stop look at exact sums"
    solve = staticmethod(published)
    takes = ("alpha",)


class PackFixedSteps(_Literature):
    """Dual multiplicative weights with one step (Huang and Zhu 2018)."""

    name = "pack-fixed-steps"
    solve = staticmethod(fixed_steps)


class PackGradient(_Literature):
    """Dual gradient descent (Hsu et al.)."""

    name = "pack-gradient"
    solve = staticmethod(gradient_descent)


class PackOnline(_Literature):
    """One agent a step, in random order."""

    name = "pack-online"
    parallel = False
    solve = staticmethod(online)
    takes = ()
