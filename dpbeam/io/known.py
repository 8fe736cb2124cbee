"""Reading known releases (`--known`): finished outputs that are what their ledgers say, and these verify."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from dpbeam.accounting.ledger import Ledger
from dpbeam.errors import DataError, InputError, UnavailableError
from dpbeam.io.item_lists import read_items
from dpbeam.io.new_files import LEDGER_SUFFIX, output_named
from dpbeam.io.output import ledger_path, shards_named
from dpbeam.io.paths import local_path
from dpbeam.io.released import NoLedgerError, check_outputs, read_and_check, refutation
from dpbeam.io.sinks import OutputColumns
from dpbeam.selection.known import named_release
from dpbeam.storage import FileSystems

FLAG = "--known"


@dataclass(frozen=True)
class KnownReleases:
    """What earlier releases have told.

    Attributes:
      items: (n,) large_binary canonical bytes, distinct.
      ledgers: of the releases by their prefixes; named: the same for the ledger of this run.
    """

    items: pa.Array
    ledgers: dict[str, Ledger]
    named: list[dict]


def known_prefix(path: str) -> str:
    """The prefix of a release that is named by it, by its ledger or by its one file."""
    path = local_path(path, FLAG).removesuffix(LEDGER_SUFFIX)
    prefix, one_file = output_named(path)
    if one_file is None or not FileSystems.exists(ledger_path(prefix)):
        return path
    return path if FileSystems.exists(ledger_path(path)) else prefix


def read_known(paths: Sequence[str], columns: OutputColumns, *, insecure: bool) -> KnownReleases:
    """The items of finished releases.

    Args:
      paths: prefixes of outputs, or their ledgers.
      columns: names and kinds of the item columns of the job.
      insecure: this run is NOT PRIVATE, so that releases of a fixed key will do.

    Raises:
      InputError: there is no such release, its ledger does not verify, its files are not what it wrote or not released
        as a whole, it is NOT PRIVATE, or its items are of another kind.
    """
    parts, ledgers, named = [pa.array([], pa.large_binary())], {}, []
    for prefix, path in {known_prefix(path): path for path in paths}.items():
        ledgers[prefix], text = _checked(prefix, insecure)
        names = (
            prefix,
            ledger_path(prefix),
            *shards_named(prefix, {"parameters": ledgers[prefix].parameters}),
        )
        if local_path(path, FLAG) not in names:
            raise DataError(f"{FLAG}: '{path}' is not the file of '{ledger_path(prefix)}'")
        named.append(named_release(ledgers[prefix], text))
        parts.append(read_items(prefix, columns, FLAG))
    return KnownReleases(pa.chunked_array(parts).unique(), ledgers, named)


def _checked(prefix: str, insecure: bool) -> tuple[Ledger, str]:
    """The ledger of a finished release and its text."""
    path = ledger_path(prefix)
    try:
        text, ledger, statements = read_and_check(path)
    except NoLedgerError as error:
        raise DataError(f"{FLAG}: '{prefix}' is no finished release: {error}") from None
    except (InputError, UnavailableError) as error:
        raise type(error)(f"{FLAG}: {error}") from None
    if ledger is not None:
        if not ledger.private and not insecure:
            raise DataError(f"{FLAG}: '{prefix}' is NOT PRIVATE: a fixed key made it, so its items are data")
        statements += check_outputs(path, ledger, contents=True)
    if wrong := refutation(path, statements):
        raise DataError(f"{FLAG}: {wrong}")
    assert ledger is not None  # else a statement does not hold
    if ledger.release is None or ledger.release.items_released is None:
        raise DataError(f"{FLAG}: '{path}' names no files with their digests, as releases of items do")
    return ledger, text
