"""The flags of `dpbeam series`, and which verb takes which."""

from __future__ import annotations

from dpbeam.io.new_files import NewFile
from dpbeam.jobs.options import (
    FOLDER,
    READ,
    WRITTEN,
    WRITTEN_PREFIX,
    AccountOptions,
    BudgetOptions,
    InputOptions,
    Options,
    RunnerOptions,
    flag,
    switch,
)

ENCRYPT = "encrypt_intermediates"
EMPTY_NIGHT = "give --empty where nothing came"
NO_PAIRS = f"--input: there is not a single pair; {EMPTY_NIGHT}"
#: Flags that are fields of `SeriesConfig`.
WINDOW = ("epsilon", "delta", "nights", "preset", "max_items_per_user", "first_night")
_ACCOUNT = ("budget", "dataset", "release_id", "budget_period", "charge_test_key")
_INPUT = (
    *("input", "input_format", "input_layout", "user_column", "item_column", "item_type", "on_null"),
    *("on_bad_row", "csv_multiline", "lowercase", "text_layout", "tokenizer", "token_pattern", "ngrams"),
    *("user", "language", "http_status", "csv_delimiter", "partition", "table_version"),
)
#: Verb -> (its flags beside those of all, one line of help).
VERBS = {
    "open": (
        (
            *WINDOW,
            *_ACCOUNT,
            *("output", "output_format", "known", "item_column", "item_type", "user_column"),
            *("insecure_test_key", "users_at_least", "dry_run", "noisy_counts", "noisy_count_share"),
        ),
        "fix window and budget, write the window's ledger, and charge the account, once",
    ),
    "run": (
        ("night", "empty", "num_shards", "untested_runner", "result_file", "overwrite", *_INPUT),
        "make one night: release what is new",
    ),
    "erase": (("users", "user_type"), "take users out of all nights that are still to come"),
    "show": (("json",), "nights made, items released, what the window costs"),
    "close": ((), "end the series and remove what its users brought"),
}


class FolderOptions(Options):
    """Which series, and what to do with it."""

    verb: str | None = flag("VERB", ", ".join(VERBS), nargs="?", positional=True, common=True)
    folder: str = flag(
        "DIR",
        "private folder of the series, here or on s3://, az:// or hdfs://; required",
        type=FOLDER,
        needed=True,
    )
    encrypt_intermediates: bool = switch(
        "open: encrypt the folder, under the key in DPBEAM_FOLDER_KEY; other verbs: refuse one that is not",
    )


class WindowOptions(Options):
    """A window."""

    group = "window (open)"
    epsilon: float = flag("EPS", "of all nights together; required", needed=True)
    delta: float = flag("DELTA", "of all nights together; required", needed=True)
    nights: int = flag("T", "how many nights the window has; required", needed=True)
    preset: str | None = flag(
        "NAME", "steady, balanced (default), toward-end or last-night: when most is spent", common=True
    )
    max_items_per_user: int | None = flag("D0", "items of a user that count over all nights", common=True)
    first_night: str | None = flag(
        "DAY", "nights are days from this one on (default: numbers from 1)", common=True
    )
    noisy_counts: bool = switch("with every released item a noisy number of the users that held it then")
    noisy_count_share: float | None = flag("SHARE", "share of the budget for --noisy_counts (default 0.2)")
    known: str | None = flag(
        "FILE",
        "items that are out already: a list, or a prefix of an output",
        type=READ,
    )
    output: str = flag(
        "PREFIX",
        "ledger PREFIX.ledger.json; each night at PREFIX-NIGHT; required",
        type=WRITTEN_PREFIX,
        needed=True,
    )
    output_format: str = flag("FORMAT", "parquet (default), text, csv or jsonl", value="parquet")
    insecure_test_key: str | None = flag("HEX", "fixed key for tests; the output is NOT PRIVATE")
    users_at_least: int | None = flag("N", "a public number of users (default 1000), for --delta")
    dry_run: bool = switch("check all, print the plan; nothing is charged", common=True)


class NightOptions(Options):
    """A night."""

    group = "night (run)"
    night: str = flag("NIGHT", "a number, or a day where --first_night was given", needed=True)
    empty: bool = switch("nothing came on this night; its rounds run all the same", common=True)
    num_shards: int | None = flag("N", "with --runner: partitions of the items (default: from the input)")
    result_file: NewFile | None = flag(
        "FILE", "how the night ended and what it has released, as JSON", type=WRITTEN
    )
    overwrite: bool = switch("replace a --result_file of anything else; what is released never is")


class EraseOptions(Options):
    """Who is taken out."""

    group = "erase"
    users: str = flag("FILE", "list of users, one per line or Parquet (column user)", type=READ, needed=True)
    user_type: str = flag("TYPE", "string (default), int or bytes", value="string")
    json: bool = switch("show: print JSON instead of text")


class SeriesOptions(
    FolderOptions,
    WindowOptions,
    NightOptions,
    InputOptions,
    EraseOptions,
    BudgetOptions,
    AccountOptions,
    RunnerOptions,
):
    """The flags of all verbs."""
