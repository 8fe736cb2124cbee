"""Tools of the top-k tests: exact distributions by enumeration, chi-square."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from dpbeam.randomness import RunKey


class Rejected(Exception):
    """The branch in which a rejection sampler starts again."""


class ScriptedDraws:
    """Stands for `Draws`: follows a path of choices and multiplies their probabilities."""

    def __init__(self, path):
        self.path, self.at, self.weight, self.options = list(path), 0, 1.0, []

    def _pick(self, probabilities):
        live = np.flatnonzero(np.asarray(probabilities) > 0)
        if self.at == len(self.path):
            self.path.append(0)
        self.options.append(len(live))
        chosen = int(live[self.path[self.at]])
        self.at += 1
        self.weight *= float(probabilities[chosen])
        return chosen

    def choice(self, log_weights):
        assert np.isfinite(np.max(log_weights))
        return self._pick(np.exp(log_weights - logsumexp(log_weights)))

    def below(self, n):
        assert n >= 1
        return self._pick(np.full(n, 1.0 / n))

    def accept(self, log_probability):
        p = min(1.0, math.exp(log_probability))
        if self._pick([p, 1 - p]) == 1:
            raise Rejected
        return True


def enumerate_outcomes(run):
    """The exact distribution {tuple: probability} of run(draws), which may reject and start again."""
    outcomes, path, accepted = {}, [], 0.0
    while path is not None:
        draws = ScriptedDraws(path)
        try:
            outcome = tuple(int(x) for x in run(draws))
            outcomes[outcome] = outcomes.get(outcome, 0.0) + draws.weight
            accepted += draws.weight
        except Rejected:
            pass
        path = draws.path
        while path and path[-1] + 1 == draws.options[len(path) - 1]:
            path.pop()
        if path:
            path[-1] += 1
        else:
            path = None
    return {outcome: weight / accepted for outcome, weight in outcomes.items()}


def joint_distribution(descending, k, epsilon, tau=math.inf):
    """The exponential mechanism over all sequences, by its definition: {ranks: probability}."""
    logs = {}
    for s in itertools.permutations(range(len(descending)), k):
        loss = max(int(descending[j]) - int(descending[x]) for j, x in enumerate(s))
        logs[s] = -epsilon / 2 * min(loss, tau)
    total = logsumexp(list(logs.values()))
    return {s: math.exp(value - total) for s, value in logs.items()}


def chi_square_p(observed, expected):
    """p-value of counts {outcome: number} against {outcome: probability}; rare outcomes are pooled.

    An outcome of probability 0 gives 0.
    """
    if any(expected.get(outcome, 0) == 0 for outcome in observed):
        return 0.0
    n = sum(observed.values())
    cells = sorted(((expected[o] * n, observed.get(o, 0)) for o in expected), reverse=True)
    big = [cell for cell in cells if cell[0] >= 10]
    rest = [cell for cell in cells if cell[0] < 10]
    if rest:
        big.append((sum(c[0] for c in rest), sum(c[1] for c in rest)))
    want, got = np.array(big).T
    keep = want > 1e-9
    statistic = np.sum((got[keep] - want[keep]) ** 2 / want[keep])
    return float(stats.chi2.sf(statistic, max(1, keep.sum() - 1)))


def count_outcomes(run, n):
    """{outcome: number} of run(key) over n fixed keys."""
    outcomes = {}
    for i in range(n):
        outcome = tuple(int(x) for x in run(RunKey.insecure_fixed(f"outcome {i}")))
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    return outcomes


def fingerprints_of(n, seed=0):
    """(n, 2) uint64 distinct fingerprints."""
    return np.random.default_rng(seed).integers(0, 2**64, (n, 2), dtype=np.uint64)


@pytest.fixture(scope="session")
def tools():
    """The functions of this file, which tests cannot import."""

    class Tools:
        pass

    for function in (enumerate_outcomes, joint_distribution, chi_square_p, count_outcomes, fingerprints_of):
        setattr(Tools, function.__name__, staticmethod(function))
    return Tools
