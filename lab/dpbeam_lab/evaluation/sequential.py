"""Baselines that are functions of arrays, as methods of experiments. Reports say which no cluster can run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar

import numpy as np

from dpbeam.errors import SettingError, template_of
from dpbeam.kernels.csr import Csr
from dpbeam_lab.evaluation.classical import truncated_geometric
from dpbeam_lab.evaluation.data import PairData, Repetition
from dpbeam_lab.evaluation.methods import SELECTION, Method, Outcome, Prepared
from dpbeam_lab.evaluation.oracles import greedy_update, policy_gaussian
from dpbeam_lab.evaluation.released_bit import mad2r_bits, policy_bits, uniform_bits

_EMPTY = Csr(np.zeros(1, np.int64), np.zeros(0, np.int64))


class Oracle(Method):
    """A baseline; `released` is its function, whose options are its settings."""

    kind = SELECTION
    parallel = False
    released: ClassVar[Callable[..., np.ndarray]]
    options: ClassVar[tuple[str, ...]] = ("max_items_per_user", "excess")

    def settings(self, settings: Mapping[str, Any]) -> Collection[str]:
        return self.options

    def prepare(self, epsilon: float, delta: float, settings: Mapping[str, Any]) -> Prepared:
        run = functools.partial(type(self).released, epsilon=epsilon, delta=delta, **settings)
        try:
            run(_EMPTY, 0, rng=np.random.default_rng(0))  # refuses what is out of range
        except (TypeError, ValueError) as error:
            raise SettingError(template_of(error)) from None
        return functools.partial(_run, run)


class PolicyGaussian(Oracle):
    """Gopi et al. 2020."""

    name = "policy-gaussian"
    note = "users one after the other move their items' weights towards a bar (Gopi et al. 2020)"
    released = staticmethod(policy_gaussian)


class GreedyUpdate(Oracle):
    """Carvalho et al. 2022."""

    name = "greedy-update"
    note = "users one after the other fill their items up to a bar, in random order (Carvalho et al. 2022)"
    released = staticmethod(greedy_update)
    options = (*Oracle.options, "single")


class TruncatedGeometric(Oracle):
    """Desfontaines, Voss, Gipson and Mandayam 2022."""

    name = "truncated-geometric"
    parallel = True
    released = staticmethod(truncated_geometric)
    options = ("max_items_per_user",)


class UniformBits(Oracle):
    """Basic and DP-SIPS with Harrison and Manurangsi 2026."""

    name = "uniform-released-bit"
    parallel = True
    released = staticmethod(uniform_bits)
    options = ("max_items_per_user", "budget_split", "cap")


class Mad2rBits(Oracle):
    """MAD2R with Harrison and Manurangsi 2026."""

    name = "mad2r-released-bit"
    parallel = True
    released = staticmethod(mad2r_bits)
    options = ("max_items_per_user", "budget_split", "max_adaptive_degree")


class PolicyBits(Oracle):
    """PolicyGaussian with Harrison and Manurangsi 2026."""

    name = "policy-released-bit"
    note = "PolicyGaussian whose noise protects the released bit alone (Harrison and Manurangsi 2026)"
    released = staticmethod(policy_bits)


def _run(released: Callable[..., np.ndarray], data: PairData, repetition: Repetition) -> Outcome:
    marks = released(data.indexed.sets, data.indexed.num_items, rng=repetition.rng())
    return Outcome(np.flatnonzero(marks))
