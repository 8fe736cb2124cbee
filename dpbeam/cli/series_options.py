"""The flags of `dpbeam series`, and which verb takes which."""

from __future__ import annotations

from dpbeam.cli.flags import Verbs
from dpbeam.io.new_files import NewFile
from dpbeam.jobs.options import (
    FOLDER,
    READ,
    WRITTEN,
    WRITTEN_PREFIX,
    AccountOptions,
    BudgetOptions,
    ColumnOptions,
    InputOptions,
    Options,
    RunnerOptions,
    SettingFlags,
    flag,
    switch,
)
from dpbeam.series.family import SeriesConfig

EMPTY_NIGHT = "give --empty where nothing came"
NO_PAIRS = f"--input: there is not a single pair; {EMPTY_NIGHT}"


class FolderOptions(Options):
    """Which series, and what to do with it."""

    verb: str | None = flag("VERB", "open, run, erase, show, close", nargs="?", positional=True, common=True)
    folder: str = flag(
        "DIR",
        "private folder of the series, here or on s3://, az:// or hdfs://; required",
        type=FOLDER,
        needed=True,
    )
    encrypt_intermediates: bool = switch(
        "open: encrypt the folder, under the key in DPBEAM_FOLDER_KEY; other verbs: refuse one that is not",
        operational=True,
    )


class WindowOptions(BudgetOptions):
    """A window."""

    group = "window (open)"
    release = SettingFlags(SeriesConfig)
    epsilon: float = flag("EPS", "of all nights together; required", needed=True)
    delta: float = flag("DELTA", "of all nights together; required", needed=True)
    known: str | None = flag(
        "FILE",
        "items that are out already: a list, or a prefix of an output",
        type=READ,
    )
    output: str = flag(
        "PREFIX",
        "ledger PREFIX.ledger.json; nights PREFIX-NIGHT, or of x.parquet x-NIGHT.parquet; required",
        type=WRITTEN_PREFIX,
        needed=True,
        operational=True,
    )
    output_format: str | None = flag("FORMAT", "parquet (default), text, csv or jsonl")
    insecure_test_key: str | None = flag("HEX", "fixed key for tests; the output is NOT PRIVATE")
    users_at_least: int | None = flag(
        "N", "a public number of users (default 1000), for --delta", operational=True
    )
    dry_run: bool = switch("check all, print the plan; nothing is charged", common=True, operational=True)


class NightOptions(InputOptions, RunnerOptions):
    """A night, and what came with it."""

    group = "night (run)"
    night: str = flag("NIGHT", "a number, or a day where --first_night was given", needed=True)
    empty: bool = switch("nothing came on this night; its rounds run all the same", common=True)
    num_shards: int | None = flag(
        "N", "with --runner: partitions of the items (default: from the input)", operational=True
    )
    result_file: NewFile | None = flag(
        "FILE", "how the night ended and what it has released, as JSON", type=WRITTEN, operational=True
    )
    overwrite: bool = switch(
        "replace a --result_file of anything else; what is released never is", operational=True
    )


class EraseOptions(Options):
    """Who is taken out."""

    group = "erase"
    users: str = flag("FILE", "list of users, one per line or Parquet (column user)", type=READ, needed=True)
    user_type: str = flag("TYPE", "string (default), int or bytes", value="string")


class ShowOptions(Options):
    """How a series is shown."""

    json: bool = switch("show: print JSON instead of text")


class SeriesOptions(FolderOptions, WindowOptions, NightOptions, EraseOptions, ShowOptions, AccountOptions):
    """The flags of all verbs."""


VERBS: Verbs = {
    "open": (
        (WindowOptions, ColumnOptions, AccountOptions),
        "fix window and budget, write the window's ledger, and charge the account, once",
    ),
    "run": ((NightOptions,), "make one night: release what is new"),
    "erase": ((EraseOptions,), "take users out of all nights that are still to come"),
    "show": ((ShowOptions,), "nights made, items released, what the window costs"),
    "close": ((), "end the series and remove what its users brought"),
}
