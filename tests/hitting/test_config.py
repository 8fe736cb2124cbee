"""Settings and calibration of hitting-set: budgets, the better composition, what contradicts itself."""

import math
from dataclasses import replace

import pytest

from dpbeam.accounting.accountant import account
from dpbeam.accounting.events import ComposedEvent, FirstHitEvent, PeelingEvent
from dpbeam.accounting.first_hit import first_hit_delta
from dpbeam.accounting.ledger import Ledger
from dpbeam.errors import InputError
from dpbeam.hitting.config import RATES, default_share, largest_range, plan_hitting_set, spread
from dpbeam.hitting.family import HittingSetConfig, lost_users
from dpbeam.selection.config import SelectionConfig
from dpbeam.selectors.registry import selectors
from dpbeam.topk.config import plan_topk
from dpbeam.topk.family import TopKConfig


def planned(epsilon=1.0, delta=1e-5, k=50, method="basic", share=None, **settings):
    selection = SelectionConfig(epsilon, delta, method, max_items_per_user=10, **settings)
    return plan_hitting_set(HittingSetConfig(epsilon, delta, k, selection, share))


@pytest.mark.parametrize("method", selectors())
def test_every_selector_fits_the_budget_and_uses_it_up(method):
    plan = planned(method=method)
    spent = account(plan.event, 1.0)
    assert spent.epsilon <= 1.0 * (1 + 1e-12)
    assert 0.98e-5 < spent.delta <= 1e-5
    assert plan.composition == "first-hit" and plan.epsilon0 == max(plan.ranges.values())


def test_rounds_added_up_as_epsilon_and_delta():
    """A selection whose own rounds are composed by `basic` leaves the rest to the choices."""
    plan = planned(method="dp-sips", accounting="basic")
    assert plan.event.kind == "basic" and plan.composition == "first-hit"
    spent = account(plan.event)
    assert spent.epsilon == pytest.approx(1.0, rel=1e-12) and 0.98e-5 < spent.delta <= 1e-5
    assert set(plan.ranges) == {"basic", "first-hit"}


def test_a_public_domain_gets_everything():
    plan = plan_hitting_set(HittingSetConfig(1.0, 1e-5, 50, public_domain=True))
    assert plan.selection is None and plan.config.selector_share is None
    assert 0 < plan.rate < 1
    assert first_hit_delta(1.0, plan.epsilon0, rate=plan.rate) <= 1e-5
    assert first_hit_delta(1.0, 1.001 * plan.epsilon0, rate=plan.rate) > 1e-5
    assert plan.event == ComposedEvent(
        "first-hit",
        (FirstHitEvent(plan.epsilon0, 50, plan.rate, label="user peeling"),),
        epsilon=1.0,
        label="hitting set",
    )


def test_the_range_does_not_depend_on_k_and_beats_composed_choices():
    ranges = [planned(k=k, share=0.5) for k in (50, 500)]
    assert len({plan.epsilon0 for plan in ranges}) == 1
    for plan in ranges:
        choices = plan_topk(
            TopKConfig(
                1.0,
                1e-5,
                plan.config.k,
                mechanism="cdp-peel",
                selection=plan.config.selection,
                selector_share=0.5,
            )
        )
        composed = max(choices.choice_budgets.values())
        assert plan.epsilon0 > composed * math.sqrt(plan.config.k / 50) * 1.5


def test_what_errs_least_is_taken():
    """Among rates of users, and against mere choices; a single choice is best with all of epsilon."""
    plan = planned()
    for rate in RATES:
        largest = largest_range(plan.config, plan.selection, rate)
        assert largest is None or spread(largest[0].epsilon0, rate) >= spread(plan.epsilon0, plan.rate)
    assert spread(plan.ranges["zcdp"], 1.0) > spread(plan.epsilon0, plan.rate)
    plan = planned(k=1)
    assert plan.composition != "first-hit" and plan.epsilon0 == max(plan.ranges.values()) and plan.rate == 1
    spent = account(plan.event, 1.0)
    assert spent.delta <= 1e-5


def test_the_share_grows_with_k_over_epsilon_and_stays_in_bounds():
    shares = [default_share(k, 1.0) for k in (1, 20, 50, 100, 200, 1_000, 10_000)]
    assert shares == sorted(shares) and shares[0] == 0.3 and shares[-1] == 0.9
    assert default_share(100, 1.0) == default_share(10, 0.1) == 0.6
    assert planned(k=100).config.selector_share == 0.6
    assert planned(k=100, share=0.4).config.selector_share == 0.4
    assert planned(k=100, share=0.4).selection.config.epsilon == pytest.approx(0.4)


def test_a_plan_whose_events_state_other_choices_is_refused():
    plan = planned()
    for wrong in (
        {"epsilon0": plan.epsilon0 * 1.01},
        {"config": replace(plan.config, k=51)},
        {"rate": 1.0},
        {"event": ComposedEvent("zcdp", (PeelingEvent(plan.epsilon0, 49),))},
        {"event": plan.selection.event},
    ):
        with pytest.raises(ValueError, match=r"the events state choices \(range, number, rate\)"):
            replace(plan, **wrong)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"k": 10_001}, "--k must be an integer from 1 to 10000, got 10001"),
        ({"k": True}, "--k must be an integer"),
        ({"k": 2.5}, "--k must be an integer"),
        ({"share": 0.0}, "--selector_share must lie strictly between 0 and 1, got 0.0"),
        ({"share": 1e-320}, "--selector_share leaves next to nothing for one of the parts, got 1e-320"),
    ],
)
def test_settings_out_of_range(settings, message):
    with pytest.raises(InputError, match=message):
        planned(**settings)


def test_a_public_domain_takes_no_selection():
    for more in ({"selector_share": 0.5}, {"selection": SelectionConfig(1.0, 1e-5)}):
        with pytest.raises(InputError, match="a public domain needs no selection"):
            plan_hitting_set(HittingSetConfig(1.0, 1e-5, 5, public_domain=True, **more))


def test_the_ledger_says_what_was_done_and_verifies():
    plan = planned()
    ledger = HittingSetConfig.ledger(plan, input_parameters=None, fixed_key=False, privacy_unit="one user")
    assert Ledger.from_json(ledger.to_json()) == ledger
    assert (ledger.method, ledger.accounting) == ("hitting-set", "first-hit")
    assert ledger.neighbouring_relation == "add/remove one user"
    assert ledger.parameters["selector"] == "basic" and ledger.parameters["k"] == 50


def test_lost_users_bound_the_mean_loss():
    """Equal items but one are the worst: the mean count that is chosen is then behind by about the bound."""
    epsilon0, size = 0.1, 1_000
    behind = max(
        gap * (size - 1) / (size - 1 + math.exp(epsilon0 * gap)) for gap in range(1, 200)
    )  # one item ahead by `gap`, chosen by softmax
    assert 0.5 * lost_users(epsilon0, size) < behind <= lost_users(epsilon0, size)
    report = HittingSetConfig.report(planned())
    assert [row["domain"] for row in report["lost_users"]] == [100, 1_000, 10_000]
    assert report["selection"]["method"] == "basic"


@pytest.mark.parametrize("config", [HittingSetConfig, TopKConfig])
def test_a_selection_of_a_domain_shows_no_counts(config):
    """They would be paid for, and nobody would see them."""
    selection = SelectionConfig(1.0, 1e-5, "basic", noisy_counts=True)
    plan = plan_hitting_set if config is HittingSetConfig else plan_topk
    with pytest.raises(InputError, match="noisy_counts is none of the settings of a domain's selection"):
        plan(config(1.0, 1e-5, 5, selection=selection))
