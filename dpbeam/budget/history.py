"""What the runs of an account have cost together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from dpbeam.accounting.across import tightest
from dpbeam.accounting.events import UnknownEventError
from dpbeam.accounting.ledger import Ledger
from dpbeam.budget.account import Account, Release
from dpbeam.budget.amounts import exact


@dataclass(frozen=True)
class Composition:
    """The cost of several releases.

    Attributes:
      releases: how many.
      epsilon, delta: sums of what they declared, exact.
      tight_epsilon: the least epsilon for `tight_delta` that their events allow; None where that is not below the sum.
      tight_delta: the delta of the latest limit, or the sum where that is larger.
      private: False if one of them used a fixed key.
    """

    releases: int
    epsilon: Fraction
    delta: Fraction
    tight_epsilon: float | None
    tight_delta: float
    private: bool


def compose(account: Account, releases: Iterable[Release], ledgers: Mapping[str, str]) -> Composition:
    """Composition across releases, reserved ones included.

    Args:
      ledgers: JSON text by release id.

    Raises: ValueError as `Ledger.from_json` on a ledger that does not verify, and where one is missing.
    """
    chosen = [release for release in releases if release.counts]
    missing = [release.id for release in chosen if release.id not in ledgers]
    if missing:
        raise ValueError(f"release '{missing[0]}' has no ledger")
    texts = [ledgers[release.id] for release in chosen]
    read = {text: Ledger.from_json(text) for text in set(texts)}
    read_ledgers = [read[text] for text in texts]
    epsilon = sum((exact(release.charge.epsilon) for release in chosen), Fraction(0))
    delta = sum((exact(release.charge.delta) for release in chosen), Fraction(0))
    wanted = max(float(delta), *(limit.delta for limit in account.limits[-1:]), 0.0)
    tight = None
    if read_ledgers and 0 < wanted < 1:
        try:
            guarantee = tightest([(ledger.events, ledger.epsilon) for ledger in read_ledgers], wanted)
            tight = None if guarantee is None or guarantee.epsilon >= epsilon else guarantee.epsilon
        except UnknownEventError:
            pass  # noise that has no zCDP composes by sums alone
    return Composition(
        len(chosen), epsilon, delta, tight, wanted, all(ledger.private for ledger in read_ledgers)
    )
