"""Plans of top-k: every one fits its budget by two accountants, and every refusal names the flag."""

import math
from itertools import pairwise

import numpy as np
import pytest

from dpbeam.accounting.events import (
    ComposedEvent,
    CorrelatedGaussianEvent,
    CountEvent,
    CumulativeThresholdEvent,
    GaussianEvent,
    LaplaceEvent,
    LimitedDomainEvent,
    PeelingEvent,
    PureEvent,
    ThresholdEvent,
)
from dpbeam.accounting.gaussian import gaussian_delta
from dpbeam.accounting.ledger import Ledger
from dpbeam.errors import InputError
from dpbeam.selection.config import SelectionConfig
from dpbeam.selectors.registry import selectors
from dpbeam.topk.config import plan_topk
from dpbeam.topk.family import TopKConfig
from dpbeam.topk.mechanisms import MECHANISMS, CdpPeel

UNKNOWN = ["cdp-peel", "pnf-peel", "joint", "fast-joint"]
PURE = ["pnf-peel", "joint", "fast-joint"]
SELECTORS = list(selectors())


def config(epsilon=1.0, delta=1e-6, k=20, selector="basic", **more):
    """cdp-peel unless another is asked for; tests/topk/test_gauss_rank.py has the plans of the default."""
    selection = None if selector is None else SelectionConfig(1.0, 0.5, method=selector, max_items_per_user=8)
    return TopKConfig(epsilon, delta, k, **{"mechanism": "cdp-peel", "selection": selection, **more})


def verified(plan):
    """The guarantee by the ledger, which raises if it exceeds what was declared."""
    c = plan.config
    return Ledger("top-k", c.epsilon, c.delta, plan.composition, plan.event).verify()


def leaves(event):
    if not isinstance(event, ComposedEvent):
        return [event]
    return [leaf for part in event.parts for leaf in leaves(part)]


def all_pure(event):
    """Whether every mechanism is epsilon-DP, but for a delta that stands outside."""
    return all(leaf.is_threshold or leaf.pure_epsilon() is not None for leaf in leaves(event))


def plain_zcdp_delta(rho, epsilon):
    """Canonne, Kamath, Steinke 2020, Prop. 12, minimised over a plain grid of orders."""
    a = 1 + np.geomspace(1e-4, 1e6, 40_001)
    return float(np.exp(np.min((a - 1) * (a * rho - epsilon) - np.log(a - 1) + a * np.log1p(-1 / a))))


def plain_delta(event, epsilon):
    """Delta of a zCDP plan by the formulas of the papers, apart from the accountant under test."""
    rho = extra = 0.0
    for leaf in leaves(event):
        if isinstance(leaf, GaussianEvent):
            rho += leaf.sensitivity**2 / (2 * leaf.sigma**2)
        elif isinstance(leaf, CorrelatedGaussianEvent):
            rho += leaf.counts / (8 * leaf.sigma**2) + 1 / (8 * leaf.shared_sigma**2)
        elif isinstance(leaf, PeelingEvent):
            rho += leaf.rounds * leaf.epsilon0**2 / 8
        elif isinstance(leaf, PureEvent):
            rho += leaf.epsilon**2 / 2
        elif isinstance(leaf, LaplaceEvent):
            rho += (leaf.sensitivity / leaf.scale) ** 2 / 2
        elif isinstance(leaf, CountEvent):
            rho += leaf.epsilon**2 / 2
            extra += leaf.delta
        else:
            assert isinstance(leaf, ThresholdEvent | CumulativeThresholdEvent)
            extra += leaf.delta
    return plain_zcdp_delta(rho, epsilon) + extra


@pytest.mark.parametrize("noisy_counts", [False, True])
@pytest.mark.parametrize("place,selector", list(enumerate(SELECTORS)))
def test_every_plan_fits_its_budget_and_takes_the_better_composition(place, selector, noisy_counts):
    """Every selector with every mechanism; of three budgets each selector has two, each mechanism all."""
    epsilon, delta = ((0.1, 1e-9), (10.0, 1e-12), (1.0, 1e-6))[(place + noisy_counts) % 3]
    for mechanism in UNKNOWN:
        plan = plan_topk(
            config(epsilon, delta, selector=selector, mechanism=mechanism, noisy_counts=noisy_counts)
        )
        spent = verified(plan)
        assert spent.epsilon <= epsilon * (1 + 1e-12) and spent.delta <= delta * (1 + 1e-12)
        budgets = plan.choice_budgets
        assert set(budgets) <= {"basic", "zcdp"}
        assert plan.composition == max(budgets, key=budgets.get)
        assert plan.mechanism.budget == pytest.approx(max(budgets.values()), rel=1e-12)
        if plan.composition == "zcdp" and all_pure(plan.event) and mechanism != "cdp-peel":
            # No better than basic but for the last digits: epsilons add, and no delta is needed for that.
            assert budgets["zcdp"] == pytest.approx(budgets["basic"], rel=1e-9)
        elif plan.composition == "zcdp":
            assert plan.event.kind == "zcdp" and plan.event.epsilon == epsilon
            # The threshold's delta included; nothing worth having is left, and zCDP alone would not allow more.
            assert spent.delta >= delta * (1 - 2e-3)
            plain = plain_delta(plan.event, epsilon)
            assert plain >= delta * (1 - 1e-4)
            if not any(isinstance(leaf, PeelingEvent) for leaf in leaves(plan.event)):
                assert plain <= delta * (1 + 1e-4)
        else:
            assert plan.event.kind == "basic"


@pytest.mark.parametrize("mechanism", UNKNOWN)
def test_both_compositions_are_recorded(mechanism):
    assert set(plan_topk(config(mechanism=mechanism)).choice_budgets) == {"basic", "zcdp"}


def test_each_composition_wins_somewhere():
    """zCDP for peeling beside a Gaussian selection; basic for a pure choice, which needs no delta."""
    assert plan_topk(config(mechanism="cdp-peel")).composition == "zcdp"
    assert plan_topk(config(mechanism="pnf-peel")).composition == "basic"


@pytest.mark.parametrize("accounting", ["basic", "gaussian"])
def test_a_selection_composed_by_basic_leaves_basic(accounting):
    plan = plan_topk(
        TopKConfig(
            1.0,
            1e-6,
            5,
            mechanism="cdp-peel",
            selection=SelectionConfig(1.0, 0.5, method="dp-sips", accounting=accounting),
        )
    )
    verified(plan)
    assert ("zcdp" in plan.choice_budgets) == (accounting == "gaussian")


@pytest.mark.parametrize("k", [1, 1_000])
@pytest.mark.parametrize("mechanism", UNKNOWN)
@pytest.mark.parametrize("noisy_counts", [False, True])
def test_a_public_domain_spends_all_on_the_choice(mechanism, k, noisy_counts):
    plan = plan_topk(
        config(k=k, selector=None, mechanism=mechanism, public_domain=True, noisy_counts=noisy_counts)
    )
    verified(plan)
    assert plan.selection is None and plan.config.selector_share is None
    assert not any(isinstance(leaf, ThresholdEvent) for leaf in leaves(plan.event))
    if not noisy_counts and mechanism in PURE:
        assert plan.mechanism.budget == pytest.approx(1.0, rel=1e-9)
        assert verified(plan).delta == 0


@pytest.mark.parametrize("epsilon,delta", [(0.01, 1e-12), (1.0, 1e-6), (10.0, 1e-12)])
@pytest.mark.parametrize("kbar,places", [(None, 200), (100, 100), (0, None)])
@pytest.mark.parametrize("noisy_counts", [False, True])
def test_limited_domain(epsilon, delta, kbar, places, noisy_counts):
    plan = plan_topk(
        config(
            epsilon, delta, selector=None, mechanism="limited-domain", kbar=kbar, noisy_counts=noisy_counts
        )
    )
    spent = verified(plan)
    assert spent.delta <= delta * (1 + 1e-12)
    assert plan.selection is None and plan.composition == "basic" and set(plan.choice_budgets) == {"basic"}
    assert plan.mechanism.kbar == places and plan.config.kbar == (places or 0)
    [event] = [leaf for leaf in leaves(plan.event) if isinstance(leaf, LimitedDomainEvent)]
    if kbar == 0:
        assert plan.config.max_items_per_user == plan.mechanism.max_items_per_user == 100
    assert event.max_changed == (100 if kbar == 0 else places)
    assert event.gap >= 1 + math.log(event.max_changed / event.delta) / event.epsilon0


def test_limited_domain_with_a_bound_per_user_changes_fewer_places():
    plan = plan_topk(config(selector=None, mechanism="limited-domain", kbar=100, max_items_per_user=30))
    [event] = [leaf for leaf in leaves(plan.event) if isinstance(leaf, LimitedDomainEvent)]
    assert event.max_changed == 30 and plan.mechanism.max_items_per_user == 30


@pytest.mark.parametrize("mechanism", PURE)
def test_a_pure_choice_leaves_delta_to_the_others(mechanism):
    alone = plan_topk(config(mechanism=mechanism))
    assert alone.selection.config.delta == pytest.approx(1e-6, rel=1e-9)
    assert alone.selection.config.epsilon == 0.5
    counted = plan_topk(config(mechanism=mechanism, noisy_counts=True))
    # Shares .5 and .2 of epsilon; delta in the same proportion, all of it.
    assert counted.selection.config.delta == pytest.approx(1e-6 * 5 / 7, rel=1e-9)
    assert gaussian_delta(0.2, 2 * counted.counts.scale / (1 + math.sqrt(20))) == pytest.approx(
        1e-6 * 2 / 7, rel=1e-6
    )


def test_an_approximate_choice_takes_its_share_of_delta():
    plan = plan_topk(config(selector_share=0.25))
    assert (plan.selection.config.epsilon, plan.selection.config.delta) == (0.25, 0.25e-6)
    assert plan.mechanism.epsilon0 == plan.choice_budgets["zcdp"]
    assert plan.choice_budgets["basic"] == CdpPeel.calibrate(20, 0.75, 0.75e-6).epsilon0


def test_counts_are_charged_for_all_k_of_them():
    """One user may hold all k items, in scale and in the event; k in l1."""
    wide = plan_topk(config(k=200, noisy_counts=True))
    [event] = [leaf for leaf in leaves(wide.event) if isinstance(leaf, CorrelatedGaussianEvent)]
    assert event.counts == 200 and (event.sigma, event.shared_sigma) == wide.counts.parts
    assert math.hypot(event.sigma, event.shared_sigma) == pytest.approx(wide.counts.scale)
    assert 0.19e-6 < gaussian_delta(0.2, 2 * wide.counts.scale / (1 + math.sqrt(200))) <= 0.2e-6
    small = plan_topk(config(k=2, noisy_counts=True))
    assert small.counts.noise == "laplace" and small.counts.scale >= 2 / 0.2
    [event] = [leaf for leaf in leaves(small.event) if isinstance(leaf, PureEvent) and "count" in leaf.label]
    assert event.epsilon == pytest.approx(0.2, rel=1e-9)


def test_shares():
    plan = plan_topk(config(selector_share=0.3, noisy_counts=True, noisy_count_share=0.1))
    assert (plan.config.selector_share, plan.config.noisy_count_share) == (0.3, 0.1)
    assert plan.choice_budgets["basic"] == pytest.approx(
        CdpPeel.calibrate(20, 0.6, 0.6e-6).epsilon0, rel=1e-9
    )
    default = plan_topk(config(noisy_counts=True)).config
    assert (default.selector_share, default.noisy_count_share) == (0.5, 0.2)


def test_more_budget_is_more_choice():
    ranges = [plan_topk(config(e)).mechanism.budget for e in (0.01, 0.1, 1.0, 10.0)]
    assert all(a < b for a, b in pairwise(ranges))


@pytest.mark.parametrize(
    "settings,message",
    [
        ({"epsilon": 0.0}, "--epsilon must be a finite number above 0, got 0.0"),
        ({"delta": 0.0}, "--delta must lie strictly between 0 and 1, got 0.0"),
        ({"k": 0}, "--k must be an integer from 1 to 100000, got 0"),
        ({"k": 100_001}, "--k must be an integer from 1 to 100000, got 100001"),
        ({"k": True}, "--k must be an integer, got bool"),
        ({"k": 2.5}, "--k must be an integer, got 2.5"),
        ({"k": math.nan}, "--k must be an integer, got float"),
        (
            {"mechanism": "best"},
            "--mechanism must be one of cdp-peel, pnf-peel, joint, fast-joint, gauss-rank, limited-domain, got 'best'",
        ),
        ({"selector_share": 1.0}, "--selector_share must lie strictly between 0 and 1, got 1.0"),
        ({"selector_share": math.nan}, "--selector_share must lie strictly between 0 and 1, got nan"),
        (
            {"noisy_counts": True, "noisy_count_share": -0.1},
            "--noisy_count_share must lie strictly between 0 and 1, got -0.1",
        ),
        (
            {"noisy_counts": True, "noisy_count_share": 0.5},
            "--selector_share and --noisy_count_share leave nothing for the choice",
        ),
        (
            {"noisy_counts": True, "selector_share": 0.9},
            "--selector_share and --noisy_count_share leave nothing for the choice",
        ),
        ({"noisy_count_share": 0.1}, "--noisy_count_share needs --noisy_counts"),
        (
            {"public_domain": True, "selector_share": 0.5},
            "--selector_share needs a selection stage: drop it, or --domain, limited-domain",
        ),
        (
            {"mechanism": "limited-domain", "selector_share": 0.5},
            "--selector_share needs a selection stage: drop it, or --domain, limited-domain",
        ),
        ({"kbar": 30}, "--kbar applies to --mechanism=limited-domain alone"),
        ({"kbar": 0}, "--kbar applies to --mechanism=limited-domain alone"),
        (
            {"mechanism": "limited-domain", "kbar": 19},
            "--kbar must be 0 (all) or at least --k (20), got 19",
        ),
        (
            {"mechanism": "limited-domain", "kbar": -1},
            "--kbar must be 0 (all) or at least --k (20), got -1",
        ),
        (
            {"mechanism": "limited-domain", "max_items_per_user": 0},
            "--max_items_per_user must be an integer from 1 to 1000000, got 0",
        ),
        (
            {"mechanism": "limited-domain", "public_domain": True},
            "--mechanism=limited-domain is for an unknown domain: use another mechanism with --domain",
        ),
        (
            {"mechanism": "joint", "max_items_per_user": 7},
            "--max_items_per_user applies to a selection, and to --mechanism=limited-domain, alone",
        ),
        (
            {"selector": None, "public_domain": True, "max_items_per_user": 7},
            "--max_items_per_user applies to a selection, and to --mechanism=limited-domain, alone",
        ),
        *(
            (
                without,
                "there is no selection stage: drop the settings of one, or --domain, limited-domain",
            )
            for without in ({"public_domain": True}, {"mechanism": "limited-domain"})
        ),
        *(
            (
                {"mechanism": "fast-joint", "beta": beta},
                f"--beta must lie strictly between 0 and 1, got {beta}",
            )
            for beta in (0.0, 1.0, -0.5, math.nan)
        ),
        ({"selector": "best"}, f"--method must be one of {', '.join((*SELECTORS, 'wgm'))}, got 'best'"),
    ],
)
def test_refusals(settings, message):
    with pytest.raises(InputError) as caught:
        plan_topk(config(**settings))
    assert str(caught.value) == message


def test_names_are_those_of_the_command_line():
    assert list(MECHANISMS) == [*UNKNOWN, "gauss-rank", "limited-domain"]


def test_the_default_selector_is_that_of_the_command():
    from dpbeam.cli.top_k import COMMAND, TopKOptions

    library = plan_topk(TopKConfig(1.0, 1e-6, 5))
    command = COMMAND.plan(TopKOptions({"epsilon": 1.0, "delta": 1e-6, "k": 5}))
    assert library.selection.config == command.selection.config
    assert library.selection.config.method == "gsu"


@pytest.mark.parametrize("k", [1, 2, 3, 5, 100])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-12), (1.0, 1e-5), (5.0, 1e-9)])
def test_limited_domain_of_any_k_costs_its_budget(k, delta, epsilon):
    """Few choices are cheaper as pure epsilon than in zCDP; the ledger charges them so."""
    plan = plan_topk(TopKConfig(epsilon, delta, k, mechanism="limited-domain"))
    spent = Ledger("top-k", epsilon, delta, plan.composition, plan.event).verify()
    assert delta * (1 - 2e-3) <= spent.delta <= delta * (1 + 1e-12) and spent.epsilon <= epsilon * (1 + 1e-12)
