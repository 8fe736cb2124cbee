"""The commands of a series from its opening to its end, and what stands after each."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
from typing import Any

from dpbeam.budget.store import BudgetStore
from dpbeam.cli import main
from dpbeam.io.lock import LOCK_SUFFIX

_ACCOUNT = ["--budget=acc.db", "--dataset=logs", "--release_id=november", "--charge_test_key"]
_WINDOW = [
    "--nights=3",
    "--epsilon=4",
    "--delta=1e-3",
    "--preset=toward-end",
    "--known=known.txt",
    "--noisy_counts",
]
_RUN = ["run", "--folder=f", "--user_column=user", "--item_column=item"]
#: Name -> the command, in their order.
COMMANDS = {
    "open": ["open", "--folder=f", "--output=out/items", "--insecure_test_key=ab", *_WINDOW, *_ACCOUNT],
    "first": [*_RUN, "--night=1", "--input=n1.csv"],
    "erase": ["erase", "--folder=f", "--users=users.txt"],
    "second": ["run", "--folder=f", "--night=2", "--empty"],
    "third": [*_RUN, "--night=3", "--input=n3.csv"],
    "close": ["close", "--folder=f"],
}


def look() -> dict[str, Any]:
    """Files of the series and of its output; of the account what was charged."""
    files: dict[str, Any] = {}
    for folder in ("f", "out"):
        for path in sorted(pathlib.Path(folder).rglob("*")):
            # Of the note of a commit, which has names alone; and the empty files of locks.
            if path.name.startswith(".tmp-") or path.name.endswith(LOCK_SUFFIX) or str(path) == "f/lock":
                continue
            if path.suffix == ".json" and folder == "out" and "staging" not in str(path):
                ledger = json.loads(path.read_text())
                ledger.pop("release", None)  # it has the time of the run
                files[str(path)] = json.dumps(ledger, sort_keys=True)
            elif path.is_file():
                files[str(path)] = path.read_bytes().hex()
            elif path.is_dir():
                files[str(path)] = "folder"
    account = BudgetStore("acc.db").account("logs")
    charged = [entry.kind for entry in account.entries if entry.kind == "reserve"]
    return {"files": files, "charged": len(charged)}


def items() -> list[Any]:
    """What the first night has released."""
    import pyarrow.parquet as pq

    return pq.read_table("out/items-1.released.parquet").to_pylist()


def differ(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Files in which two looks differ, and whether their charges do."""
    files, others = one["files"], other["files"]
    names = [name for name in {**files, **others} if files.get(name) != others.get(name)]
    return sorted(names) + ["charged"] * (one["charged"] != other["charged"])


def prepare() -> None:
    rows = [
        [f"u{user},i{(user * k + night) % 23}" for user in range(200) for k in (0, 1, 7)] for night in (1, 3)
    ]
    for night, lines in zip((1, 3), rows):
        pathlib.Path(f"n{night}.csv").write_text("\n".join(["user,item", *lines]) + "\n")
    pathlib.Path("known.txt").write_text("i1\ni2\n")
    pathlib.Path("users.txt").write_text("u1\nu7\n")
    limit = ["--epsilon=4", "--delta=1e-3", "--quiet"]  # one window fits, and no other
    assert main(["budget", "create", "--budget=warm.db", "--dataset=logs", *limit]) == 0
    for name in ("open", "first", "erase", "close"):  # what this process has loaded, its forks have
        command = [word.replace("acc.db", "warm.db") for word in COMMANDS[name]]
        assert main(["series", *command, "--quiet"]) == 0
    for folder in ("f", "out"):
        shutil.rmtree(folder)
    os.remove("warm.db")
    assert main(["budget", "create", "--budget=acc.db", "--dataset=logs", *limit]) == 0
