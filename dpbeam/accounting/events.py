"""What a job did to the data, as data; and the accountant that says what it costs.

Design. A job describes its mechanisms as frozen events, composed into one tree. `account` interprets the
tree and knows exactly the event classes below: anything else, subclasses included, raises
UnknownEventError (fail closed). A threshold event is believed only if the accountant can recompute it
from the noise of its round. Safe side: epsilon and delta are rounded up.

Composition kinds:
  basic     epsilons and deltas add. A part that is a Gaussian or zCDP composition states the epsilon at
            which its delta is taken.
  gaussian  noises compose exactly, 1/sigma^2 = sum 1/sigma_r^2 (gaussian.py); the deltas of thresholds are
            added outside exp(epsilon): off the event that a novel item passes, both neighbours release
            the same function of the noisy weights.
  zcdp      rhos add and are converted tightly (zcdp.py); thresholds as above.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np
from scipy import special

from dpbeam.accounting.gaussian import (
    check_delta,
    check_epsilon,
    check_positive,
    compose_sigmas,
    gaussian_delta,
)
from dpbeam.accounting.peeling import bounded_range_zcdp, check_rounds, gaussian_zcdp
from dpbeam.accounting.threshold import item_allowance, novel_threshold
from dpbeam.accounting.zcdp import zcdp_delta

_TOLERANCE = 1e-12  # relative, for rounding where a stated value is recomputed
_DELTA_MARGIN = 5e-13  # relative; gaussian_sigma leaves twice that
KINDS = ("basic", "gaussian", "zcdp")


class UnknownEventError(ValueError):
    """The accountant does not know this event, or not in this composition."""


class InconsistentEventError(ValueError):
    """A threshold is lower than the noise of its round requires, or its noise is missing."""


def _set(event, **values) -> None:
    for name, value in values.items():
        object.__setattr__(event, name, value)


@dataclass(frozen=True)
class GaussianEvent:
    """Noise N(0, sigma^2) on every coordinate of a query of this l2-sensitivity; `round` counts from 1."""

    sigma: float
    sensitivity: float = 1.0
    round: int = 1
    label: str = ""

    def __post_init__(self):
        _set(
            self,
            sigma=check_positive("sigma", self.sigma),
            sensitivity=check_positive("sensitivity", self.sensitivity),
            round=check_rounds(self.round, "round"),
            label=str(self.label),
        )


@dataclass(frozen=True)
class ThresholdEvent:
    """Release of the items whose noisy weight of this round reaches `threshold`.

    A user puts at most novel_linf / sqrt(t) on each of t <= max_items items that nobody else holds;
    delta bounds the probability that one of them passes. `novel_linf` is 1 for Basic, DP-SIPS and MAD,
    b_max for MAD with biases.
    """

    threshold: float
    delta: float
    novel_linf: float
    max_items: int
    round: int = 1
    label: str = ""

    def __post_init__(self):
        if not math.isfinite(self.threshold):
            raise ValueError(f"threshold must be finite, got {self.threshold}")
        _set(
            self,
            threshold=float(self.threshold),
            delta=check_delta(self.delta),
            novel_linf=check_positive("novel_linf", self.novel_linf),
            max_items=check_rounds(self.max_items, "max_items"),
            round=check_rounds(self.round, "round"),
            label=str(self.label),
        )


@dataclass(frozen=True)
class CumulativeThresholdEvent:
    """Release at checkpoints k = 1..R of items with Z_k = sum_{r<=k} coefficients_r weight_r >= threshold_k.

    weight_r is the noisy weight of round r. Nobody puts more than weight_cap on an item if it holds
    max_items items. A threshold of None marks a checkpoint where nothing is tested.
    """

    thresholds: tuple[float | None, ...]
    coefficients: tuple[float, ...]
    delta: float
    weight_cap: float
    max_items: int
    label: str = ""

    def __post_init__(self):
        thresholds = tuple(None if value is None else float(value) for value in self.thresholds)
        if any(value is not None and not math.isfinite(value) for value in thresholds):
            raise ValueError("thresholds must be finite, or None where nothing is tested")
        coefficients = tuple(check_positive("coefficients", value) for value in self.coefficients)
        if len(thresholds) != len(coefficients) or not thresholds:
            raise ValueError("thresholds and coefficients must have one value per round")
        _set(
            self,
            thresholds=thresholds,
            coefficients=coefficients,
            delta=check_delta(self.delta),
            weight_cap=check_positive("weight_cap", self.weight_cap),
            max_items=check_rounds(self.max_items, "max_items"),
            label=str(self.label),
        )


@dataclass(frozen=True)
class PeelingEvent:
    """`rounds` adaptive choices, each of bounded range epsilon0 (Gumbel noise of scale 1/epsilon0)."""

    epsilon0: float
    rounds: int
    label: str = ""

    def __post_init__(self):
        _set(
            self,
            epsilon0=check_positive("epsilon0", self.epsilon0),
            rounds=check_rounds(self.rounds),
            label=str(self.label),
        )


@dataclass(frozen=True)
class LimitedDomainEvent:
    """Peeling of at most `rounds` items of range epsilon0, stopped by a noisy mark `gap` above h_(kbar+1).

    Costs what `PeelingEvent(epsilon0, rounds)` costs, and delta besides, outside the factor exp(epsilon), if
    gap >= 1 + ln(max_changed / delta) / epsilon0; one user changes at most max_changed of the kbar places
    (Durfee and Rogers 2019; `dpbeam.topk.limited_domain` has the argument).
    """

    epsilon0: float
    rounds: int
    gap: float
    delta: float
    max_changed: int
    label: str = ""

    def __post_init__(self):
        _set(
            self,
            epsilon0=check_positive("epsilon0", self.epsilon0),
            rounds=check_rounds(self.rounds),
            gap=check_positive("gap", self.gap),
            delta=check_delta(self.delta),
            max_changed=check_rounds(self.max_changed, "max_changed"),
            label=str(self.label),
        )
        needed = 1 + math.log(self.max_changed / self.delta) / self.epsilon0
        if self.gap < needed * (1 - _TOLERANCE):
            raise InconsistentEventError(f"gap is {self.gap:.17g}, its delta needs {needed:.17g}")


@dataclass(frozen=True)
class PureEvent:
    """An epsilon-DP mechanism."""

    epsilon: float
    label: str = ""

    def __post_init__(self):
        _set(self, epsilon=check_positive("epsilon", self.epsilon), label=str(self.label))


@dataclass(frozen=True)
class ZCDPEvent:
    """A rho-zCDP mechanism, or everything that passed one privacy filter of total rho."""

    rho: float
    label: str = ""

    def __post_init__(self):
        _set(self, rho=check_positive("rho", self.rho), label=str(self.label))


@dataclass(frozen=True)
class ComposedEvent:
    """Adaptive composition of `parts`; kinds as in the module docstring.

    `epsilon` is where the delta of a gaussian or zcdp composition is taken; it is required for a part of a
    basic composition, optional at the root and refused elsewhere.
    """

    kind: str
    parts: tuple
    epsilon: float | None = None
    label: str = ""

    def __post_init__(self):
        if self.kind not in KINDS:
            raise UnknownEventError(f"unknown kind of composition {self.kind!r}; known: {', '.join(KINDS)}")
        if not self.parts:
            raise ValueError("parts must not be empty")
        if self.epsilon is not None:
            if self.kind == "basic":
                raise ValueError("a basic composition takes its epsilon from its parts")
            _set(self, epsilon=check_epsilon(self.epsilon))
        _set(self, parts=tuple(self.parts), label=str(self.label))


@dataclass(frozen=True)
class Guarantee:
    """(epsilon, delta)-DP; delta may be 0."""

    epsilon: float
    delta: float


EVENT_TYPES = {
    cls.__name__: cls
    for cls in (
        GaussianEvent,
        ThresholdEvent,
        CumulativeThresholdEvent,
        PeelingEvent,
        LimitedDomainEvent,
        PureEvent,
        ZCDPEvent,
        ComposedEvent,
    )
}
_THRESHOLDS = (ThresholdEvent, CumulativeThresholdEvent)
_LEAVES = {
    "gaussian": (GaussianEvent, *_THRESHOLDS),
    "zcdp": (GaussianEvent, PeelingEvent, LimitedDomainEvent, PureEvent, ZCDPEvent, *_THRESHOLDS),
}
_NESTED = {"gaussian": ("gaussian",), "zcdp": ("gaussian", "zcdp")}


def _check_threshold(event: ThresholdEvent, sigmas: dict[int, float]) -> None:
    if event.round not in sigmas:
        raise InconsistentEventError(f"threshold of round {event.round} ({event.label!r}) has no noise")
    needed = novel_threshold(
        sigmas[event.round], event.delta, event.max_items, lambda t: event.novel_linf / np.sqrt(t)
    )
    if not event.threshold >= needed - _TOLERANCE * abs(needed):
        raise InconsistentEventError(
            f"threshold {event.threshold:.9g} of round {event.round} ({event.label!r}) is below the "
            f"{needed:.9g} that its noise and delta require"
        )


def _check_cumulative(event: CumulativeThresholdEvent, sigmas: dict[int, float]) -> None:
    """Union bound over the checkpoints, for one item of a user that holds max_items items."""
    rounds = range(1, len(event.coefficients) + 1)
    if any(r not in sigmas for r in rounds):
        raise InconsistentEventError(f"cumulative thresholds ({event.label!r}) lack the noise of a round")
    drift = np.cumsum(event.coefficients) * event.weight_cap
    deviation = np.sqrt(np.cumsum([(c * sigmas[r]) ** 2 for r, c in zip(rounds, event.coefficients)]))
    crossing = math.fsum(
        float(special.ndtr((d - threshold) / s))
        for threshold, d, s in zip(event.thresholds, drift, deviation)
        if threshold is not None
    )
    allowed = item_allowance(event.delta, event.max_items)
    if not crossing <= allowed * (1 + _TOLERANCE):
        raise InconsistentEventError(
            f"cumulative thresholds ({event.label!r}) let a novel item pass with probability "
            f"{crossing:.9g} where {allowed:.9g} is allowed"
        )


def _check_thresholds(parts: Iterable) -> None:
    """Recomputes every threshold from the noise of its round, both direct parts of one composition."""
    parts = list(parts)
    if not any(type(part) in _THRESHOLDS for part in parts):
        return
    sigmas: dict[int, float] = {}
    for part in parts:
        if type(part) is GaussianEvent:
            if part.round in sigmas:
                raise InconsistentEventError(
                    f"two Gaussian events of round {part.round} beside a threshold: compose them apart"
                )
            sigmas[part.round] = part.sigma
    for part in parts:
        if type(part) is ThresholdEvent:
            _check_threshold(part, sigmas)
        elif type(part) is CumulativeThresholdEvent:
            _check_cumulative(part, sigmas)


def _leaves(composed: ComposedEvent, kind: str) -> list:
    """All simple events of a gaussian or zcdp composition, thresholds checked."""
    found = []
    for part in composed.parts:
        if type(part) is ComposedEvent and part.kind in _NESTED[kind] and part.epsilon is None:
            found += _leaves(part, kind)
        elif type(part) in _LEAVES[kind]:
            found.append(part)
        else:
            raise UnknownEventError(f"a {kind} composition cannot hold {_describe(part)}")
    _check_thresholds(composed.parts)
    return found


def _describe(event) -> str:
    if type(event) is ComposedEvent:
        stated = "no" if event.epsilon is None else "an"
        return f"a {event.kind} composition with {stated} epsilon of its own"
    return f"an event of type {type(event).__name__}"


def _effective_sigma(event: GaussianEvent) -> float:
    sigma = event.sigma / event.sensitivity
    return sigma if event.sensitivity == 1 else math.nextafter(sigma, 0.0)


def _noise_delta(leaves: list, epsilon: float) -> float:
    """Delta at epsilon of all leaves but the thresholds: the best of the bounds that apply."""
    mechanisms = [leaf for leaf in leaves if type(leaf) not in _THRESHOLDS]
    if not mechanisms:
        raise InconsistentEventError("a composition of thresholds alone has no noise")
    if all(type(leaf) is GaussianEvent for leaf in mechanisms):
        sigma = compose_sigmas([_effective_sigma(leaf) for leaf in mechanisms])
        return gaussian_delta(epsilon, sigma) * (1 + _DELTA_MARGIN)
    pure = [_pure_epsilon(leaf) for leaf in mechanisms]
    if None not in pure and math.fsum(pure) <= epsilon:
        return 0.0
    return zcdp_delta(math.fsum(_rho(leaf) for leaf in mechanisms) * (1 + 1e-15), epsilon)


def _pure_epsilon(leaf) -> float | None:
    """The pure epsilon of a mechanism, None where it has none."""
    if type(leaf) is PureEvent:
        return leaf.epsilon
    if type(leaf) is PeelingEvent:
        return leaf.epsilon0 * leaf.rounds
    return None


def _rho(leaf) -> float:
    """zCDP cost of one mechanism; epsilon-DP implies epsilon^2/2-zCDP (Bun and Steinke 2016, Prop. 1.4)."""
    if type(leaf) is GaussianEvent:
        return gaussian_zcdp(leaf.sigma, leaf.sensitivity)
    if type(leaf) in (PeelingEvent, LimitedDomainEvent):
        return leaf.rounds * bounded_range_zcdp(leaf.epsilon0)
    if type(leaf) is PureEvent:
        return leaf.epsilon**2 / 2
    if type(leaf) is ZCDPEvent:
        return leaf.rho
    raise UnknownEventError(f"no zCDP cost is known for {_describe(leaf)}")


def _account_basic(composed: ComposedEvent) -> Guarantee:
    guarantees = []
    for part in composed.parts:
        if type(part) is ComposedEvent:
            if part.kind != "basic" and part.epsilon is None:
                raise UnknownEventError(f"a basic composition cannot hold {_describe(part)}")
            guarantees.append(account(part))
        elif _pure_epsilon(part) is not None:
            guarantees.append(Guarantee(_pure_epsilon(part), 0.0))
        else:
            raise UnknownEventError(f"a basic composition cannot hold {_describe(part)} without an epsilon")
    return Guarantee(
        math.fsum(part.epsilon for part in guarantees),
        min(1.0, math.fsum(part.delta for part in guarantees)),
    )


def account(event: ComposedEvent, epsilon: float | None = None) -> Guarantee:
    """The (epsilon, delta) guarantee of a composition, rounded up.

    Args:
      event: the root of the tree.
      epsilon: where the delta of a gaussian or zcdp root is taken if the root does not say so itself;
        ignored by a basic root.

    Raises: UnknownEventError on anything it does not know, where it does not know it;
    InconsistentEventError on a threshold that its noise does not support; ValueError if no epsilon is given.
    """
    if type(event) is not ComposedEvent:
        raise UnknownEventError(f"the accountant starts from a ComposedEvent, not {_describe(event)}")
    if event.kind == "basic":
        return _account_basic(event)
    epsilon = event.epsilon if event.epsilon is not None else epsilon
    if epsilon is None:
        raise ValueError(f"a {event.kind} composition needs an epsilon at which its delta is taken")
    epsilon = check_epsilon(epsilon)
    leaves = _leaves(event, event.kind)
    deltas = [leaf.delta for leaf in leaves if type(leaf) in (*_THRESHOLDS, LimitedDomainEvent)]
    return Guarantee(epsilon, min(1.0, math.fsum([_noise_delta(leaves, epsilon), *deltas])))


def event_to_dict(event) -> dict:
    """The event as plain JSON values with its class name under "event".

    Raises: UnknownEventError if it is not one of the classes of this module.
    """
    if EVENT_TYPES.get(type(event).__name__) is not type(event):
        raise UnknownEventError(f"cannot write {_describe(event)}")
    values = {field.name: getattr(event, field.name) for field in fields(event)}
    if type(event) is ComposedEvent:
        values["parts"] = [event_to_dict(part) for part in event.parts]
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
    return {"event": type(event).__name__, **plain}


def event_from_dict(values: dict):
    """Inverse of `event_to_dict`.

    Raises: UnknownEventError if the class, or the set of its fields, is not exactly a known one.
    """
    if not isinstance(values, dict) or values.get("event") not in EVENT_TYPES:
        name = values.get("event") if isinstance(values, dict) else type(values).__name__
        raise UnknownEventError(f"unknown event {name!r}")
    cls = EVENT_TYPES[values["event"]]
    arguments = {name: value for name, value in values.items() if name != "event"}
    if set(arguments) != {field.name for field in fields(cls)}:
        raise UnknownEventError(f"{cls.__name__} has not exactly the fields that are known")
    if cls is ComposedEvent:
        arguments["parts"] = tuple(event_from_dict(part) for part in arguments["parts"])
    return cls(**arguments)
