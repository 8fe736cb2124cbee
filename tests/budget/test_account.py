"""The machine of an account: what may follow what, and what counts."""

import re
from dataclasses import replace
from datetime import date
from fractions import Fraction

import pytest

from dpbeam.accounting.zcdp import zcdp_delta
from dpbeam.budget.account import (
    COMMITTED,
    PUBLISHING,
    RESERVED,
    RETURNED,
    Account,
    Charge,
    Days,
    OverLimitError,
    ReservationLostError,
    StillRunningError,
    limit_draft,
    windows,
)
from dpbeam.budget.charges import make_limit
from dpbeam.errors import InputError
from tests.budget.entries import HOLDER, Memory, days, nobody_lives


class TestLimit:
    def test_ten_tenths_fit_and_an_eleventh_does_not(self):
        memory = Memory()
        for n in range(10):
            memory.release(f"r{n}")
        assert memory.left() == [0.0]
        with pytest.raises(
            OverLimitError,
            match=r"^--budget: the limit of dataset 'logs' would be passed: this run needs epsilon 0.1, and 0 of 1 is "
            r"left$",
        ):
            memory.reserve("r10")
        with pytest.raises(OverLimitError):
            memory.reserve("r10", epsilon=1e-300)

    def test_delta_is_held_too(self):
        memory = Memory()
        memory.release("a", 0.1, 9e-7)
        memory.release("b", 0.1, 1e-7)
        with pytest.raises(OverLimitError, match=r"this run needs delta 1e-300, and 0 of 1e-06 is left"):
            memory.reserve("c", 0.1, 1e-300)
        memory.release("pure", 0.1, 0.0)

    def test_a_reservation_counts_until_it_is_given_back(self):
        memory = Memory()
        attempt = memory.reserve("a", 0.9)
        with pytest.raises(OverLimitError):
            memory.reserve("b", 0.2)
        memory.add(memory.account.give_back("a", attempt))
        assert memory.left() == [1.0]
        memory.reserve("b", 0.2)

    def test_the_latest_limit_is_in_force(self):
        memory = Memory()
        memory.release("a", 0.9)
        memory.add(limit_draft(make_limit("basic", 0.5, 1e-6)))
        assert memory.left() == [-0.4]
        with pytest.raises(OverLimitError, match=r"and 0 of 0.5 is left"):
            memory.reserve("b", 0.1)
        memory.add(limit_draft(make_limit("basic", 2.0, 1e-6)))
        memory.reserve("b", 1.1)

    def test_zcdp_holds_fixed_totals(self):
        limit = make_limit("zcdp", 1.0, 1e-6)
        rho, outside = float(limit.amounts["rho"]), limit.amounts["delta"]
        assert outside == Fraction(5, 10**7)
        assert zcdp_delta(rho, 1.0) + float(outside) <= 1e-6 < zcdp_delta(rho * 1.001, 1.0) + float(outside)
        memory = Memory(limit, composition="zcdp")
        for n in range(4):
            memory.reserve(f"r{n}", rho=rho / 4, outside_delta=1e-7)
        with pytest.raises(OverLimitError, match=r"needs rho"):
            memory.reserve("more", rho=rho / 1e6, outside_delta=0.0)
        with pytest.raises(InputError, match=r"needs the rho of a run"):
            memory.reserve("none")

    def test_other_neighbours_do_not_add_up(self):
        memory = Memory()
        attempt = memory.reserve("a")
        other = Charge(0.1, 1e-8, relation="replace one")
        with pytest.raises(InputError, match=r"protect against 'r', this one protects against 'replace one'"):
            memory.account.check_fits(other)
        memory.add(memory.account.give_back("a", attempt))
        memory.account.check_fits(other)

    @pytest.mark.parametrize(
        "values, message",
        [
            (("basic", 0.0, 1e-6), "--epsilon must be a finite number above 0, got 0.0"),
            (("basic", float("inf"), 1e-6), "--epsilon must be"),
            (("basic", float("nan"), 1e-6), "--epsilon must be"),
            (("basic", 1.0, 1.0), "--delta must be at least 0 and below 1, got 1.0"),
            (("basic", 1.0, float("nan")), "--delta must be"),
            (("zcdp", 1.0, 0.0), "--delta must be above 0 in an account of zcdp"),
        ],
    )
    def test_wrong_limits(self, values, message):
        with pytest.raises(InputError, match=message):
            make_limit(*values)
        with pytest.raises(
            InputError, match=r"--period must be one of day, week, month, quarter, year, got 'moon'"
        ):
            make_limit("basic", 1.0, 1e-6, period="moon")


class TestRenewal:
    def test_every_period_has_the_budget_anew(self):
        memory = Memory(make_limit("basic", 1.0, 1e-6, period="month"))
        memory.release("jan", 1.0, days=days("2026-01-31"))
        with pytest.raises(
            OverLimitError, match=r"of dataset 'logs' for 2026-01-01:2026-01-31 would be passed"
        ):
            memory.reserve("again", 0.1, days=days("2026-01-01"))
        memory.release("feb", 1.0, days=days("2026-02-01"))

    def test_a_run_over_two_periods_is_charged_to_both(self):
        memory = Memory(make_limit("basic", 1.0, 1e-6, period="month"))
        memory.release("both", 0.7, days=days("2026-01-31", "2026-02-01"))
        for day in ("2026-01-05", "2026-02-05"):
            assert memory.left(days=days(day)) == [0.3]
        memory.release("feb", 0.3, days=days("2026-02-05"))
        with pytest.raises(OverLimitError, match=r"for 2026-02-01:2026-02-28"):
            memory.reserve("again", 0.1, days=days("2026-01-15", "2026-02-01"))
        memory.reserve("jan", 0.3, days=days("2026-01-15"))

    def test_the_days_must_be_said(self):
        memory = Memory(make_limit("basic", 1.0, 1e-6, period="month"))
        with pytest.raises(
            InputError, match=r"^--budget_period: the account of dataset 'logs' has budgets for days"
        ):
            memory.reserve("a")

    def test_limits_hold_for_their_days(self):
        year = make_limit("basic", 1.0, 1e-6, days=days("2026-01-01", "2026-12-31"))
        more = make_limit("basic", 5.0, 1e-6, days=days("2026-12-01", "2026-12-31"))
        memory = Memory(year, more)
        with pytest.raises(
            InputError, match=r"^--dataset: the account of dataset 'logs' has no limit for 2025-12-31$"
        ):
            memory.reserve("a", days=days("2025-12-31"))
        memory.release("a", 1.0, days=days("2026-03-01"))
        assert memory.left(days=days("2026-12-24")) == [5.0]
        assert memory.left(days=days("2026-11-30", "2026-12-01")) == [0.0, 5.0]

    def test_a_limit_that_begins_within_a_period_leaves_the_one_before_in_force(self):
        month = make_limit("basic", 1.0, 1e-6, period="month")
        more = make_limit("basic", 5.0, 1e-6, period="month", days=days("2026-01-16", "2026-12-31"))
        memory = Memory(month, more)
        both = days("2026-01-10", "2026-01-20")
        with pytest.raises(OverLimitError, match=r"for 2026-01-01:2026-01-31 would be passed"):
            memory.reserve("a", 4.0, days=both)
        memory.release("a", 4.0, days=days("2026-01-16", "2026-01-20"))
        assert memory.left(days=both) == [-3.0, 1.0]
        shown = [(s.limit.epsilon, str(s.days)) for s in windows(memory.account, both)]
        assert shown == [(1.0, "2026-01-01:2026-01-31"), (5.0, "2026-01-01:2026-01-31")]
        with pytest.raises(OverLimitError):  # the month has used more than the first limit has
            memory.reserve("b", 0.1, days=days("2026-01-10"))

    def test_charges_of_no_day_count_everywhere(self):
        memory = Memory()
        memory.release("a", 0.6)
        memory.add(limit_draft(make_limit("basic", 1.0, 1e-6, period="year")))
        assert memory.left(days=days("2026-01-01")) == [0.4]

    def test_longer_periods_count_what_shorter_ones_charged(self):
        memory = Memory(make_limit("basic", 1.0, 1e-6, period="month"))
        memory.release("jan", 0.5, days=days("2026-01-01"))
        memory.release("feb", 0.4, days=days("2026-02-01"))
        memory.add(limit_draft(make_limit("basic", 1.0, 1e-6, period="year")))
        assert memory.left(days=days("2026-07-01")) == [0.1]


class TestCohorts:
    """Of accounts of version 1.0: nothing of what was spent is lost, and a new run is charged to all."""

    def two(self) -> Memory:
        return Memory(
            replace(make_limit("basic", 1.0, 1e-6), cohort="old"),
            replace(make_limit("basic", 2.0, 1e-6), cohort="new"),
        )

    def test_each_has_a_budget_of_its_own(self):
        memory = self.two()
        memory.release("a", 1.0, cohort="old")
        assert memory.left(cohort="new") == [2.0]
        with pytest.raises(OverLimitError, match=r"of dataset 'logs' of cohort 'old' would be passed"):
            memory.reserve("b", 0.1)

    def test_a_new_run_is_charged_to_all(self):
        memory = self.two()
        memory.release("a", 0.6)
        assert memory.left(cohort="old") == [0.4] and memory.left(cohort="new") == [1.4]
        memory.release("b", 0.4, cohort="old")
        with pytest.raises(OverLimitError, match=r"cohort 'old'"):
            memory.reserve("c", 0.1)

    def test_a_cohort_without_a_limit(self):
        with pytest.raises(InputError, match=r"^--dataset: .* has no limit of cohort 'x' for "):
            self.two().reserve("a", cohort="x")

    def test_windows_shows_every_charge(self):
        memory = Memory(
            make_limit("basic", 1.0, 1e-6, period="month"),
            replace(make_limit("basic", 1.0, 1e-6), cohort="x"),
        )
        memory.release("a", 0.6, days=days("2026-01-31", "2026-02-01"))
        charged = [(s.limit.cohort, str(s.days), float(s.spent["epsilon"])) for s in windows(memory.account)]
        assert [(cohort, used) for cohort, _, used in charged] == [("", 0.6), ("", 0.6), ("x", 0.6)]
        (only,) = (s for s in windows(memory.account, days("2026-03-01")) if s.days.first == date(2026, 3, 1))
        assert only.left["epsilon"] == 1


class TestRelease:
    """A release id has one reservation, and one attempt that may publish."""

    def test_the_whole_way(self):
        memory = Memory()
        attempt = memory.reserve("a")
        assert memory.account.releases["a"].state == RESERVED
        memory.add(memory.account.publish("a", attempt, {"prefix": "p"}, "{}"))
        release = memory.account.releases["a"]
        assert (release.state, release.output, release.attempt) == (PUBLISHING, {"prefix": "p"}, attempt)
        memory.add(memory.account.commit("a", attempt))
        assert memory.account.releases["a"].state == COMMITTED
        before = len(memory.entries)
        memory.add(memory.account.commit("a", attempt))
        assert memory.reserve("a") == before
        assert memory.left() == [0.9]

    def test_a_retry_pays_nothing_and_fences_the_first(self):
        memory = Memory(make_limit("basic", 0.1, 1e-8))
        first = memory.reserve("a")
        second = memory.reserve("a")
        assert second > first and memory.left() == [0.0]
        with pytest.raises(
            ReservationLostError, match=r"taken over or given back while the run was under way"
        ):
            memory.account.publish("a", first, {}, "{}")
        assert memory.account.give_back("a", first) is None
        memory.add(memory.account.publish("a", second, {}, "{}"))
        for attempt in (first, 77):
            with pytest.raises(ReservationLostError):
                memory.account.commit("a", attempt)

    def test_what_is_published_is_never_given_back(self):
        memory = Memory()
        attempt = memory.reserve("a")
        memory.add(memory.account.publish("a", attempt, {}, "{}"))
        assert memory.account.give_back("a", attempt) is None
        assert memory.reserve("a") == len(memory.entries)  # and never taken over
        with pytest.raises(ReservationLostError):
            memory.account.publish("a", attempt, {}, "{}")

    def test_a_living_attempt_is_left_alone(self):
        memory = Memory()
        memory.reserve("a")
        with pytest.raises(
            StillRunningError, match=r"'a' is being released by process 1 on here, since .*, which still runs"
        ):
            memory.account.reserve(
                "a", "digest", Charge(0.1, 1e-8, relation="r"), HOLDER, "{}", lambda holder: True
            )

    @pytest.mark.parametrize("steps", [0, 1, 2])
    def test_a_release_id_stands_for_one_thing(self, steps):
        memory = Memory()
        attempt = memory.reserve("a")
        if steps > 0:
            memory.add(memory.account.publish("a", attempt, {}, "{}"))
        if steps > 1:
            memory.add(memory.account.commit("a", attempt))
        charge = Charge(0.1, 1e-8, relation="r")
        state = (RESERVED, PUBLISHING, COMMITTED)[steps]
        with pytest.raises(InputError, match=rf"'a' of dataset 'logs' is {state} for other settings"):
            memory.account.reserve("a", "another", charge, HOLDER, "{}", nobody_lives)
        assert memory.account.give_back("b", attempt) is None

    def test_a_release_that_was_given_back_may_be_anything(self):
        memory = Memory()
        attempt = memory.reserve("a")
        memory.add(memory.account.give_back("a", attempt))
        assert memory.account.releases["a"].state == RETURNED
        charge = Charge(0.2, 1e-8, relation="r")
        memory.add(memory.account.reserve("a", "another", charge, HOLDER, "{}", nobody_lives))
        assert memory.left() == [0.8]

    def test_another_cost_is_refused(self):
        memory = Memory()
        memory.reserve("a")
        with pytest.raises(InputError, match=r"'a' was reserved at another cost"):
            memory.reserve("a", 0.2)

    def test_strange_entries_are_refused(self):
        memory = Memory()
        entry = memory.entries[-1]
        for bad in (
            replace(entry, number=7),
            replace(entry, kind="create", number=3),
            replace(entry, kind="gift", number=3),
        ):
            with pytest.raises(ValueError, match=re.escape(f"entry {bad.number} of account 'logs'")):
                Account("logs", [*memory.entries, bad])
        with pytest.raises(InputError, match=r"there is an account of dataset 'logs' already"):
            memory.account.create("basic")

    def test_charges_survive_json(self):
        charge = Charge(0.1, 1e-8, 0.01, 1e-9, "r", "c", Days(date(2026, 1, 1), date(2026, 1, 2)))
        assert Charge.from_details(charge.to_details()) == charge
