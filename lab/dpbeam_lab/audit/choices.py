"""The law of choices, from outside: rankings of real runs against the range and the noise that the ledger states.

Every mechanism of top-k, every way of gauss-rank, and the choices of hitting sets run as the commands build them, on
made-up data under many keys, and only the ranking is looked at. Data and laws are such that a ranking tells much:

- *pairs*: item 2i has `gap` holders fewer than item 2i+1. Which of them comes first depends on the noise of these two
  alone, so the pairs of a ranking are independent, and inversions are binomial with a probability that follows from
  the stated range or deviation.
- *sequences* (joint, fast-joint): the loss of a drawn sequence has a law that counts of sequences give exactly.

No law is taken from the code that draws.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import special, stats

from dpbeam.accounting.events import leaves
from dpbeam.counts.gathered import histogram as as_columns
from dpbeam.engine.in_process import build_blocks, output_batches, run_trips
from dpbeam.engine.program import Keys, Program
from dpbeam.hitting.config import plan_hitting_set
from dpbeam.hitting.family import HittingSetConfig
from dpbeam.hitting.program import HittingSetProgram
from dpbeam.randomness import RunKey
from dpbeam.topk.config import plan_topk
from dpbeam.topk.family import TopKConfig
from dpbeam.topk.program import choose_from, topk_program
from dpbeam_lab.audit.draws import uniform_p
from dpbeam_lab.audit.neighbours import names_of, numbered_domain, numbers_of

Plan = Any
Build = Callable[[Any], Program]
Run = Callable[[Plan, np.ndarray, Keys, Build], np.ndarray]
Hold = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
_DELTA = 1e-3
_FAR = 14.0  # what is so many times 1/epsilon apart changes places with probability 1e-6


@dataclass(frozen=True)
class Choice:
    """A mechanism on data that shows its law.

    Attributes:
      plan: as the command makes it.
      run: (plan, counts, keys, build) -> item numbers in rank order.
      counts: (d,) int64 holders of each item.
      p: rankings -> p-value of them under the law that the plan's events state.
      runs: how many tell 1.5 times the stated epsilon from it, at a p-value of 1e-6.
    """

    plan: Plan
    run: Run
    counts: np.ndarray
    p: Callable[[list[np.ndarray]], float]
    runs: int

    def p_value(
        self,
        runs: int,
        *,
        plan: Plan | None = None,
        build: Build | None = None,
        keys: type[Keys] = Keys,
    ) -> float:
        """How likely rankings of this many keys are as far from the stated law, at most.

        Args:
          plan, build, keys: for planted faults, what runs in place of the honest plan, what becomes of the program
            (none where a histogram is ranked without one), and what it draws by.
        """
        used = self.plan if plan is None else plan
        fixed = (keys(RunKey.insecure_fixed(f"choices {number}")) for number in range(runs))
        return self.p([self.run(used, self.counts, mine, build or _honest) for mine in fixed])


def _honest(program: Program) -> Program:
    return program


def choices() -> dict[str, Callable[[], Choice]]:
    """All mechanisms, and the ways of gauss-rank, by name; made when they are called."""
    return {
        "cdp-peel": lambda: _peeling("cdp-peel", 20.0, 2, runs=20),
        "cdp-peel, histogram": lambda: _peeling("cdp-peel", 20.0, 2, histogram=True),
        "pnf-peel": lambda: _peeling("pnf-peel", 60.0, 1, pairs=30, runs=40),
        "joint": lambda: _sequences("joint"),
        "joint, histogram": lambda: _sequences("joint", histogram=True),
        "fast-joint": lambda: _sequences("fast-joint"),
        "limited-domain": lambda: _peeling("limited-domain", 20.0, 2, runs=12),
        "gauss-rank, clip": lambda: _gauss_rank(_single, 6.0, pairs=50, gap=1, runs=15),
        "gauss-rank, centred": lambda: _gauss_rank(_nested, 20.0, pairs=20, gap=1, runs=40),
        "gauss-rank, Gumbel": lambda: _gauss_rank(_nested, 20.0, pairs=10, gap=1, fillers=40, runs=90),
        "gauss-rank, histogram": lambda: _gauss_rank(None, 20.0, pairs=50, gap=2),
        "hitting-set": lambda: _hitting_set(20.0, 20, runs=40),
        "hitting-set, users by coin": lambda: _hitting_set(2.0, 40, runs=40),
    }


def scaled(plan: Plan, factor: float) -> Plan:
    """A planted fault: the plan with all it draws by for `factor` times its epsilon, around its own checks."""
    faulty = copy.copy(plan)
    if hasattr(plan, "epsilon0"):
        object.__setattr__(faulty, "epsilon0", factor * plan.epsilon0)
        return faulty
    powers = {"epsilon0": 1, "epsilon": 1, "round_epsilon": 1, "sigma": -1, "histogram_sigma": -1}
    values = {
        name: getattr(plan.mechanism, name) * factor**power
        for name, power in powers.items()
        if hasattr(plan.mechanism, name)
    }
    object.__setattr__(faulty, "mechanism", replace(plan.mechanism, **values))
    return faulty


# Data.


def _pair_counts(pairs: int, gap: int, base: int, step: int = 0) -> np.ndarray:
    """(2 pairs,) holders: item 2i has base + i step, item 2i + 1 `gap` more."""
    low = base + step * np.arange(pairs)
    return np.stack((low, low + gap), axis=1).ravel().astype(np.int64)


def _single(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Users of one item each."""
    return np.arange(counts.sum()), np.repeat(np.arange(len(counts)), counts)


def _nested(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Users of as many items as possible: user u holds all that have more than u holders."""
    users = [np.arange(count) for count in counts]
    return np.concatenate(users), np.repeat(np.arange(len(counts)), counts)


# Runs.


def _run(program: Program, users: np.ndarray, items: np.ndarray, keys: Keys) -> np.ndarray:
    pairs = [(names_of(users), names_of(items))]
    blocks = list(build_blocks(pairs, keys, program.cap, num_blocks=1, num_shards=1))
    ranked = [batch.column("item") for batch in output_batches(program, run_trips(program, blocks, keys))]
    return numbers_of(ranked[0]) if ranked else np.zeros(0, np.int64)


def _from_users(honest: Plan, hold: Hold) -> Run:
    """By the program, on users."""

    def run(plan: Plan, counts: np.ndarray, keys: Keys, build: Build) -> np.ndarray:
        program = topk_program(honest, numbered_domain(len(counts)) if honest.config.public_domain else None)
        program.plan = plan  # which the program's own checks may refuse
        return _run(build(program), *hold(counts), keys)

    return run


def _from_histogram(plan: Plan, counts: np.ndarray, keys: Keys, build: Build) -> np.ndarray:
    """By the mechanism alone, as the command chooses from a histogram."""
    key = keys.hub(None, chooses=True).run_key
    chosen = choose_from(plan, [as_columns(names_of(np.arange(len(counts))), counts, b"")], None, key)
    return numbers_of(chosen.column("item"))


# Laws.


def inverted(rankings: list[np.ndarray], items: int) -> tuple[int, int]:
    """Pairs whose smaller item comes first, and pairs of which one is ranked at all, over all rankings."""
    wrong = seen = 0
    for ranking in rankings:
        place = np.full(max(items, 1 + int(ranking.max(initial=0))), len(ranking))
        place[ranking] = np.arange(len(ranking))
        low, high = place[0:items:2], place[1:items:2]
        wrong += int((low < high).sum())
        seen += int((low != high).sum())
    return wrong, seen


def _pairs_p(rankings: list[np.ndarray], items: int, probability: float) -> float:
    """Exact binomial p-value, two-sided; all pairs must be ranked."""
    wrong, seen = inverted(rankings, items)
    if seen < len(rankings) * items // 2:
        return 0.0
    law = stats.binom(seen, probability)
    return float(min(1.0, 2 * min(law.cdf(wrong), law.sf(wrong - 1))))


def _stated(plan: Plan, *names: str) -> Mapping[str, Any]:
    """Numbers that the plan's events state."""
    events = [event for event in leaves(plan.event) if all(hasattr(event, name) for name in names)]
    assert len(events) == 1, plan.event
    return {name: getattr(events[0], name) for name in names}


def _peeling(
    mechanism: str, epsilon: float, gap: int, pairs: int = 50, histogram: bool = False, runs: int = 30
) -> Choice:
    config = TopKConfig(epsilon, _DELTA, 2 * pairs, mechanism, public_domain=mechanism != "limited-domain")
    plan = plan_topk(config)
    if mechanism == "pnf-peel":  # each round is the largest of exponential noise of its own
        each = _stated(plan, "epsilon")["epsilon"] / (2 * pairs)
        probability = math.exp(-each * gap) / 2
        counts = _pair_counts(pairs, gap, 1, gap + math.ceil(_FAR / each))
    else:
        each = _stated(plan, "epsilon0")["epsilon0"]
        probability = float(special.expit(-each * gap))
        marked = mechanism == "limited-domain"  # far above the mark
        counts = _pair_counts(
            pairs,
            gap,
            math.ceil(plan.mechanism.gap + 2 * _FAR / each) if marked else 1,  # type: ignore[attr-defined]
        )
    run = _from_histogram if histogram else _from_users(plan, _single)
    return Choice(plan, run, counts, lambda ranked: _pairs_p(ranked, 2 * pairs, probability), runs)


def _gauss_rank(
    hold: Hold | None, epsilon: float, pairs: int, gap: int, fillers: int = 0, runs: int = 30
) -> Choice:
    """The way that users of these sets lead to; without users there is no histogram of theirs, hence no clip."""
    config = TopKConfig(epsilon, _DELTA, 2 * pairs, "gauss-rank", public_domain=True)
    plan = plan_topk(config)
    stated = _stated(plan, "sigma", "epsilon0")
    sigma, each, d = stated["sigma"], stated["epsilon0"], 2 * pairs + fillers
    above = math.ceil(_FAR / each) if fillers else 0
    counts = np.concatenate((_pair_counts(pairs, gap, 40 + above), np.full(fillers, 40)))
    if hold is _single:  # weight 1 of every user
        probability = special.ndtr(-gap / (math.sqrt(2) * sigma))
    elif fillers or (hold is None and each * math.sqrt(d) * sigma > 2 * math.pi / math.sqrt(6)):
        probability = special.expit(-each * gap)
    else:  # every user moves an item against another by 2/sqrt(d)
        probability = special.ndtr(-2 * gap / math.sqrt(d) / (math.sqrt(2) * sigma))
    run = _from_histogram if hold is None else _from_users(plan, hold)
    return Choice(plan, run, counts, lambda ranked: _pairs_p(ranked, 2 * pairs, float(probability)), runs)


def _hitting_set(epsilon: float, pairs: int, runs: int) -> Choice:
    """Users of one item each: to choose an item takes no count from another. Every second item is nobody's."""
    plan = plan_hitting_set(HittingSetConfig(epsilon, _DELTA, 2 * pairs, public_domain=True))
    stated = _stated(plan, "epsilon0", "rate")
    each, rate = stated["epsilon0"], stated["rate"]
    counts = _pair_counts(pairs, max(1, round(1.5 / (each * rate))), 0)
    few, many = (stats.binom(n, rate).pmf(np.arange(n + 1)) for n in counts[:2])
    ahead = np.arange(len(many))[None, :] - np.arange(len(few))[:, None]
    probability = float(few @ special.expit(-each * ahead) @ many)

    def run(used: Plan, counts: np.ndarray, keys: Keys, build: Build) -> np.ndarray:
        program = HittingSetProgram(plan, numbered_domain(len(counts)), gather=True)
        program.plan = used  # a planted fault would be refused
        return _run(build(program), *_single(counts), keys)

    return Choice(plan, run, counts, lambda ranked: _pairs_p(ranked, 2 * pairs, probability), runs)


def _sequences(mechanism: str, histogram: bool = False) -> Choice:
    d = 40  # items
    config = TopKConfig(8.0, _DELTA, d // 2, mechanism, public_domain=True)
    plan = plan_topk(config)
    counts = np.arange(d, 0, -1, dtype=np.int64)
    law = _loss_law(counts, d // 2, _stated(plan, "epsilon0")["epsilon0"])
    fill = np.random.default_rng(0)

    def p(rankings: list[np.ndarray]) -> float:
        """Losses as uniform numbers, a sum of which has a normal law but for terms of the order of 1/n."""
        losses = np.array([int((counts[: d // 2] - counts[ranked]).max()) for ranked in rankings])
        return uniform_p(law[losses] + (law[losses + 1] - law[losses]) * fill.random(len(losses)))

    run = _from_histogram if histogram else _from_users(plan, _single)
    return Choice(plan, run, counts, p, runs=30)


def _loss_law(counts: np.ndarray, k: int, epsilon: float) -> np.ndarray:
    """P(loss < r) of a sequence of k items drawn in proportion to exp(-epsilon loss / 2), for r = 0, 1, ....

    Sequences of loss at most r number prod_j (items with at least h_(j) - r holders, less j).
    """
    top = counts[:k]
    losses = np.arange(int(top[0] - counts[-1]) + 1)
    reach = (counts[None, None, :] >= top[None, :, None] - losses[:, None, None]).sum(axis=2)
    number = np.log(reach - np.arange(k)).sum(axis=1)
    with np.errstate(divide="ignore"):  # losses that no sequence has
        own = number + np.log1p(-np.exp(np.append(-np.inf, number[:-1] - number[1:])))
    weight = own - epsilon / 2 * losses
    mass = np.exp(weight - special.logsumexp(weight))
    return np.minimum(1.0, np.append(0.0, np.cumsum(mass)))
