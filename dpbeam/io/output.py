"""Where the output goes, and when it counts as finished.

Workers write shards into a staging folder, for its owner alone: what is staged is a release that may never be paid for.
It lies beside the output (`PREFIX.staging-ID/`), or on stores that know no owners below --temp_location. After the
pipeline has succeeded, `commit` moves the shards to `PREFIX-00000-of-000NN.EXT`, or the one that is asked for to
`PREFIX.EXT`, and writes `PREFIX.ledger.json` last:
**the ledger is the commit mark**. When older output is replaced, its ledger is removed before anything else. So at
every instant, a ledger stands for a whole, matching set of shards; a crash leaves none. That holds for a power cut too:
all that is staged is on the disk before the first step, and the names of each step before the next (`dpbeam.disk`).
On a store a file that is closed is kept.

Only what dpbeam has written is ever removed. The ledger says how many shards of which format there are, and while a
commit is under way, `PREFIX.commit.json` names the files that it may leave behind. Any other file in the way is an
error, also with `--overwrite`, and so is a file that the run reads, whatever name it was given by.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from dpbeam.accounting.ledger import Ledger
from dpbeam.accounting.release import Release, Shard, as_text
from dpbeam.engine.beam.owner import FILE as OWNER_FILE
from dpbeam.engine.beam.owner import STAGING, mark
from dpbeam.engine.beam.owner import remove as remove_folder
from dpbeam.errors import RunnerError, SettingError, StoreError, complain
from dpbeam.io.files import delete_quietly, identity, write_atomically
from dpbeam.io.lock import hold
from dpbeam.io.new_files import (
    ANOTHERS,
    COMMIT_SUFFIX,
    LEDGER_SUFFIX,
    NOT_PUBLIC,
    OUTPUT_FORMATS,
    check_not_output,
    check_prefix,
    is_anothers,
    output_named,
)
from dpbeam.io.output_formats import SHARD_NAME, shard_name
from dpbeam.io.paths import absolute, is_folder, local_path, scheme_of
from dpbeam.io.patterns import WILDCARDS
from dpbeam.io.released import describe, sha256_of
from dpbeam.storage import FileSystems
from dpbeam.storage.files import Put
from dpbeam.storage.reasons import reason, refusal

_LEDGER = "dpbeam ledger"
_COMMIT = "dpbeam commit"
#: In the staging folder; written when everything else is there.
_STAGED_LEDGER = "ledger.json"


class OutputTarget:
    """The output of one run.

    Args:
      prefix: path prefix of all output files (`--output`).
      format: a key of OUTPUT_FORMATS (`--output_format`).
      overwrite: replace output of an earlier run (`--overwrite`).
      extras: names of further files, `PREFIX.NAME`, which the run puts at `staged_extra` before the commit.
      public: whether the shards are; others are called `PREFIX.not_for_publication-00000-of-000NN.EXT` and, on this
        machine, can be read by their owner alone.
      one_file: there is one shard, and it is called `PREFIX.EXT`, public or not.

    Attributes:
      path: what `--output` says: the prefix, or the one file.
    """

    def __init__(
        self,
        prefix: str,
        format: str = "parquet",
        *,
        overwrite: bool = False,
        extras: Sequence[str] = (),
        public: bool = True,
        one_file: bool = False,
    ):
        if format not in OUTPUT_FORMATS:
            raise SettingError(
                f"--output_format: expected one of {', '.join(OUTPUT_FORMATS)}, got '{format}'"
            )
        prefix = local_path(prefix, "--output")
        if not prefix or prefix.endswith(("/", os.sep)):
            raise SettingError(
                f"--output: '{prefix}' is not a prefix of file names; add a name, for example '{prefix}items'"
            )
        path = f"{prefix}.{OUTPUT_FORMATS[format]}" if one_file else prefix
        if is_folder(path):
            raise StoreError(
                f"--output: '{path}' is a folder; add a name, for example '{os.path.join(path, 'items')}'"
            )
        if scheme_of(prefix) is not None and any(c in prefix for c in WILDCARDS):
            raise SettingError(f"--output: '{prefix}' must not hold wildcards")
        check_prefix(prefix)
        self.prefix, self.path, self.one_file = prefix, path, one_file
        self.format = format
        self.overwrite = overwrite
        self.extras = tuple(extras)
        self.public = public
        self.staging = self._staging(secrets.token_hex(8))
        self.ledger_path = ledger_path(prefix)
        self._journal_path = f"{prefix}{COMMIT_SUFFIX}"
        self._inputs: tuple[str, ...] = ()
        #: For the ledger, with the files of `describe_staged`; `commit` adds the day.
        self.release: Release | None = None

    @classmethod
    def asked(cls, output: str, format: str | None, files: int | None = None, **more: Any) -> OutputTarget:
        """The output that flags ask for.

        Args:
          output: a prefix, or a file with the extension of a format (`--output`).
          format: `--output_format`; None: that of the file, or Parquet.
          files: `--num_output_shards`.
          more: further arguments of the class.

        Raises:
          InputError: the flags contradict each other.
        """
        prefix, named = output_named(output)
        if named is None:
            return cls(output, format or "parquet", **more)
        fix = f"drop it, or give a prefix such as --output={prefix}"
        if format not in (None, named):
            raise SettingError(f"--output_format={format} is not the format of --output={output}: {fix}")
        if files not in (None, 1):
            raise SettingError(f"--num_output_shards={files}: --output={output} is one file: {fix}")
        return cls(prefix, named, one_file=True, **more)

    def resume(self, staging: str, *, is_out: bool) -> None:
        """Go on from what a killed run of the same release has left; what that has put in place is replaced.

        Args:
          staging: ends the name of the staging folder, the same for each run of the release.
          is_out: whether the ledger of this release is in place.
        """
        self.staging = self._staging(staging)
        self.overwrite = is_out or self.can_finish or self.was_begun

    def _staging(self, name: str) -> str:
        return f"{absolute(self.prefix)}.staging-{name}"

    def stage_below(self, temp_location: str) -> None:
        """Stage where run folders lie, on a store that knows no owners of files: its policy closes that place, and that
        of the output is open. Only within one bucket or container, for what is staged is renamed.
        """
        scheme = FileSystems.get_scheme(self.prefix)
        if scheme not in (None, "hdfs") and self.prefix.split("/")[:3] == temp_location.split("/")[:3]:
            name = f"{STAGING}{self.staging.rpartition('-')[2]}"
            self.staging = FileSystems.join(temp_location, name)

    def check(self, inputs: Iterable[str] = (), writes: Mapping[str, str] | None = None) -> None:
        """Refuse early, before any work: files in the way, or a place that cannot be written. Leaves no trace.

        Args:
          inputs: every file that the run reads; `commit` looks at them again.
          writes: other files that the run writes, by their flag.

        Raises:
          InputError: naming `--output`, or the flag of another file.
        """
        self._inputs = tuple(inputs)
        try:
            existing = self.existing()
        except (OSError, ValueError, ImportError) as error:
            message = f"--output: cannot look up '{self.prefix}': {reason(error, self.prefix)}"
            raise refusal(StoreError, message, error) from None
        inputs_read = self._read
        for flag, path in (writes or {}).items():
            if identity(path) in inputs_read:
                raise StoreError(f"{flag}: '{path}' is an input of this run; name another file")
            check_not_output(flag, path, self.path, self.extras)
        self._check_free(existing)
        self._check_writable()

    @property
    def _read(self) -> set[object]:
        """The files that the run reads, whatever names they have (`identity`)."""
        return {identity(name) for name in self._inputs} - {None}

    def check_again(self) -> None:
        """Refuse files that have appeared since `check` and must not be replaced. Raises InputError."""
        self._check_free(self.existing(), running=True)

    def _check_free(self, existing: list[str], *, running: bool = False) -> None:
        """Refuse files that must not be replaced.

        Args:
          running: they have come since `check`.
        """
        if not existing:
            return
        inputs = self._read
        for path in existing:
            if identity(path) in inputs:
                raise StoreError(f"--output: '{path}' is an input of this run; choose another prefix")
        owned = self._owned(existing)
        for path in existing:
            if path not in owned:
                raise StoreError(
                    f"--output: '{path}' is in the way, and no ledger of dpbeam names it; choose another prefix, or "
                    "remove it yourself"
                )
        if not self.overwrite:
            problem = "has appeared during the run" if running else "exists"
            raise StoreError(
                f"--output: '{existing[0]}' {problem}; pass --overwrite to replace it, or another prefix"
            )
        for path in existing:
            if is_anothers(path):
                raise StoreError(f"--output: '{path}' {ANOTHERS}")

    def _owned(self, existing: list[str]) -> set[str]:
        """Those of the existing files that dpbeam has written: as the ledger, or a commit cut short, says."""
        owned = set()
        ledger, journal = read_ledger(self.prefix), _read_json(self._journal_path)
        if ledger is not None:
            owned |= {
                self.ledger_path,
                *shards_named(self.prefix, ledger),
                *_extras_named(self.prefix, ledger),
            }
        if journal is not None and journal.get("format") == _COMMIT:
            owned |= {self._journal_path, *(self.prefix + name for name in journal["files"])}
        return owned & set(existing)

    def _check_writable(self) -> None:
        if scheme_of(self.prefix) is None:
            folder = os.path.dirname(os.path.abspath(self.prefix))
            while not os.path.lexists(folder):
                folder = os.path.dirname(folder)
            if not os.path.isdir(folder):
                raise StoreError(f"--output: cannot write '{self.prefix}': '{folder}' is not a folder")
            if not os.access(folder, os.W_OK | os.X_OK):
                raise StoreError(
                    f"--output: cannot write '{self.prefix}': no permission to write in '{folder}'"
                )
            return
        probe = FileSystems.join(self.staging, "probe")
        try:
            FileSystems.make_folder(self.staging, private=True)
            write_atomically(probe, lambda file: None)
        except (OSError, ValueError) as error:
            raise refusal(
                StoreError, f"--output: cannot write '{self.prefix}': {reason(error)}", error
            ) from None
        finally:
            delete_quietly([probe, self.staging])

    def existing(self) -> list[str]:
        """Files where this output goes: ledger, commit under way, further files, shards of any number and format."""
        further = {f"{self.prefix}.{name}" for name in self.extras} | (
            {self.path} if self.one_file else set()
        )
        ledger = read_ledger(self.prefix)
        if ledger is not None:
            one_file = shards_named(self.prefix, ledger) if _is_one_file(ledger) else []
            further.update(_extras_named(self.prefix, ledger), one_file)
        marks = [self.ledger_path, self._journal_path, *sorted(further)]
        shards = [path for public in (True, False) for path in _shards_of(_stem(self.prefix, public))]
        return [path for path in marks if FileSystems.exists(path)] + shards

    def staged_extra(self, name: str) -> str:
        """Where the run puts a further file."""
        return FileSystems.join(self.staging, f"extra-{name}")

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """Hold the prefix against other runs on this machine, from before a run looks at what is there to its end.

        Raises:
          UnavailableError: another run holds it.
          InputError: nothing can be written there.
        """
        return hold(self.prefix)

    def prepare(self) -> str:
        """Make the staging folder, for its owner alone, with the name of this process in it, and return it.

        Raises:
          InputError, UnavailableError: that fails.
        """
        try:
            FileSystems.make_folder(self.staging, private=True)
            mark(self.staging, strictly=True)  # on a store workers take its absence for the end of the run
        except OSError as error:
            raise refusal(
                StoreError, f"--output: cannot write '{self.prefix}': {reason(error)}", error
            ) from None
        return self.staging

    def commit(self, ledger: Ledger) -> list[str]:
        """Make the staged shards the output; return the final paths, the ledger last.

        The pipeline must have succeeded. The ledger's parameters get `output`: the format and number of shards; and
        the ledger gets `release`, if there is one.

        Raises:
          InputError: files have appeared since `check` that must not be replaced.
          RunnerError: the staged shards are not one whole set.
        """
        self.stage(ledger)
        return self.finish(undo=True)

    def stage(self, ledger: Ledger) -> None:
        """All of a commit that can be refused; nothing leaves the staging folder, and all that is there outlives a
        power cut. Raises as `commit`.
        """
        staged = self.staged_shards()
        self.check_again()
        # What can run out of space comes first: older output is still whole if it does.
        text = self._with_output(ledger, len(staged)).to_json().encode()
        if not self.public:
            for name in staged:
                FileSystems.protect(FileSystems.join(self.staging, f"shard-{name}"))
        write_atomically(self._staged_ledger, lambda file: file.write(text))
        # Whoever wrote them: also a worker that did not flush, or a process that has died.
        FileSystems.flush(self.staging, inside=True, above=True)

    def finish(self, *, undo: bool = False) -> list[str]:
        """Put what is staged in place; return the final paths, the ledger last.

        It may be called again after it was cut short at any step, also by another process with the same `staging`, and
        then goes on.

        Args:
          undo: where a rename fails, leave none of the output, and not what could be gone on from.

        Raises:
          InputError: files are in the way that must not be replaced.
        """
        ledger = _read_json(self._staged_ledger)
        if ledger is None:
            raise RuntimeError(f"'{self.staging}' holds no staged output")
        staged = self._places(ledger)
        finals = list(staged)
        waiting = [final for final in finals if FileSystems.exists(staged[final])]
        existing = self.existing()
        journal = _read_json(self._journal_path)
        if journal is None or journal.get("staging") != os.path.basename(self.staging):
            self._check_free(existing, running=True)
            journal = self._write_journal([*existing, *finals])
        replaced = {self.prefix + name for name in journal["files"]} - (set(finals) - set(waiting))
        # Old ledger first: from here on nothing looks finished until the new one is there.
        for path in existing:
            if path in replaced and path != self._journal_path:
                FileSystems.delete([path])
        self._flush_names()
        try:
            for final in waiting:
                FileSystems.rename(staged[final], final)
            self._flush_names()
            FileSystems.rename(self._staged_ledger, self.ledger_path)
            self._flush_names()
        except OSError:
            if undo:
                delete_quietly([self.ledger_path, *finals, self._journal_path])
            raise
        self.tidy()
        return [*shards_named(self.prefix, ledger), self.ledger_path]

    def _places(self, ledger: Mapping[str, Any]) -> dict[str, str]:
        """Of every file that a ledger stands for: its path, and where it is staged."""
        shards, further = shards_named(self.prefix, ledger), _extras_named(self.prefix, ledger)
        format = ledger["parameters"]["output"]["format"]
        staged = {
            final: FileSystems.join(self.staging, f"shard-{shard_name(number, len(shards), format)}")
            for number, final in enumerate(shards)
        }
        return staged | {final: self.staged_extra(final[len(self.prefix) + 1 :]) for final in further}

    def has_all(self, ledger: Mapping[str, Any]) -> bool:
        """Whether every file that a ledger stands for is staged or in place, and every shard is as the ledger says."""
        for final, staged in self._places(ledger).items():
            path = staged if FileSystems.exists(staged) else final
            if not FileSystems.exists(path) or _is_damaged(path, final, ledger):
                return False
        return True

    def _flush_names(self) -> None:
        """What comes after this step comes after it on the disk too."""
        FileSystems.flush(FileSystems.split(absolute(self.prefix))[0])

    def tidy(self) -> None:
        """Remove what a commit has left once its ledger is in place: the note of it and the staging folder."""
        self._flush_names()  # which a commit that was cut short has not come to
        if self.was_begun:
            delete_quietly([self._journal_path])
        self.abort()
        self._flush_names()  # nothing comes back beside an output that an account calls out

    @property
    def can_finish(self) -> bool:
        """Whether what `finish` needs is there: what a power cut has damaged is not."""
        ledger = _read_json(self._staged_ledger)
        return ledger is not None and self.has_all(ledger)

    @property
    def was_begun(self) -> bool:
        """Whether files may be in place from a commit of this staging folder that was cut short."""
        journal = _read_json(self._journal_path)
        return journal is not None and journal.get("staging") == os.path.basename(self.staging)

    @property
    def _staged_ledger(self) -> str:
        return FileSystems.join(self.staging, _STAGED_LEDGER)

    def _write_journal(self, paths: list[str]) -> dict[str, Any]:
        """Note what a commit may leave behind."""
        names = sorted({path[len(self.prefix) :] for path in paths} - {COMMIT_SUFFIX})
        journal = {"format": _COMMIT, "files": names, "staging": os.path.basename(self.staging)}
        text = json.dumps(journal, indent=2).encode()
        # Whoever dies before it is there leaves nothing beside the output.
        write_atomically(self._journal_path, lambda file: file.write(text), Put(temporary_in=self.staging))
        self._flush_names()
        return journal

    def _with_output(self, ledger: Ledger, shards: int) -> Ledger:
        output: dict[str, Any] = {"format": self.format, "shards": shards}
        if self.extras:
            output["extras"] = list(self.extras)
        if not self.public:
            output["public"] = False
        if self.one_file:
            output["one_file"] = True
        stated = ledger.stating(output=output)
        if self.release is None:
            return stated
        today = datetime.now(UTC).date().isoformat()
        return replace(stated, release=replace(self.release, date=today))

    def staged_shards(self) -> list[str]:
        """Names (`00000-of-00003.parquet`) of the staged shards, checked to be one whole set."""
        prefix = FileSystems.join(self.staging, "shard-")
        names = [path[len(prefix) :] for path in _shards_of(prefix)]
        whole = _is_whole(names) and names[0].endswith(f".{OUTPUT_FORMATS[self.format]}")
        if not whole or (self.one_file and len(names) > 1):
            raise RunnerError(
                f"the runner lost files of the output: '{self.staging}' does not hold one whole set of shards "
                f"({len(names)} found)"
            )
        return names

    def staged_rows(self, counted: int | None = None) -> int:
        """Number of rows of the staged shards.

        Args:
          counted: it, where it is known already.
        """
        if counted is not None:
            return counted
        return count_released(
            [FileSystems.join(self.staging, f"shard-{name}") for name in self.staged_shards()]
        )

    def describe_staged(self, *, contents: bool = True) -> tuple[Shard, ...]:
        """The staged shards under the names that they will have, with what they hold if `contents`."""
        stem = as_text(_stem(os.path.basename(self.prefix), self.public))
        one_file = as_text(os.path.basename(self.path))
        finals = {name: one_file if self.one_file else f"{stem}{name}" for name in self.staged_shards()}
        if not contents:
            return tuple(Shard(final, None, None) for final in finals.values())
        return tuple(
            replace(_described(FileSystems.join(self.staging, f"shard-{name}")), name=final)
            for name, final in finals.items()
        )

    def abort(self) -> None:
        """Remove the staging folder, if any, and say so where it stays."""
        if remove_folder(self.staging) is not None:
            complain(
                f"dpbeam: warning: staged output could not be removed; remove what is left: {self.staging}"
            )


def holds_output(staging: str) -> bool:
    """Whether a staging folder holds more than the name of its process, or may, for it cannot be looked into.

    Raises:
      OSError: a store does not answer.
    """
    try:
        paths = FileSystems.list_prefix(FileSystems.join(staging, ""))
    except PermissionError:
        return True
    return any(FileSystems.split(path)[1] != OWNER_FILE for path in paths)


def may_be_paid(staging: str) -> bool:
    """Whether a staging folder holds a whole release that is charged to an account: a retry finishes or removes it.

    Raises:
      OSError: a store does not answer.
    """
    match _read_json(FileSystems.join(staging, _STAGED_LEDGER)):
        case {"parameters": {"account": dict()}}:
            return True
    return False


def read_ledger(prefix: str) -> dict[str, Any] | None:
    """The ledger of a finished output as plain data, not verified; None if there is none of ours."""
    ledger = _read_json(ledger_path(prefix))
    known = (
        ledger is not None and ledger.get("format") == _LEDGER and isinstance(ledger.get("parameters"), dict)
    )
    return ledger if known else None


def shards_named(prefix: str, ledger: Mapping[str, Any]) -> list[str]:
    """Paths of the shards that a ledger stands for.

    One written before ledgers named them stands for the shards that there are, if these are one whole set.
    """
    output = ledger["parameters"].get("output")
    if output is not None:
        match output:
            case {"shards": int(count), "format": str(format)} if format in OUTPUT_FORMATS:
                if _is_one_file(ledger):
                    return [f"{prefix}.{OUTPUT_FORMATS[format]}"]
                stem = _stem(prefix, _is_public(ledger))
                return [f"{stem}{shard_name(number, count, format)}" for number in range(count)]
        return []
    paths = _shards_of(f"{prefix}-")
    return paths if _is_whole([path[len(prefix) + 1 :] for path in paths]) else []


def damaged(prefix: str) -> str | None:
    """A file of a finished output that is there and is not what was written: its ledger, or a shard; None without."""
    ledger = read_ledger(prefix)
    if ledger is None:
        return ledger_path(prefix) if FileSystems.exists(ledger_path(prefix)) else None
    there = (path for path in shards_named(prefix, ledger) if FileSystems.exists(path))
    return next((path for path in there if _is_damaged(path, path, ledger)), None)


def _is_damaged(path: str, final: str, ledger: Mapping[str, Any]) -> bool:
    """Whether a file is not what a ledger says of it, if it says anything.

    Args:
      final: the path that it has in the finished output.
    """
    name = as_text(FileSystems.split(final)[1])
    match ledger.get("release"):
        case {"outputs": list(shards)}:
            return any(
                shard["sha256"] != sha256_of(path).hex()
                for shard in shards
                if isinstance(shard, dict) and shard.get("name") == name and shard.get("sha256") is not None
            )
    return False


def _stem(prefix: str, public: bool) -> str:
    """How the paths of shards begin."""
    return f"{prefix}{'' if public else NOT_PUBLIC}-"


def _is_public(ledger: Mapping[str, Any]) -> bool:
    return ledger["parameters"]["output"].get("public") is not False


def _is_one_file(ledger: Mapping[str, Any]) -> bool:
    match ledger["parameters"].get("output"):
        case {"one_file": True, "shards": 1, "format": str(format)}:
            return format in OUTPUT_FORMATS
    return False


def _extras_named(prefix: str, ledger: Mapping[str, Any]) -> list[str]:
    """Paths of the further files that a ledger stands for."""
    match ledger["parameters"].get("output"):
        case {"extras": list(names)}:
            return [f"{prefix}.{name}" for name in names if isinstance(name, str) and "/" not in name]
    return []


def ledger_path(prefix: str) -> str:
    """Where the ledger of an output is."""
    return f"{prefix}{LEDGER_SUFFIX}"


def _read_json(path: str) -> dict[str, Any] | None:
    if not FileSystems.exists(path):
        return None
    with FileSystems.open(path) as file:
        try:
            value = json.loads(file.read())
        except ValueError:
            return None
    return value if isinstance(value, dict) else None


def _shards_of(prefix: str) -> list[str]:
    """Sorted paths prefix + `NNNNN-of-NNNNN.EXT`."""
    return [path for path in FileSystems.list_prefix(prefix) if SHARD_NAME.fullmatch(path[len(prefix) :])]


def _is_whole(names: list[str]) -> bool:
    """Whether sorted shard names are one set, of one format, with none missing."""
    matches = [match for name in names if (match := SHARD_NAME.fullmatch(name))]
    sets = {(int(m[2]), m[3]) for m in matches}
    return len(sets) == 1 and [int(m[1]) for m in matches] == list(range(next(iter(sets))[0]))


def count_released(paths: list[str]) -> int:
    """Number of items in finished output files; released, hence public."""
    return sum(_described(path).rows or 0 for path in paths)


def _described(path: str) -> Shard:
    with FileSystems.open(path) as file:
        return describe(file, as_text(FileSystems.split(path)[1]))
