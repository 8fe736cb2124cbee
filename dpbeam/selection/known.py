"""Items that earlier releases have told: they take no part in a selection, and the output says which are new.

Guarantee. Known items are a function of what is released, so leaving them out of the input, and counting them, are
steps that follow the data no further: given the earlier releases, a run is as private as its ledger says, and all of
them together compose as the runs of any dataset do (docs/explanation/privacy.md#known-items).
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dpbeam.errors import DataError

if TYPE_CHECKING:
    from dpbeam.accounting.ledger import Ledger

#: Column of the output: whether no known release has the item.
NEW = "new"
#: Of a ledger's parameters: the known releases.
KNOWN = "known"
#: Of a ledger's parameters: true where the output leaves known items out.
ONLY_NEW = "only_new"


def known_parameters(known: Sequence[dict[str, Any]] | None, *, only_new: bool) -> dict[str, Any]:
    """What a ledger says of known releases, from `named_release`; None: there are none."""
    return {} if known is None else {KNOWN: list(known), **({ONLY_NEW: True} if only_new else {})}


def named_release(ledger: Ledger, text: str) -> dict[str, Any]:
    """A known release as the ledger of a later run names it: digest, id and cost.

    Args:
      text: of its ledger.
    """
    return {
        "ledger_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "release_id": None if ledger.release is None else ledger.release.release_id,
        "method": ledger.method,
        "epsilon": ledger.epsilon,
        "delta": ledger.delta,
    }


def known_release(
    ledger: Ledger, text: str | None, privacy_unit: str, dataset: str | None, *, insecure: bool
) -> dict[str, Any]:
    """A known release for the ledger of a run, from its own.

    Args:
      text: of its ledger; None: as `Ledger.to_json` writes it.
      privacy_unit, dataset: of this run, see `differences`; insecure: this run is NOT PRIVATE.

    Raises:
      InputError: its ledger does not verify, or it is NOT PRIVATE and this run is to be.
    """
    try:
        written = ledger.to_json()
    except ValueError as error:
        raise DataError(f"known: the ledger of a release does not verify: {error}") from None
    if not (ledger.private or insecure):
        raise DataError("known: a release is NOT PRIVATE: a fixed key made it, so its items are data")
    for difference in differences(ledger, privacy_unit, dataset):
        warnings.warn(f"known: a release may tell of other users: {difference}", stacklevel=5)
    return named_release(ledger, text or written)


def differences(ledger: Ledger, privacy_unit: str, dataset: str | None) -> Iterator[str]:
    """Why budgets of a known release and of this run may not be of the same users; one line each.

    Args:
      privacy_unit, dataset: of this run; None: it is charged to no account.
    """
    if ledger.privacy_unit != privacy_unit:
        yield f"its privacy unit is '{ledger.privacy_unit}', that of this run '{privacy_unit}'"
    account = ledger.parameters.get("account") or {}
    if account.get("dataset") != dataset:
        names = [
            "no account" if name is None else f"dataset '{name}'"
            for name in (account.get("dataset"), dataset)
        ]
        yield f"it is charged to {names[0]}, this run to {names[1]}"


def known_cost(ledger: Ledger) -> str | None:
    """What the known releases of a ledger have cost, as text; None where there are none.

    Raises: ValueError if it does not name them as `named_release` does.
    """
    known = ledger.parameters.get(KNOWN)
    if known is None:
        return None
    if known == []:
        return "no cost here, as no ledger of them was named"
    try:
        epsilon, delta = (sum(float(release[name]) for release in known) for name in ("epsilon", "delta"))
        digests = ", ".join(str(release["ledger_sha256"])[:12] for release in known)
    except (TypeError, KeyError, ValueError):
        raise ValueError("the ledger does not name its known releases") from None
    return f"epsilon {epsilon:.9g} and delta {delta:.9g} (SHA-256 of their ledgers: {digests})"
