"""Empirical audit of a selector: how far apart two neighbouring inputs really make its behaviour.

Two lower bounds on the delta that a program needs at a given epsilon, over hard neighbouring inputs S and
S' = S + one user:

- *released sets*: P(E) - e^eps Q(E) for events E of the released set, chosen on one half of the trials, bounded on
  the other. Sees what anybody sees, hence little: at most the larger part of delta, and only with many trials.
- *transcript*: the program also hands its noisy sums to itself, and the guarantee is proved for these too. Run S'
  for real, then S under the same transcript h (`dpbeam_lab.audit.transcript`). The pair (h, released sets) has
  the exact divergence E'[1_D + 1_(not D) (1 - e^(eps - L))+], where D says that the two runs released different
  items at some point and L is the log likelihood ratio of h, from the differences of the exact sums and the
  covariance of the noise; and its mirror image with S and S' exchanged. A correct program comes near its delta on
  the worst inputs, so small faults show.

The noise is measured in the runs, not believed: noise that is too small or repeated from round to round makes L large
(`dpbeam_lab.audit.likelihood`), and draws that do not follow the law that the plan states are a finding of their own
(`dpbeam_lab.audit.draws`), as is noise that is stated and never drawn.

The noise of a round is made for newcomers that move its sums by a norm of at most 1, and its threshold for D0 items
that nobody else holds. What they move is known here exactly, up to the round in which the two runs release different
items, and must keep to that.

A claim that no input comes near may hide a fault: where the best estimate is surely below a floor, the audit says so
(`Audit.low`). Where a program gives so much away, its floor is lower and says why (`dpbeam_lab.audit.floors`).

Samples of users are those of the run's key in both runs (a coupling); by joint convexity the statistic is at
least the divergence of the mixture, and the proofs bound it for every fixed sample, so a correct program stays below.

An audit can refute a guarantee; it cannot prove one. All numbers here come from made-up inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpbeam.accounting.noise import L1, L2, LINF
from dpbeam.engine.program import Keys, Program
from dpbeam.kernels.grid import UNIT_BITS
from dpbeam.randomness import RunKey
from dpbeam.selection.plan import SelectionPlan
from dpbeam_lab.audit.confidence import event_excess, mean_lower_bound
from dpbeam_lab.audit.draws import Drawn
from dpbeam_lab.audit.likelihood import SAMPLES, Likelihood
from dpbeam_lab.audit.neighbours import Identity, Neighbours, build, users_of
from dpbeam_lab.audit.transcript import Transcript, run_observed
from dpbeam_lab.audit.worst_cases import worst_cases
from dpbeam_lab.tables import markdown_table

_PAIRS_PER_RUN = 1_000_000
ROUNDING = 1e-6  # of sums on the grid, in the norm of a round
_FEW_SAMPLES = 50_000  # of noise, where trials are few


@dataclass(frozen=True)
class Subject:
    """A program as it is built, for the audit of the product or of a planted fault.

    Attributes:
      program: what runs.
      keys: from a run key to the keys that the program draws from.
      identity: what is taken for a user's identity; None: the whole number.
    """

    program: Program
    keys: Callable[[RunKey], Keys] = Keys
    identity: Identity | None = None


@dataclass(frozen=True)
class Finding:
    """One divergence at the claimed epsilon.

    Attributes:
      case: name of the neighbouring inputs.
      kind: "transcript", "released set", "norm" of what the newcomer moves in a round, which noise is made for,
        "noise" where the noise is not of the law that the plan states, or "floor": releases of items that have fewer
        users than the floor asks for, of which there are none.
      direction: "add" (S' against S) or "remove".
      trials: independent trials.
      estimate: of the divergence (for events: on the held-out half).
      lower: lower bound on it, false with probability at most the audit's alpha over all findings together.
      claimed: the delta that the program claims, or the norm.
      upper: upper bound on it, as sure; infinity where there is none.
    """

    case: str
    kind: str
    direction: str
    trials: int
    estimate: float
    lower: float
    claimed: float
    upper: float = math.inf

    @property
    def violated(self) -> bool:
        return self.lower > self.claimed


@dataclass(frozen=True)
class Audit:
    """All findings about one program."""

    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """No finding refutes the claim."""
        return not any(f.violated for f in self.findings)

    def worst(self, kind: str) -> Finding:
        """The finding of a kind with the largest estimate."""
        return max((f for f in self.findings if f.kind == kind), key=lambda f: f.estimate)

    def low(self, floor: float) -> bool:
        """Whether every transcript stays surely below this share of the claim: the audit hardly looks at anything."""
        return all(f.upper < floor * f.claimed for f in self.findings if f.kind == "transcript")


def audit(
    plan: SelectionPlan,
    *,
    trials: int,
    seed: str = "audit",
    alpha: float = 1e-6,
    subject: Subject | None = None,
    cases: Sequence[Neighbours] | None = None,
) -> Audit:
    """Audit a calibrated selection, or `subject` against the claim of the plan.

    Choose a large delta (0.05, say), a D0 of some 4 to 16, and 10^4 to 10^5 trials: the code is the same for every
    delta, and small deltas cannot be seen.

    Args:
      trials: per case and direction.
      seed: text of the fixed keys.
      alpha: probability that any violation is reported of a program that keeps its claim.
      cases: neighbouring inputs; None: `worst_cases(plan)`.

    Raises:
      ValueError: fewer than 1,000 trials.
    """
    if trials < 1_000:
        raise ValueError(f"trials must be at least 1000, got {trials}")
    subject = subject or Subject(plan.program)
    cases = tuple(cases or worst_cases(plan))
    level = alpha / (4 * len(cases) + 3)
    config = plan.config
    claim = _Claim(config.epsilon, config.delta, config.max_items_per_user, level, min_users=config.min_users)
    keys = subject.keys(RunKey.insecure_fixed(f"{seed}/covariance"))
    paid = plan.program.noises()
    stated: dict[int, Any] = {spec.round: spec for spec in paid}
    noise = Likelihood.measure(
        subject.program, keys, level, stated=stated, samples=min(SAMPLES, max(_FEW_SAMPLES, 10 * trials))
    )
    drawn, findings = Drawn(), []
    for case in cases:
        findings += _audit_case(subject, case, claim, noise, trials, f"{seed}/{case.name}", drawn, stated)
    for fault in {noise.fault, drawn.fault(level, paid)} - {""}:
        findings.append(Finding(fault, "noise", "add", trials, 1.0, 1.0, claim.delta))
    return Audit(tuple(findings))


@dataclass(frozen=True)
class _Claim:
    epsilon: float
    delta: float
    max_items: int | None
    level: float
    min_users: int | None = None


def _audit_case(
    subject: Subject,
    case: Neighbours,
    claim: _Claim,
    noise: Likelihood,
    trials: int,
    seed: str,
    drawn: Drawn,
    stated: Mapping[int, Any],
) -> list[Finding]:
    """What one case shows; the draws of its real runs, one of two that share their keys, go into `drawn`."""
    size = sum(map(len, case.others)) + len(case.newcomer)
    per_run = max(1, min(trials, _PAIRS_PER_RUN // size))
    losses: dict[str, list[np.ndarray]] = {"add": [], "remove": []}
    released: dict[str, list[np.ndarray]] = {"add": [], "remove": []}
    largest = 0.0
    for number, start in enumerate(range(0, trials, per_run)):
        keys = subject.keys(RunKey.insecure_fixed(f"{seed}/{number}"))
        copies = min(per_run, trials - start)
        runs = _four_runs(subject, case, keys, copies)
        for direction, (real, other) in runs.items():
            shape = (copies, case.num_items)
            losses[direction].append(_divergence(real, other, noise, claim.epsilon, shape))
            largest = max(largest, _largest_move(subject.program, real, other, claim.max_items, shape))
            last = max(real.noisy_trips())
            released[direction].append(real.column("released", last, bool).reshape(shape))
        _add_draws(subject.program, runs["add"][0], stated, drawn)
    findings = [Finding(case.name, "norm", "add", trials, largest, largest, 1.0 + ROUNDING)]
    for direction, opposite in (("add", "remove"), ("remove", "add")):
        values = np.concatenate(losses[direction])
        estimate, lower = float(values.mean()), mean_lower_bound(values, claim.level)
        upper = 1.0 - mean_lower_bound(1.0 - values, claim.level)
        findings.append(
            Finding(case.name, "transcript", direction, trials, estimate, lower, claim.delta, upper)
        )
        if claim.min_users is not None:
            few = users_of(case, with_newcomer=direction == "add") < claim.min_users
            below = float(np.concatenate(released[direction])[:, few].sum())
            findings.append(Finding(case.name, "floor", direction, trials, below, below, 0.0))
        estimate, lower, _ = event_excess(
            np.concatenate(released[direction]),
            np.concatenate(released[opposite]),
            claim.epsilon,
            claim.level,
        )
        findings.append(Finding(case.name, "released set", direction, trials, estimate, lower, claim.delta))
    return findings


def _add_draws(program: Program, real: Transcript, stated: Mapping[int, Any], drawn: Drawn) -> None:
    for trip in real.noisy_trips():
        spec = program.noise(trip)
        assert spec is not None
        exact, noisy = (real.column(which, trip)[real.known] for which in ("sums", "noisy"))
        drawn.add_items(stated.get(spec.round, spec), exact, noisy)


def _four_runs(
    subject: Subject, case: Neighbours, keys: Keys, copies: int
) -> dict[str, tuple[Transcript, Transcript]]:
    """Per direction the real run, and the run of the neighbour under its transcript."""
    size = copies * case.num_items
    cap = subject.program.cap
    without, with_newcomer = (
        build(case, copies, keys, cap, with_newcomer=there, identity=subject.identity)
        for there in (False, True)
    )
    runs = {}
    for direction, here, there in (
        ("add", with_newcomer, without),
        ("remove", without, with_newcomer),
    ):
        real = run_observed(subject.program, here, keys, size)
        runs[direction] = (real, run_observed(subject.program, there, keys, size, real))
    return runs


def _divergence(
    real: Transcript, other: Transcript, noise: Likelihood, epsilon: float, shape: tuple[int, int]
) -> np.ndarray:
    """1_D + 1_(not D) (1 - e^(eps - L))+ per copy, (copies,) in [0, 1]."""
    columns = [
        (real.column("noisy", t), real.column("sums", t), other.column("sums", t)) for t in noise.trips
    ]
    noisy, here, there = (np.array(values) * 2.0**-UNIT_BITS for values in zip(*columns))
    loss = noise.log_ratio(noisy, here, there).reshape(shape).sum(axis=1)
    value = -np.expm1(np.minimum(0.0, epsilon - loss))
    differ = np.zeros(shape[0], bool)
    for trip in noise.trips:
        mine, its = real.column("released", trip, bool), other.column("released", trip, bool)
        differ |= (mine != its).reshape(shape).any(axis=1)
    return np.where(differ, 1.0, value)


def _largest_move(
    program: Program, real: Transcript, other: Transcript, max_items: int | None, shape: tuple[int, int]
) -> float:
    """The largest norm by which the newcomer moves the exact sums of a round, or the number of items that thresholds
    are made for, over D0: those that nobody else holds, and where every item counts for itself all that it moves.

    Given equal history, that is: a copy counts up to the round in which the two runs release different items.
    """
    orders = {L1: 1, L2: 2, LINF: np.inf}
    equal, largest = np.ones(shape[0], bool), 0.0
    novel = (real.known ^ other.known).reshape(shape)
    for trip in real.noisy_trips():
        moved = (real.column("sums", trip) - other.column("sums", trip)).reshape(shape) * 2.0**-UNIT_BITS
        norms = np.linalg.norm(moved[equal], orders[program.norm], axis=1)
        largest = max(largest, float(norms.max(initial=0.0)))
        if max_items is not None:
            counted = (moved != 0) & (novel | (program.norm == LINF))
            largest = max(largest, np.count_nonzero(counted[equal], axis=1).max(initial=0) / max_items)
        mine, its = real.column("released", trip, bool), other.column("released", trip, bool)
        equal &= (mine == its).reshape(shape).all(axis=1)
    return largest


def markdown(rows: Sequence[tuple[str, Audit]]) -> str:
    """A table: per program the worst findings as shares of the claimed delta, and the verdict."""
    head = [
        "program",
        "transcript: estimate / delta",
        "lower bound",
        "released set: estimate / delta",
        "lower bound",
    ]
    lines = []
    for name, result in rows:
        cells = [name]
        for kind in ("transcript", "released set"):
            lowers = [f.lower for f in result.findings if f.kind == kind]
            if not lowers:
                cells += ["", ""]
                continue
            worst, low = result.worst(kind), max(lowers)
            cells += [f"{worst.estimate / worst.claimed:.2f}", f"{low / worst.claimed:.2f}"]
        hardest = result.worst("transcript")
        verdict = "passes" if result.passed else "refuted"
        lines.append([*cells, f"{hardest.case}, {hardest.direction}", verdict])
    return markdown_table([*head, "hardest case", "verdict"], lines)
