"""What is refused of a job's files before anything runs: lists, results, checkpoints, keys."""

from __future__ import annotations

import os
from collections.abc import Sequence

from dpbeam.engine.seal import folder_key
from dpbeam.errors import SettingError
from dpbeam.io.item_lists import has_column, list_files, refuse_input
from dpbeam.io.known import FLAG as KNOWN_FLAG
from dpbeam.io.known import known_prefix
from dpbeam.io.new_files import NewFile
from dpbeam.io.paths import is_pipe, local_path
from dpbeam.io.sources import InputSummary
from dpbeam.io.spec import InputSpec
from dpbeam.jobs.checks import check_test_key
from dpbeam.jobs.console import warn
from dpbeam.jobs.options import JobOptions
from dpbeam.randomness import RunKey

# Flags of lists that are public by declaration.
_PUBLIC = ("public_items", "domain")


def run_key(options: JobOptions) -> RunKey:
    """A fresh key, or the fixed one of --insecure_test_key."""
    if options.insecure_test_key is None:
        return RunKey.fresh()
    check_test_key(options)
    return RunKey.insecure_fixed(options.insecure_test_key.lower())


def lists(options: JobOptions) -> list[str]:
    """Files that a job reads besides its input."""
    names = [name for name in ("public_items", "domain", "supplies") if name in options.said]
    files = [path for name in names for path in list_files(options.said[name], f"--{name}")]
    return files + [
        path for name in options.said.get("known", ()) for path in list_files(known_prefix(name), KNOWN_FLAG)
    ]


def check_public(options: JobOptions, spec: InputSpec, summary: InputSummary) -> None:
    """Refuse the input as its own public list, and doubt one that has users in it.

    Raises:
      InputError: naming the flag.
    """
    for name in _PUBLIC:
        if name not in options.said:
            continue
        refuse_input(options.said[name], f"--{name}", spec.patterns, summary.files)
        if spec.user_column is not None and has_column(options.said[name], f"--{name}", spec.user_column):
            warn(
                f"--{name}: '{options.said[name]}' has the column '{spec.user_column}' of users beside its items; all "
                "its items are taken as public, so it must not come from the data"
            )


def other_files(options: JobOptions) -> dict[str, str]:
    """Files that a job writes besides its output, by their flag."""
    return {value.flag: value for value in options.said.values() if isinstance(value, NewFile)}


def check_counts(options: JobOptions) -> None:
    """Refuse numbers of shards out of range. Raises InputError."""
    for name in ("num_shards", "num_output_shards"):
        value = options.said.get(name)
        if value is not None and not 1 <= value <= 65_536:
            raise SettingError(f"--{name} must be from 1 to 65536, got {value}")


def check_checkpoint(options: JobOptions, spec: InputSpec) -> None:
    """Refuse what a run could not go on with.

    Raises:
      InputError: naming the flag.
    """
    per_job = options.passes_per_job
    if per_job is not None and per_job < 1:
        raise SettingError(f"--passes_per_job must be at least 1, got {per_job}")
    if options.checkpoint is None:
        return
    options.said["checkpoint"] = local_path(options.checkpoint, "--checkpoint")
    if any(map(is_pipe, spec.patterns)):
        raise SettingError("--checkpoint: a pipe cannot be read again; give --input a file")
    if spec.file_format.is_table and spec.table_version is None:
        raise SettingError(
            "--checkpoint: a retry must read the same version of the table; pass --table_version"
        )


def check_encryption(options: JobOptions, patterns: Sequence[str] = ()) -> None:
    """Refuse a run that could not be encrypted.

    Raises:
      InputError: there is no key, or a pipe would be copied as it is.
    """
    if not options.encrypt_intermediates:
        return
    folder_key()
    if any(map(is_pipe, patterns)):
        raise SettingError(
            "--encrypt_intermediates: what comes through a pipe is copied as it is; give --input a file"
        )


def check_files(options: JobOptions, inputs: Sequence[str]) -> None:
    """Refuse files for results that could not be written at the end, or that stand in the way.

    Raises:
      InputError: naming the flag.
    """
    files = [value for value in options.said.values() if isinstance(value, NewFile)]
    for file in files:
        file.check(overwrite=options.overwrite, inputs=inputs)
        if any(os.path.abspath(file) == os.path.abspath(other) for other in files if other is not file):
            raise SettingError(f"{file.flag}: '{file}' is named for another file too; name two files")
