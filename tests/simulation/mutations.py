"""Faults that dpbeam once had, or that somebody could make, put back: how many seeds it takes to see each."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from dpbeam import disk
from dpbeam.engine import program
from dpbeam.engine.beam import block_stages, graph, receipts
from dpbeam.io import output
from dpbeam.jobs import charged, checkpoint, leftovers
from dpbeam.jobs.options import Options
from dpbeam.series.folder import Folder
from dpbeam.storage import local
from dpbeam.storage.files import PLAIN, Put


def _nothing(*_: Any, **__: Any) -> None:
    """What a step does that is left out."""


def _ledger_first(target: output.OutputTarget, **_: Any) -> list[str]:
    target_ledger = output._read_json(target._staged_ledger)
    staged = target._places(target_ledger)
    target._write_journal(list(staged))
    output.FileSystems.rename(target._staged_ledger, target.ledger_path)
    for final in staged:
        output.FileSystems.rename(staged[final], final)
    target.tidy()
    return [*staged, target.ledger_path]


def _out_before_paid(charge: charged.RunCharge, target: output.OutputTarget, ledger: Any) -> list[str]:
    target.stage(ledger.stating(account=charge._mark(charge._attempt)))
    paths = target.finish()
    places = {name: output.absolute(getattr(target, name)) for name in ("prefix", "staging")}
    said = {"format": target.format, "overwrite": target.overwrite, "extras": list(target.extras), **places}
    change = charge.store.change
    change(
        charge._dataset, lambda a: a.publish(charge._id, charge._attempt, said, ledger.to_json()), charge._by
    )
    charge._commit()
    return paths


def _new_charge(
    account: Any, release: str, digest: str, charge: Any, holder: Any, ledger: str, lives: Any
) -> Any:
    """Forgets that an earlier attempt has paid."""
    before = account.releases.get(release)
    if before is not None and before.state in ("publishing", "committed"):
        return None
    details = {"digest": digest, "charge": charge.to_details(), "holder": dict(holder)}
    return charged.Draft("reserve", release, details, ledger)


def _publish(account: Any, release: str, attempt: int, said: Any, ledger: str) -> Any:
    return charged.Draft("publish", release, {"output": dict(said)}, ledger)


def _open_folder(self: Any, path: str, *, private: bool = False) -> None:
    os.makedirs(path, exist_ok=not private)


def _open_file(self: Any, path: str, how: Put = PLAIN) -> disk.Writer:
    return disk.Writer(path, durable=how.durable, temporary_in=how.temporary_in)


def _overwritten(folder: Any, name: str, data: bytes) -> None:
    with folder._files.put(folder._at(name), Put(private=True)) as file:
        file.write(data)


def _but_columns(options: Options) -> dict[str, Any]:
    return {name: value for name, value in _identifying(options).items() if not name.endswith("_column")}


#: Name -> (what is wrong, what is put in place of what).
MUTATIONS: dict[str, tuple[str, list[tuple[Any, str, Any]]]] = {
    "mixed inputs": (
        "blocks are not bound to their input: one shard draws for it, another for what replaced it",
        [(block_stages, "bind_block", _nothing), (graph, "bind_block", _nothing)],
    ),
    "noise not bound": (
        "nothing is bound: a step made again on other data draws the same noise",
        [(program.Keys, "bind", _nothing)],
    ),
    "resumed on other data": (
        "a checkpoint's run goes on whatever has become of its input",
        [(checkpoint.RunIdentity, "kept", classmethod(lambda cls, store: _any_identity(store)))],
    ),
    "resumed under other columns": (
        "what was begun goes on with other columns of users and items",
        [
            (Options, "identifying", property(_but_columns)),
            (checkpoint.RunIdentity, "of", classmethod(lambda cls, *run: _of(cls, *run[:3], "", run[4]))),
        ],
    ),
    "staged and drawn again": (
        "what an earlier attempt has staged is left where it is, beside a release with other noise",
        [(charged, "staged_by", lambda account, release_id: [])],
    ),
    "cleaned before the retry": (
        "clean removes a staged release that is paid for and not yet out",
        [(leftovers, "may_be_paid", lambda staging: False)],
    ),
    "open to others": (
        "the private folder and what is staged can be read by others",
        [
            (local.LocalFiles, "make_folder", _open_folder),
            (local.LocalFiles, "put", _open_file),
            (local.LocalFiles, "protect", _nothing),
        ],
    ),
    "not flushed": (
        "a power cut takes what was said to be published",
        [(local, "flush", _nothing), (local, "flush_folders", _nothing), (disk, "flush", _nothing)],
    ),
    "names not flushed": (
        "the account hears of files whose names are not on the disk",
        [(output.OutputTarget, "_flush_names", _nothing)],
    ),
    "ledger first": (
        "the ledger, the mark of a whole output, comes before its shards",
        [(output.OutputTarget, "finish", _ledger_first)],
    ),
    "out before it is paid": (
        "the output is in place before the account says so",
        [(charged.RunCharge, "publish", _out_before_paid)],
    ),
    "charged again": (
        "a retry does not know that an earlier attempt has paid",
        [(charged.Account, "reserve", _new_charge)],
    ),
    "two at once": (
        "a run takes over from one that lives, and the account lets both publish",
        [
            (charged, "lives", lambda holder: False),
            (output, "hold", lambda prefix: contextlib.nullcontext()),
            (charged.Account, "publish", _publish),
        ],
    ),
    "two nights at once": (
        "nobody is alone with a series, and a state replaces another of its number",
        [
            (Folder, "alone", lambda folder: contextlib.nullcontext()),
            (Folder, "write", _overwritten),
            (output, "hold", lambda prefix: contextlib.nullcontext()),
        ],
    ),
    "no receipts": (
        "what the runner loses nobody misses",
        [(receipts, "_same", _nothing)],
    ),
}


def _any_identity(kept: Any) -> Any:
    class Any_(checkpoint.RunIdentity):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None

    identity = _kept(kept)
    return identity and Any_(identity.settings, identity.files)


_identifying: Callable[[Options], dict[str, Any]] = Options.identifying.fget
_kept: Callable[[Any], Any] = checkpoint.RunIdentity.kept
_of: Callable[..., Any] = checkpoint.RunIdentity.of.__func__


@contextlib.contextmanager
def mutated(name: str) -> Iterator[None]:
    """Within, dpbeam has a fault."""
    with contextlib.ExitStack() as changed:
        for where, what, instead in MUTATIONS[name][1]:
            changed.enter_context(mock.patch.object(where, what, instead))
        yield
