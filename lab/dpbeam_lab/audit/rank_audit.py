"""Empirical audit of gauss-rank: how far apart a user makes what its hub sees with noise.

The transcript of a ranking is the noisy histogram of items per user, the way that follows, and the noisy sums that are
ranked. Run S' for real, then S under the same transcript, as in `dpbeam_lab.audit.audit`: the pair has the divergence
E'[1_D + 1_(not D) (1 - e^(epsilon - L))+], D that the two runs choose different ways, L the log likelihood ratio of the
noise, whose deviation is measured and not believed. The Gumbel way has no noisy sums to publish; its law is enumerated
in tests.

That dictates the noise, and does not see what becomes of it. So the program also runs as the command builds it, from
users to ranking, under many keys: its rankings must follow the law of the stated noise on every way
(`dpbeam_lab.audit.choices`), and its hub must draw that noise (`dpbeam_lab.audit.draws`).

An audit can refute a guarantee; it cannot prove one. All numbers here come from made-up inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpbeam.accounting.gaussian import compose_sigmas, gaussian_delta
from dpbeam.accounting.noise import NoiseSpec
from dpbeam.counts.items_per_user import SURE
from dpbeam.engine.program import Draw, Keys
from dpbeam.kernels.columns import Columns
from dpbeam.kernels.csr import Csr
from dpbeam.kernels.grid import UNITS
from dpbeam.kernels.pairs import Block
from dpbeam.randomness import RunKey
from dpbeam.topk.config import plan_topk
from dpbeam.topk.family import TopKConfig
from dpbeam.topk.gauss_rank import CENTRED, GUMBEL, GaussRank, centred_units
from dpbeam.topk.program import RankProgram
from dpbeam_lab.audit.audit import Audit, Finding
from dpbeam_lab.audit.choices import choices
from dpbeam_lab.audit.confidence import gaussian_spread_factor, mean_lower_bound
from dpbeam_lab.audit.faults import QuietKeys
from dpbeam_lab.audit.neighbours import Neighbours, build, numbered_domain
from dpbeam_lab.audit.programs import programs

_SAMPLES = 200_000
EPSILON, DELTA = 1.0, 0.05

Build = Callable[[RankProgram], RankProgram]


@dataclass(frozen=True)
class RankCase:
    """Neighbouring inputs on a public domain of `domain` items, for a ranking of k; item numbers below `domain`."""

    neighbours: Neighbours
    domain: int
    k: int


def rank_cases() -> tuple[RankCase, ...]:
    """Light users beside a newcomer with one, some or all items; full users; a newcomer that alone fills a bucket."""
    light = tuple((i % 12, (i + 1) % 12) for i in range(60))
    full = tuple(tuple(range(6)) for _ in range(30))
    return (
        RankCase(Neighbours("one item among light users", light, (0,)), 12, 8),
        RankCase(Neighbours("all items among light users", light, tuple(range(12))), 12, 8),
        RankCase(Neighbours("all items among full users", full, tuple(range(6))), 6, 6),
        RankCase(Neighbours("nobody else", ((0,),), tuple(range(12))), 12, 12),
    )


def program_of(case: RankCase) -> RankProgram:
    """The product's program at the budget of the audit."""
    plan = plan_topk(TopKConfig(EPSILON, DELTA, case.k, mechanism="gauss-rank", public_domain=True))
    return RankProgram(plan, numbered_domain(case.domain))


def audit_ranking(
    case: RankCase,
    *,
    trials: int,
    alpha: float = 1e-6,
    build: Build | None = None,
    keys: type[Keys] = Keys,
) -> Audit:
    """Audit the product, or what `build` makes of it, on one pair of neighbours.

    Args:
      trials: per direction.
      alpha: probability that any violation is reported of a program that keeps its claim.
      keys: what noise is drawn by.
    """
    honest = program_of(case)
    program = honest if build is None else build(honest)
    chosen = honest.mechanism
    claimed = gaussian_delta(EPSILON, compose_sigmas([chosen.sigma, chosen.histogram_sigma]))
    run_keys = keys(RunKey.insecure_fixed("rank audit"))
    sides = {there: _Side(program, case, run_keys, there) for there in (False, True)}
    drawn = {
        trip: _drawn(program, trip, run_keys, alpha / 4) for trip in (program.trips - 2, program.trips - 1)
    }
    findings = []
    for direction, there in (("add", True), ("remove", False)):
        own = keys(RunKey.insecure_fixed(f"rank audit/{direction}"))
        values = _values(sides[there], sides[not there], drawn, own, trials)
        lower = mean_lower_bound(values, alpha / 4)
        estimate = float(values.mean())
        findings.append(
            Finding(case.neighbours.name, "transcript", direction, trials, estimate, lower, claimed)
        )
    return Audit(tuple(findings))


def audit_real_rankings(*, alpha: float = 1e-6, build: Build | None = None, keys: type[Keys] = Keys) -> Audit:
    """Audit what the product, or what `build` makes of it, draws and ranks from users to ranking, on every way.

    Args:
      alpha, build, keys: see `audit_ranking`.
    """
    ways = {name: make for name, make in choices().items() if name.startswith(f"{GaussRank.name}, ")}
    drawing = programs()["top-k, gauss-rank"]()
    level = alpha / (len(ways) + 1)
    findings = []
    for name, make in ways.items():
        made = make()
        wrong = float(made.p_value(made.runs, build=build, keys=keys) < level)
        findings.append(Finding(name, "ranking", "add", made.runs, wrong, wrong, 0.5))
    fault = drawing.drawn(drawing.runs, keys=keys, build=build).fault(level, drawing.stated)
    seen = float(bool(fault))
    findings.append(Finding(fault or "draws", "noise", "add", drawing.runs, seen, seen, 0.5))
    return Audit(tuple(findings))


class _Side:
    """One of two neighbouring inputs, and what its blocks tell the hub."""

    def __init__(self, program: RankProgram, case: RankCase, keys: Keys, there: bool):
        self.program, self.case, self._keys = program, case, keys
        self.users = len(np.unique(case.neighbours.pairs(1, with_newcomer=there)[0]))
        (block,) = build(case.neighbours, 1, keys, program.cap, with_newcomer=there)
        self._block = block
        size_columns: Columns = {"size": np.array([case.domain], np.int64)}
        self.state = size_columns
        reply = {"domain": np.ones(block.num_items, np.uint8)}
        block.broadcast = size_columns
        _, self._restricted = program.weigh(program.trips - 2, block, reply, keys)
        block.state = self._restricted or {}
        self.summary = program.summarise(program.trips - 2, block, keys)
        self.histogram = np.asarray(self.summary["users"], np.int64)
        self._sums: dict[int, np.ndarray] = {}

    def way(self, draw: Draw) -> int:
        """What the hub announces with this noise."""
        _, broadcast = self.program.decide(self.program.trips - 2, self.state, [self.summary], draw)
        return int(broadcast["way"][0])

    def sums(self, way: int) -> np.ndarray:
        """(domain,) exact sums that are ranked, in units, with what the ranking may leave out."""
        if way not in self._sums:
            block = self._block
            block.broadcast, block.state = {"way": np.array([way], np.int64)}, self._restricted or {}
            sent, _ = self.program.weigh(self.program.trips - 1, block, {}, self._keys)
            numbers = np.frombuffer(b"".join(block.items.to_pylist()), ">i8").astype(np.int64)  # type: ignore[union-attr]
            weights, counts = np.zeros((2, self.case.domain), np.int64)
            weights[numbers] = sent["weight"]
            counts[numbers] = np.bincount(Csr(block.offsets, block.links).links, minlength=block.num_items)
            ranked = self.program.mechanism.sums(way, counts, weights)
            if way == CENTRED:
                ranked = ranked - centred_units(self.case.domain) * self.users
            self._sums[way] = ranked
        return self._sums[way]


class _Dictated(Draw):
    """A draw whose noise is given."""

    def __init__(self, noise: np.ndarray):
        self._noise = noise

    def noisy(self, exact: np.ndarray, fp: np.ndarray) -> np.ndarray:
        assert len(fp) == len(exact) == len(self._noise)
        return exact + self._noise


def _drawn(program: RankProgram, trip: int, keys: Keys, level: float) -> tuple[NoiseSpec, float]:
    """The noise of a trip as stated, and its deviation as measured, widened so that chance cannot raise the loss."""
    spec = program.hub_noise(trip)
    assert isinstance(spec, NoiseSpec)
    fp = np.arange(2 * _SAMPLES, dtype=np.uint64).reshape(-1, 2)
    values = keys.noise(spec, fp, "hub") / UNITS
    widened = math.sqrt(float(np.mean(np.square(values))) * gaussian_spread_factor(_SAMPLES, 1, level))
    return spec, widened


def _values(
    real: _Side,
    other: _Side,
    drawn: Mapping[int, tuple[NoiseSpec, float]],
    fresh: Keys,
    trials: int,
) -> np.ndarray:
    """1_D + 1_(not D) (1 - e^(epsilon - L))+ per trial, (trials,)."""
    (first, first_sigma), (last, last_sigma) = (drawn[trip] for trip in sorted(drawn))
    buckets, d = len(real.histogram), real.case.domain
    noise = fresh.noise(first, _places(trials, buckets), "hub").reshape(trials, buckets)
    step = (real.histogram - other.histogram) * UNITS
    loss = _loss(noise, step, first_sigma)
    ways = np.array([(real.way(_Dictated(z)), other.way(_Dictated(z + step))) for z in noise], np.int64)
    noise = fresh.noise(last, _places(trials, d), "hub").reshape(trials, d)
    for way in np.unique(ways[:, 0]):
        if way != GUMBEL:
            at = ways[:, 0] == way
            loss[at] += _loss(noise[at], real.sums(int(way)) - other.sums(int(way)), last_sigma)
    value = -np.expm1(np.minimum(0.0, EPSILON - loss))
    return np.where(ways[:, 0] != ways[:, 1], 1.0, value)


def _places(trials: int, columns: int) -> np.ndarray:
    """(trials * columns, 2) uint64, all different."""
    return np.stack(np.divmod(np.arange(trials * columns), columns), axis=1).astype(np.uint64)


def _loss(noise: np.ndarray, step: np.ndarray, sigma: float) -> np.ndarray:
    """ln of the density of each row of noise over that of noise + step; units of 2^-30, sigma in weight."""
    return ((noise / UNITS + step / UNITS / 2) @ (step / UNITS)) / sigma**2


# Planted faults.


class _Unclipped(RankProgram):
    """Every user adds 1/sqrt(D2) to each of its items, also with more than D2 of them."""

    def weigh(self, trip: int, block: Block, reply: Mapping[str, np.ndarray], keys: Keys) -> Any:
        sums, state = super().weigh(trip, block, reply, keys)
        if trip == self.trips - 1 and (way := int(block.broadcast["way"][0])) > 0:
            rows = Csr.from_state(block.state, "domain")
            units = np.full(len(rows.links), math.isqrt(UNITS * UNITS // way), np.int64)
            sums = {"weight": rows.item_sums(units, block.num_items)}
        return sums, state


class _ExactHistogram(RankProgram):
    """The way follows from the exact histogram."""

    def decide(self, trip: int, state: Columns, summaries: Sequence[Columns], draw: Draw) -> Any:
        if trip == self.trips - 2:
            draw = _Dictated(np.zeros(len(summaries[0]["users"]), np.int64))
        return super().decide(trip, state, summaries, draw)


class _NotDivided(RankProgram):
    """A clip's sums in users, min(1, sqrt(D2/m)), of which one user moves sqrt(D2)."""

    def weigh(self, trip: int, block: Block, reply: Mapping[str, np.ndarray], keys: Keys) -> Any:
        sums, state = super().weigh(trip, block, reply, keys)
        if trip == self.trips - 1 and (way := int(block.broadcast["way"][0])) > 0:
            sums = {"weight": np.floor(sums["weight"] * math.sqrt(way)).astype(np.int64)}
        return sums, state


class _Silent(RankProgram):
    """Exact sums are ranked; the noise is drawn, and left."""

    def decide(self, trip: int, state: Columns, summaries: Sequence[Columns], draw: Draw) -> Any:
        return super().decide(trip, state, summaries, _Altered(draw, 0) if self._ranks(trip) else draw)

    def _ranks(self, trip: int) -> bool:
        return trip == self.trips - 1


class _Halved(_Silent):
    """Half of the noise is added to the sums that are ranked."""

    def decide(self, trip: int, state: Columns, summaries: Sequence[Columns], draw: Draw) -> Any:
        return RankProgram.decide(
            self, trip, state, summaries, _Altered(draw, 0.5) if self._ranks(trip) else draw
        )


class _WideRange(RankProgram):
    """The Gumbel way chooses with 1.5 times its range."""

    @property
    def mechanism(self) -> GaussRank:
        honest = super().mechanism
        return replace(honest, epsilon0=1.5 * honest.epsilon0)


class _Altered(Draw):
    """A share of what `inner` draws."""

    def __init__(self, inner: Draw, share: float):
        vars(self).update(vars(inner))
        self._inner, self._share = inner, share

    @property
    def spent(self) -> tuple[float, ...]:
        return self._inner.spent

    def noisy(self, exact: np.ndarray, fp: np.ndarray) -> np.ndarray:
        return exact + np.rint(self._share * (self._inner.noisy(exact, fp) - exact)).astype(np.int64)


@dataclass(frozen=True)
class RankFault:
    """A faulty build, inputs that show it, and how many trials do."""

    build: Build
    case: RankCase
    keys: type[Keys] = Keys
    trials: int = 500


def rank_faults() -> dict[str, RankFault]:
    """All planted faults of gauss-rank, which the audit must refute."""
    _, many, *_ = rank_cases()
    return {
        "the clip is missing": RankFault(_as(_Unclipped), many),
        "the way follows from the exact histogram": RankFault(_as(_ExactHistogram), _tips_the_way()),
        "the clip's sums are not divided by sqrt(D2)": RankFault(_as(_NotDivided), many),
        "noise x 0.8": RankFault(_as(RankProgram), many, QuietKeys, 1_500),
        "exact sums are ranked": RankFault(_as(_Silent), many),
        "half of the noise is added": RankFault(_as(_Halved), many),
        "the Gumbel way has 1.5 times its range": RankFault(_as(_WideRange), many),
    }


def _as(faulty: type[RankProgram]) -> Build:
    return lambda honest: faulty(honest.plan, honest.domain)


def _tips_the_way() -> RankCase:
    """As many users with one item each that one more makes their bucket count."""
    case = RankCase(Neighbours("the way is at its edge", (), (0,)), 12, 8)
    sigma = program_of(case).mechanism.histogram_sigma
    others = tuple((i % 12,) for i in range(math.ceil(SURE * sigma) - 1))
    return replace(case, neighbours=Neighbours("the way is at its edge", others, (0,)))
