"""Any sequence of attempts, crashes, retries and late returns: never overspent or paid twice, one noise a release.

The model knows what a process knows (its attempt's number) and what the world has seen (which attempt's output is out).
"""

from fractions import Fraction

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dpbeam.budget.account import COMMITTED, PUBLISHING, RESERVED, Charge, ReservationLostError, limit_draft
from dpbeam.budget.amounts import exact
from dpbeam.budget.charges import make_limit
from dpbeam.errors import InputError
from tests.budget.entries import Memory

IDS = st.sampled_from("abcd")
COST = {"a": 0.1, "b": 0.3, "c": 0.7, "d": 0.2}


class AccountMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.memory = Memory()
        self.attempts: dict[str, list[int]] = {name: [] for name in "abcd"}
        self.out: dict[str, set[int]] = {name: set() for name in "abcd"}

    @rule(name=IDS)
    def begin(self, name):
        """A first attempt, or a retry while others of the same id may still be around."""
        before = self.memory.account.releases.get(name)
        spent = self.counted()
        try:
            number = self.memory.reserve(name, COST[name])
        except InputError:
            assert spent + exact(COST[name]) > 1
            return
        release = self.memory.account.releases[name]
        if before is not None and before.counts:
            assert self.counted() == spent  # never pays twice
        if release.attempt == number and release.state == RESERVED:
            self.attempts[name].append(number)

    @rule(name=IDS, which=st.integers(0, 5))
    def publish(self, name, which):
        """Any attempt that ever began comes to its end; at the most one may show its noise."""
        if which >= len(self.attempts[name]):
            return
        attempt = self.attempts[name][which]
        try:
            self.memory.add(self.memory.account.publish(name, attempt, {}, "{}"))
        except ReservationLostError:
            return
        self.out[name].add(attempt)

    @rule(name=IDS, which=st.integers(0, 5))
    def commit(self, name, which):
        if which < len(self.attempts[name]):
            attempt = self.attempts[name][which]
            try:
                self.memory.add(self.memory.account.commit(name, attempt))
                again = len(self.memory.entries)
                assert self.memory.add(self.memory.account.commit(name, attempt)) == again
            except ReservationLostError:
                assert attempt not in self.out[name]

    @rule(name=IDS, which=st.integers(0, 5))
    def give_back(self, name, which):
        if which < len(self.attempts[name]):
            self.memory.add(self.memory.account.give_back(name, self.attempts[name][which]))

    @rule()
    def repeat_the_limit(self):
        self.memory.add(limit_draft(make_limit("basic", 1.0, 1e-6)))

    def counted(self) -> Fraction:
        """By hand, from the entries alone."""
        live: dict[str, Fraction] = {}
        for entry in self.memory.entries:
            if entry.kind == "reserve":
                live[entry.release_id] = exact(entry.details["charge"]["epsilon"])
            elif entry.kind == "return":
                del live[entry.release_id]
        return sum(live.values(), Fraction(0))

    @invariant()
    def never_overspent(self):
        (standing,) = self.memory.account.touched(Charge(0.1, 1e-8))
        used = standing.spent["epsilon"] + standing.reserved["epsilon"]
        assert used == self.counted() <= 1

    @invariant()
    def one_noise_is_out(self):
        for name, attempts in self.out.items():
            assert len(attempts) <= 1
            if attempts:
                release = self.memory.account.releases[name]
                assert release.state in (PUBLISHING, COMMITTED) and {release.attempt} == attempts


TestAccountMachine = AccountMachine.TestCase
TestAccountMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
