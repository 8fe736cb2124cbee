"""Empirical audit of a selector: how far apart two neighbouring inputs really make its behaviour.

Two lower bounds on the delta that a program needs at a given epsilon, over hard neighbouring inputs S and
S' = S + one user:

- *released sets*: P(E) - e^eps Q(E) for events E of the released set, chosen on one half of the trials, bounded on
  the other. Sees what anybody sees, hence little: at most the larger part of delta, and only with many trials.
- *transcript*: the program also hands its noisy sums to itself, and the guarantee is proved for these too. Run S'
  for real, then S under the same transcript h (`dpbeam.evaluation.transcript`). The pair (h, released sets) has
  the exact divergence E'[1_D + 1_(not D) (1 - e^(eps - L))+], where D says that the two runs released different
  items at some point and L is the log likelihood ratio of h, from the differences of the exact sums and the
  covariance of the noise; and its mirror image with S and S' exchanged. A correct program comes near its delta on
  the worst inputs, so small faults show.

The noise is measured, not believed (`dpbeam.evaluation.likelihood`): noise that is too small or repeated from round
to round makes L large, and noise of another kind than stated is a finding of its own.

Samples of users are those of the run's key in both runs (a coupling); by joint convexity the statistic is at
least the divergence of the mixture, and the proofs bound it for every fixed sample, so a correct program stays below.

An audit can refute a guarantee; it cannot prove one. All numbers here come from made-up inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dpbeam.engine.program import Keys, Program
from dpbeam.evaluation.confidence import event_excess, mean_lower_bound
from dpbeam.evaluation.likelihood import Likelihood
from dpbeam.evaluation.neighbours import Identity, Neighbours, build, worst_cases
from dpbeam.evaluation.transcript import Transcript, run_observed
from dpbeam.kernels.grid import UNIT_BITS
from dpbeam.randomness import RunKey
from dpbeam.selection.plan import SelectionPlan

_PAIRS_PER_RUN = 1_000_000


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
      kind: "transcript", "released set", or "noise" where the noise is not of the kind that the program states.
      direction: "add" (S' against S) or "remove".
      trials: independent trials.
      estimate: of the divergence (for events: on the held-out half).
      lower: lower bound on it, false with probability at most the audit's alpha over all findings together.
      claimed: the delta that the program claims.
    """

    case: str
    kind: str
    direction: str
    trials: int
    estimate: float
    lower: float
    claimed: float

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
    level = alpha / (4 * len(cases) + 1)
    claim = _Claim(plan.config.epsilon, plan.config.delta, level)
    keys = subject.keys(RunKey.insecure_fixed(f"{seed}/covariance"))
    noise = Likelihood.measure(subject.program, keys, level)
    findings: list[Finding] = []
    if noise.fault:
        findings.append(Finding(noise.fault, "noise", "add", trials, 1.0, 1.0, claim.delta))
    for case in cases:
        findings += _audit_case(subject, case, claim, noise, trials, f"{seed}/{case.name}")
    return Audit(tuple(findings))


@dataclass(frozen=True)
class _Claim:
    epsilon: float
    delta: float
    level: float


def _audit_case(
    subject: Subject, case: Neighbours, claim: _Claim, noise: Likelihood, trials: int, seed: str
) -> list[Finding]:
    size = sum(map(len, case.others)) + len(case.newcomer)
    per_run = max(1, min(trials, _PAIRS_PER_RUN // size))
    losses: dict[str, list[np.ndarray]] = {"add": [], "remove": []}
    released: dict[str, list[np.ndarray]] = {"add": [], "remove": []}
    for number, start in enumerate(range(0, trials, per_run)):
        keys = subject.keys(RunKey.insecure_fixed(f"{seed}/{number}"))
        copies = min(per_run, trials - start)
        runs = _four_runs(subject, case, keys, copies)
        for direction, (real, other) in runs.items():
            shape = (copies, case.num_items)
            losses[direction].append(_divergence(real, other, noise, claim.epsilon, shape))
            last = max(real.round_numbers())
            released[direction].append(real.column("released", last, bool).reshape(shape))
    findings = []
    for direction, opposite in (("add", "remove"), ("remove", "add")):
        values = np.concatenate(losses[direction])
        estimate, lower = float(values.mean()), mean_lower_bound(values, claim.level)
        findings.append(Finding(case.name, "transcript", direction, trials, estimate, lower, claim.delta))
        estimate, lower, _ = event_excess(
            np.concatenate(released[direction]),
            np.concatenate(released[opposite]),
            claim.epsilon,
            claim.level,
        )
        findings.append(Finding(case.name, "released set", direction, trials, estimate, lower, claim.delta))
    return findings


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


def markdown(rows: Sequence[tuple[str, Audit]]) -> str:
    """A table: per program the worst findings as shares of the claimed delta, and the verdict."""
    lines = [
        "| program | transcript: estimate / delta | lower bound | released set: estimate / delta | lower bound "
        "| hardest case | verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, result in rows:
        cells = []
        for kind in ("transcript", "released set"):
            worst = result.worst(kind)
            low = max(f.lower for f in result.findings if f.kind == kind)
            cells += [f"{worst.estimate / worst.claimed:.2f}", f"{low / worst.claimed:.2f}"]
        hardest = result.worst("transcript")
        verdict = "passes" if result.passed else "refuted"
        lines.append(f"| {name} | {' | '.join(cells)} | {hardest.case}, {hardest.direction} | {verdict} |")
    return "\n".join(lines)


def trials_for(delta: float, relative: float, alpha: float = 1e-6) -> int:
    """Trials after which a divergence of (1 + relative) delta is told from delta, about."""
    return math.ceil(2.0 * math.log(2.0 / alpha) / (delta * relative**2))
