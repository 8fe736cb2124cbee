"""The accountant: what a tree of events costs.

Design. `account` interprets a tree of events and knows exactly the registered classes: anything else, subclasses
included, raises UnknownEventError (fail closed). What a single event costs, the event says (`events.py`); here costs
are composed. A threshold is believed only if it can be recomputed from the noise of its round. Safe side: epsilon
and delta are rounded up.

Composition kinds:
  basic     epsilons and deltas add. A part that is a Gaussian or zCDP composition states the epsilon at
            which its delta is taken.
  gaussian  noises compose exactly, 1/sigma^2 = sum 1/sigma_r^2 (gaussian.py); the deltas of thresholds are
            added outside exp(epsilon): off the event that a novel item passes, both neighbours release
            the same function of the noisy weights.
  pure      epsilons of epsilon-DP noises add; thresholds as above.
  zcdp      rhos add and are converted tightly (zcdp.py); thresholds as above. Where the parts are one event of
            choices of bounded range, Gaussian noise and pure parts, and nothing else, their exact composition
            (bounded_range.py) is taken where it is cheaper.
  first-hit one `FirstHitEvent` beside Gaussian and epsilon-DP noises (first_hit.py); thresholds as above.
  renyi     divergences of every order add, and the best order counts (renyi.py); thresholds as above.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dpbeam.accounting.bounded_range import choices_delta, largest_range
from dpbeam.accounting.events import (
    ComposedEvent,
    Event,
    InconsistentEventError,
    UnknownEventError,
    describe,
    is_event,
    leaves,
)
from dpbeam.accounting.first_hit import first_hit_delta
from dpbeam.accounting.gaussian import check_epsilon, compose_sigmas, gaussian_delta, gaussian_sigma
from dpbeam.accounting.noise import StatedNoise
from dpbeam.accounting.renyi import best_renyi_delta
from dpbeam.accounting.zcdp import zcdp_delta, zcdp_rho

_COST_TOLERANCE = 1e-12  # relative; shares of a budget add up to it in floating point
_DELTA_MARGIN = 5e-13  # relative; gaussian_sigma leaves twice that
# Of what each kind composes, a part must know one.
_COSTS = {
    "gaussian": ("gaussian_sigma",),
    "pure": ("pure_epsilon",),
    "zcdp": ("zcdp_rho",),
    "first-hit": ("first_hit", "gaussian_sigma", "pure_epsilon"),
    "renyi": ("renyi_divergence",),
}
_NESTED = {
    "gaussian": ("gaussian",),
    "pure": ("pure",),
    "zcdp": ("gaussian", "pure", "zcdp"),
    "first-hit": ("gaussian", "pure"),
    "renyi": ("gaussian", "pure", "zcdp", "renyi"),
}


@dataclass(frozen=True)
class Guarantee:
    """(epsilon, delta)-DP; delta may be 0."""

    epsilon: float
    delta: float


def account(event: ComposedEvent, epsilon: float | None = None) -> Guarantee:
    """The (epsilon, delta) guarantee of a composition, rounded up.

    Args:
      event: the root of the tree.
      epsilon: where the delta of a gaussian, zcdp or renyi root is taken if the root does not say so itself;
        ignored by a basic or pure root.

    Raises: UnknownEventError on anything it does not know, where it does not know it;
    InconsistentEventError on a threshold that its noise does not support; ValueError if no epsilon is given.
    """
    if type(event) is not ComposedEvent:
        raise UnknownEventError(f"the accountant starts from a ComposedEvent, not {describe(event)}")
    if event.kind == "basic":
        return _account_basic(event)
    simple = _leaves(event, event.kind)
    outside = [leaf.outside_delta() for leaf in simple]
    mechanisms = [leaf for leaf in simple if not leaf.is_threshold]
    if not mechanisms:
        raise InconsistentEventError("a composition of thresholds alone has no noise")
    if event.kind == "pure":
        return Guarantee(
            _sum_up(_known(leaf.pure_epsilon()) for leaf in mechanisms), min(1.0, math.fsum(outside))
        )
    epsilon = event.epsilon if event.epsilon is not None else epsilon
    if epsilon is None:
        raise ValueError(f"a {event.kind} composition needs an epsilon at which its delta is taken")
    epsilon = check_epsilon(epsilon)
    if event.kind == "renyi":
        return Guarantee(epsilon, _renyi_total(simple, mechanisms, epsilon))
    delta = (_first_hit_delta if event.kind == "first-hit" else _noise_delta)(mechanisms, epsilon)
    return Guarantee(epsilon, min(1.0, math.fsum([delta, *outside])))


class OverspentError(ValueError):
    """The events of a plan, or of a ledger, cost more than the budget."""


def check_cost(event: ComposedEvent, epsilon: float, delta: float, what: str) -> Guarantee:
    """Hold what a plan or a ledger costs against its budget, and return it.

    Args:
      what: what is planned, for the message.

    Raises:
      OverspentError: it costs more, by a relative tolerance of 1e-12; and as `account`.
    """
    spent = account(event, epsilon)
    for name, used, budget in (("epsilon", spent.epsilon, epsilon), ("delta", spent.delta, delta)):
        if not used <= budget * (1 + _COST_TOLERANCE):
            raise OverspentError(f"{what} costs {name} {used:.17g}, the budget is {budget:.17g}")
    return spent


def _account_basic(composed: ComposedEvent) -> Guarantee:
    guarantees = []
    for part in composed.parts:
        if type(part) is ComposedEvent:
            if part.lacks_epsilon:
                raise UnknownEventError(f"a basic composition cannot hold {describe(part)}")
            guarantees.append(account(part))
        elif is_event(part) and not part.is_threshold and part.pure_epsilon() is not None:
            guarantees.append(Guarantee(part.pure_epsilon(), part.outside_delta()))
        else:
            raise UnknownEventError(f"a basic composition cannot hold {describe(part)} without an epsilon")
    return Guarantee(
        math.fsum(part.epsilon for part in guarantees),
        min(1.0, math.fsum(part.delta for part in guarantees)),
    )


def _leaves(composed: ComposedEvent, kind: str) -> list[Event]:
    """All simple events of a composition that is not basic, thresholds checked."""
    simple = []
    for part in composed.parts:
        if type(part) is ComposedEvent and part.kind in _NESTED[kind] and part.epsilon is None:
            simple += _leaves(part, kind)
        elif (
            is_event(part)
            and type(part) is not ComposedEvent
            and (part.is_threshold or any(getattr(part, cost)() is not None for cost in _COSTS[kind]))
        ):
            simple.append(part)
        else:
            raise UnknownEventError(f"a {kind} composition cannot hold {describe(part)}")
    _check_thresholds(composed.parts)
    return simple


def _check_thresholds(parts: Iterable) -> None:
    """Has every threshold recomputed from the noise of its round, both direct parts of one composition."""
    simple = [part for part in parts if type(part) is not ComposedEvent]
    thresholds = [part for part in simple if part.is_threshold]
    if not thresholds:
        return
    noises: dict[int, StatedNoise] = {}
    for noise in (noise for part in simple for noise in part.noises()):
        if noise.round in noises:
            raise InconsistentEventError(
                f"two events with noise of round {noise.round} beside a threshold: compose them apart"
            )
        noises[noise.round] = noise
    for threshold in thresholds:
        threshold.check(noises)


def _noise_delta(mechanisms: list[Event], epsilon: float) -> float:
    """Delta at epsilon of all mechanisms: the best of the bounds that apply."""
    sigmas = [sigma for mechanism in mechanisms if (sigma := mechanism.gaussian_sigma()) is not None]
    if len(sigmas) == len(mechanisms):
        return gaussian_delta(epsilon, compose_sigmas(sigmas)) * (1 + _DELTA_MARGIN)
    pure = [cost for mechanism in mechanisms if (cost := mechanism.pure_epsilon()) is not None]
    if len(pure) == len(mechanisms) and math.fsum(pure) <= epsilon:
        return 0.0
    rho = math.fsum(_known(mechanism.zcdp_rho()) for mechanism in mechanisms)
    bound = zcdp_delta(rho * (1 + 1e-15), epsilon)
    choices = [made for mechanism in mechanisms if (made := mechanism.choices()) is not None]
    others = _beside_choices([mechanism for mechanism in mechanisms if mechanism.choices() is None])
    if len(choices) != 1 or others is None:
        return bound
    [(rounds, epsilon0)] = choices
    return min(bound, choices_delta(epsilon, epsilon0, rounds, *others))


def _beside_choices(mechanisms: list[Event]) -> tuple[float, tuple[float, ...]] | None:
    """(sigma, epsilons) of Gaussian and pure mechanisms as `bounded_range` takes them; None if there are others."""
    sigmas, epsilons = [], []
    for mechanism in mechanisms:
        sigma, epsilon = mechanism.gaussian_sigma(), mechanism.pure_epsilon()
        if sigma is not None:
            sigmas.append(sigma)
        elif epsilon is not None and mechanism.choices() is None:
            epsilons.append(epsilon)
        else:
            return None
    return (compose_sigmas(sigmas) if sigmas else math.inf), tuple(epsilons)


def largest_choice_range(parts: Sequence[Event], rounds: int, epsilon: float, delta: float) -> float:
    """The largest epsilon0 of `rounds` choices that fit (epsilon, delta) beside other parts; 0 if none fits.

    Args:
      parts: what else a zcdp composition holds, thresholds included; may be empty.

    Returns: rounded down; `account` finds at most delta for a zcdp composition with these choices in it.

    Raises: see `account`.
    """
    simple = _leaves(ComposedEvent("zcdp", tuple(parts)), "zcdp") if parts else []
    mechanisms = [leaf for leaf in simple if not leaf.is_threshold]
    others = _beside_choices(mechanisms)
    left = (delta - math.fsum(leaf.outside_delta() for leaf in simple)) * (1 - 1e-12)
    if left <= 0:
        if others is None or not math.isinf(others[0]):
            return 0.0
        return max(0.0, (epsilon - math.fsum(others[1])) / rounds * (1 - 1e-14))
    spent = math.fsum(_known(mechanism.zcdp_rho()) for mechanism in mechanisms)
    rho = zcdp_rho(epsilon, left) - spent * (1 + 1e-15)
    by_zcdp = math.sqrt(8 * rho / rounds) * (1 - 1e-12) if rho > 0 else 0.0
    return by_zcdp if others is None else max(by_zcdp, largest_range(epsilon, left, rounds, *others))


def _first_hit_delta(mechanisms: list[Event], epsilon: float) -> float:
    """Delta at epsilon of choices up to the first hit beside other noise; as mere choices where that is less."""
    choices, sigmas, pure = [], [], []
    for mechanism in mechanisms:
        if (hit := mechanism.first_hit()) is not None:
            choices.append(hit)
        elif (sigma := mechanism.gaussian_sigma()) is not None:
            sigmas.append(sigma)
        else:
            pure.append(_known(mechanism.pure_epsilon()))
    if len(choices) != 1:
        raise UnknownEventError(f"a first-hit composition holds one FirstHitEvent, not {len(choices)}")
    ((epsilon0, rate),) = choices
    other = compose_sigmas(sigmas) if sigmas else math.inf
    by_first_hit = first_hit_delta(epsilon, epsilon0, other, math.fsum(pure) * (1 + 1e-15), rate)
    return min(by_first_hit, _noise_delta(mechanisms, epsilon))


def sigma_beside(parts: Sequence[Event | ComposedEvent], epsilon: float, delta: float) -> float | None:
    """Gaussian noise at sensitivity 1 that is (epsilon, delta)-DP together with Gaussian parts, rounded up.

    Args:
      parts: of a gaussian composition, thresholds included; may be empty.

    Returns: None where the parts leave nothing, or a millionth of the whole mu^2.
    """
    paid = [leaf for part in parts for leaf in leaves(part)]
    left = (delta - math.fsum(leaf.outside_delta() for leaf in paid)) * (1 - 1e-12)
    if not left > 0:
        return None
    whole = gaussian_sigma(epsilon, left) ** -2
    rest = whole - math.fsum(sigma**-2 for leaf in paid if (sigma := leaf.gaussian_sigma()) is not None)
    return rest**-0.5 * (1 + 1e-11) if rest > 1e-6 * whole else None


def _renyi_total(simple: list[Event], mechanisms: list[Event], epsilon: float) -> float:
    """Delta at epsilon of a renyi composition: of the best order, or exact where one event knows it."""
    outside = math.fsum(leaf.outside_delta() for leaf in simple)

    def divergence(order: float) -> float:
        return math.fsum(_known(mechanism.renyi_divergence(order)) for mechanism in mechanisms) * (1 + 1e-14)

    delta = math.fsum([best_renyi_delta(divergence, epsilon, outside), outside])
    exact = simple[0].exact_delta(epsilon) if len(simple) == 1 else None
    return min(1.0, delta if exact is None else min(delta, exact))


def _known(cost: float | None) -> float:
    """A cost that `_leaves` has asked for; UnknownEventError where an event has none after all."""
    if cost is None:
        raise UnknownEventError("an event does not know its cost")
    return cost


def _sum_up(epsilons: Iterable[float]) -> float:
    """Sum, rounded up; a single term is exact."""
    values = list(epsilons)
    return values[0] if len(values) == 1 else math.nextafter(math.fsum(values), math.inf)
