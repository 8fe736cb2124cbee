"""`dpbeam series`, each command killed with SIGKILL at every step that others can see, and then given again.

    python -m tests.support.kill_series FOLDER [engine] [kinds|some] paused|COMMAND...

With `engine` the nights are made on one, in threads of the command's process. A step is whatever changes a file or a
folder, as the interpreter's audit events tell, and the rounds of a night in one process. With `kinds` a command is
killed at the first step of each kind alone in the series' folder, with `some` at every third of these: a kind is an
event and a name without its numbers, and all that goes with a folder that is removed is one. Prints a JSON list with
what was there after each. `paused` stops the process of a night there instead, while another one makes the same night.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from dpbeam.budget.store import BudgetStore
from dpbeam.cli import main
from dpbeam.io.lock import LOCK_SUFFIX
from dpbeam.series import window as window_module
from tests.support.kill_at import in_child

_CHANGES = ("os.rename", "os.remove", "os.link", "os.mkdir", "os.rmdir")
_NUMBER = re.compile(r"[0-9a-f]{8,}|\d+")  # of attempts, temporary files, parts, rounds
_MOVES = ("os.rename", "os.link")
_REMOVALS = ("os.remove", "os.rmdir")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
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
    "again": [*_RUN, "--night=1", "--input=n1.csv"],  # one file of the night is gone
    "erase": ["erase", "--folder=f", "--users=users.txt"],
    "second": ["run", "--folder=f", "--night=2", "--empty"],
    "third": [*_RUN, "--night=3", "--input=n3.csv"],
    "close": ["close", "--folder=f"],
}
#: Added to the nights.
ENGINE = ["--runner=FnApiRunner", "--num_shards=2"]
LOST = "out/items-1-00000-of-00001.parquet"


def at_step(step: int, moment: Callable[[], None]) -> None:
    """From now on `moment` happens before the `step`-th step of this process."""
    numbers = itertools.count(1)
    watch(lambda _: moment() if next(numbers) == step else None)


def watch(look: Callable[[str], None]) -> None:
    """From now on `look` gets the kind of every step of this process, before it happens."""
    here = os.getcwd()

    def audited(event: str, arguments: tuple[Any, ...]) -> None:
        changes = event in _CHANGES or (event == "open" and arguments[2] & _WRITES)
        if changes and isinstance(arguments[0], str) and os.path.abspath(arguments[0]).startswith(here):
            inside = event in _REMOVALS and arguments[-1] != -1  # relative to a folder that is removed
            shown = arguments[1] if event in _MOVES else arguments[0]  # the name that appears
            name = "f/..." if inside else os.path.relpath(shown, here)
            look(f"{event} {_NUMBER.sub('N', name)}")

    rounds = window_module.run_kept

    def run_kept(*arguments: Any) -> Any:
        look("rounds")
        made = rounds(*arguments)
        look("rounds are made")
        return made

    window_module.run_kept = run_kept
    sys.addaudithook(audited)


def die_at(step: int | str) -> None:
    """This process is killed before a step: one by its number, or the first of a kind."""
    if isinstance(step, int):
        at_step(step, killed)
    else:
        watch(lambda kind: killed() if kind == step else None)


def kinds_of(name: str) -> list[str]:
    """The kinds of steps of a command in the series' folder, in the order of their first."""
    with tempfile.TemporaryFile() as seen:
        assert run(name, lambda: watch(lambda kind: _add(seen.fileno(), kind))) == 0
        seen.seek(0)
        kinds = dict.fromkeys(seen.read().decode().splitlines())
        return [kind for kind in kinds if " f/" in kind]


def _add(file: int, line: str) -> None:
    os.write(file, f"{line}\n".encode())


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def run(name: str, begin: Callable[[], None] = lambda: None) -> int:
    """Exit code of a command in a process of its own."""

    def work() -> int:
        begin()
        return main(["series", *COMMANDS[name], "--quiet"])

    return in_child(work)


def look() -> dict[str, Any]:
    """Files of the series and of its output; of the account what was charged.

    Parts of a state have names that no two runs share: they are counted, and the state stands for what they hold.
    """
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
            elif path.name.startswith("part-"):
                part = "f/part-" + path.name.split("-", 2)[2]
                files[part] = files.get(part, 0) + 1
            elif path.is_file():
                files[str(path)] = path.read_bytes().hex()
            elif path.is_dir():
                files[str(path)] = "folder"
    if any(name.startswith("f/part-") for name in files):
        window = window_module.SeriesWindow.load("f")
        if (made := window.snapshot).parts is not None:
            whole = replace(made, state=window.whole(made), parts=None)
            files[f"f/state-{made.number:08}"] = whole.to_bytes().hex()
    account = BudgetStore("acc.db").account("logs")
    charged = [entry.kind for entry in account.entries if entry.kind == "reserve"]
    return {"files": files, "charged": len(charged)}


def items() -> list[Any]:
    """What the first night has released."""
    import pyarrow.parquet as pq

    return pq.read_table("out/items-1.released.parquet").to_pylist()


def save(folder: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder)
    for name in ("f", "out"):
        if os.path.exists(name):
            shutil.copytree(name, f"{folder}/{name}")
    shutil.copy("acc.db", folder)


def restore(folder: str) -> None:
    for name in ("f", "out"):
        shutil.rmtree(name, ignore_errors=True)
        if os.path.exists(f"{folder}/{name}"):
            shutil.copytree(f"{folder}/{name}", name)
    shutil.copy(f"{folder}/acc.db", "acc.db")


def differ(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Files in which two looks differ, and whether their charges do."""
    files, others = one["files"], other["files"]
    names = [name for name in {**files, **others} if files.get(name) != others.get(name)]
    return sorted(names) + ["charged"] * (one["charged"] != other["charged"])


def kills(wanted: Sequence[str], *, by_kind: int) -> list[dict[str, Any]]:
    """Every step of these commands, or the first of each kind, or of every `by_kind`-th one."""
    steps: list[dict[str, Any]] = []
    save("before-open")
    for name in COMMANDS:  # undisturbed
        if name == "again":
            os.remove(LOST)
        save(f"before-{name}")
        before = look()
        assert run(name) == 0
        undisturbed = look()
        if name == "open" or name not in wanted:
            continue
        restore(f"before-{name}")
        for step in kinds_of(name)[::by_kind] if by_kind else itertools.count(1):
            restore(f"before-{name}")
            code = run(name, functools.partial(die_at, step))
            if code >= 0 and not by_kind:
                assert code == 0
                break
            after = look()
            steps.append(
                {
                    "command": name,
                    "step": step,
                    "killed": code,
                    "appeared": differ(before, after),
                    "retry": run(name),
                    "differs": differ(undisturbed, look()),
                    "charged": look()["charged"],
                }
            )
        assert differ(undisturbed, look()) == []
    return steps + (openings(items()) if "open" in wanted else [])


def openings(expected: list[Any]) -> list[dict[str, Any]]:
    """Every step of an opening: its series has a name of its own, and the same first night."""
    steps: list[dict[str, Any]] = []
    for step in itertools.count(1):
        restore("before-open")
        code = run("open", functools.partial(at_step, step, killed))
        if code >= 0:
            assert code == 0
            break
        appeared = sorted(look()["files"])
        codes = [run("open"), run("first")]
        steps.append(
            {
                "command": "open",
                "step": step,
                "killed": code,
                "appeared": appeared,
                "retry": max(codes),
                "differs": [] if items() == expected else ["items"],
                "charged": look()["charged"],
            }
        )
    return steps


def pauses() -> list[dict[str, Any]]:
    """A night that stands still at every step while another process makes it."""
    steps: list[dict[str, Any]] = []
    assert run("open") == 0
    save("before-first")
    assert run("first") == 0
    undisturbed, step = look(), 0
    while True:
        step += 1
        restore("before-first")
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                at_step(step, lambda: os.kill(os.getpid(), signal.SIGSTOP))
                os._exit(main(["series", *COMMANDS["first"], "--quiet"]))
            os._exit(99)
        _, status = os.waitpid(child, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            assert os.waitstatus_to_exitcode(status) == 0
            return steps
        other = run("first")
        os.kill(child, signal.SIGCONT)
        first = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        steps.append({"step": step, "first": first, "other": other, "differs": differ(undisturbed, look())})


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
    for name in (
        "open",
        "first",
        "erase",
        "close",
    ):  # what this process has loaded and calibrated, its forks have
        command = [word.replace("acc.db", "warm.db") for word in COMMANDS[name]]
        assert main(["series", *command, "--quiet"]) == 0
    for folder in ("f", "out"):
        shutil.rmtree(folder)
    os.remove("warm.db")
    assert main(["budget", "create", "--budget=acc.db", "--dataset=logs", *limit]) == 0


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    prepare()
    words = sys.argv[2:]
    if words[0] == "engine":
        # Forks have it; no pipeline runs here, since they would not have its threads.
        import dpbeam.cli.series_engine  # noqa: F401

        words = words[1:]
        for command in COMMANDS.values():
            command.extend(ENGINE if command[0] == "run" else [])
    if words == ["paused"]:
        print(json.dumps(pauses()))
    else:
        by_kind = {"kinds": 1, "some": 3}.get(words[0], 0)
        print(json.dumps(kills(words[by_kind > 0 :], by_kind=by_kind)))
