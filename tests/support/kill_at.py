"""A run with an account, killed with SIGKILL at every step that anybody outside can see, and then given again.

The command is `dpbeam select` as it is, but for the pipeline, which writes shards of random lines: what two runs draw
is never the same.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import pathlib
import pickle
import re
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

from dpbeam.accounting.ledger import Ledger
from dpbeam.budget.store import BudgetStore
from dpbeam.cli import main
from dpbeam.engine.beam import owner
from dpbeam.engine.beam.driver import ProgramRun
from dpbeam.io import output
from dpbeam.jobs import running
from dpbeam.storage import FileSystems
from dpbeam.storage.processes import Owner

SHARDS = 2
T = TypeVar("T")
_DRAWN = re.compile(rb"^[0-9a-f]{16}$", re.MULTILINE)
_STEPS = [
    (BudgetStore, "change"),
    *((running, name) for name in ("run_and_wait", "count_released")),
    (output.OutputTarget, "stage"),
    *((output, name) for name in ("write_atomically", "delete_quietly", "remove_folder")),
    *((FileSystems, name) for name in ("rename", "delete")),
]


def draw(*_: object) -> None:
    """Stands for the pipeline: random lines in the staging folder of this process."""
    mine = Owner.this_process()
    for folder in glob.glob("**/*.staging-*", recursive=True):
        if owner.owner_of(folder) == mine:
            for number in range(SHARDS):
                pathlib.Path(folder, f"shard-{number:05}-of-{SHARDS:05}.txt").write_text(
                    os.urandom(8).hex() + "\n"
                )


def stand_in() -> None:
    """From now on `draw` is what a pipeline does, which is not built."""
    ProgramRun.add_to = lambda *_: None
    running.run_and_wait = draw
    running.RunFolder.check = lambda _: SHARDS  # rows of the staged files


def killed_at(step: int) -> None:
    """This process dies before the `step`-th of its steps; what follows the last is the result file's."""
    seen = [0]

    def moment() -> None:
        seen[0] += 1
        if seen[0] == step:
            os.kill(os.getpid(), signal.SIGKILL)

    for where, name in _STEPS:
        setattr(where, name, _around(getattr(where, name), moment))


def _around(function: Callable[..., Any], moment: Callable[[], None]) -> Callable[..., Any]:
    def wrapped(*args: Any, **values: Any) -> Any:
        moment()
        return function(*args, **values)

    return wrapped


def in_child(work: Callable[[], int]) -> int:
    """Exit code of `work` in a process of its own, negative if it was killed."""
    child = os.fork()
    if child == 0:
        code = 99
        with contextlib.suppress(BaseException):
            try:
                code = work()
            except BaseException:
                traceback.print_exc()
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def from_child(work: Callable[[], T]) -> T:
    """What `work` returns in a process of its own. Raises AssertionError if it does not."""
    with tempfile.TemporaryDirectory() as folder:
        told = pathlib.Path(folder, "told")

        def tell() -> int:
            told.write_bytes(pickle.dumps(work()))
            return 0

        assert in_child(tell) == 0
        answer: T = pickle.loads(told.read_bytes())
        return answer


def readable() -> list[str]:
    """Lines that were drawn and that others than the owner can read, wherever they lie."""
    names: set[bytes] = set()
    for folder, folders, files in os.walk("."):
        folders[:] = [name for name in folders if os.stat(f"{folder}/{name}").st_mode & 0o001]
        for name in files:
            if os.stat(f"{folder}/{name}").st_mode & 0o004:
                names |= set(_DRAWN.findall(pathlib.Path(folder, name).read_bytes()))
    return sorted(line.decode() for line in names)


def state(store: str, dataset: str, prefix: str) -> dict[str, Any]:
    """What somebody outside sees: of the account, of the output, and of all else that was drawn."""
    account = BudgetStore(store).account(dataset)
    release = account.releases.get("night")
    kinds = [entry.kind for entry in account.entries]
    shards = {path: pathlib.Path(path).read_text() for path in sorted(glob.glob(f"{prefix}-*.txt"))}
    ledger = pathlib.Path(f"{prefix}.ledger.json")
    if ledger.exists():
        Ledger.from_json(ledger.read_text())
    return {
        "state": release and release.state,
        "charged": kinds.count("reserve") - kinds.count("return"),
        "shards": shards,
        "ledger": ledger.exists() and json.loads(ledger.read_text())["parameters"].get("account"),
        "readable": readable(),
        "left": sorted(glob.glob(f"{prefix}.commit.json")),
    }


def scenario(step: int, store: str) -> dict[str, Any] | None:
    """One release that replaces an output, killed at one step and given twice more; None if the run ended before."""
    name = f"k{step}"
    flags = ["--epsilon=0.5", "--delta=1e-6", f"--output={name}", "--output_format=text", "--quiet"]
    run = ["select", "--input=pairs.csv", "--user_column=u", "--item_column=i", *flags, "--method=basic"]
    charged = [
        *run,
        f"--budget={store}",
        f"--dataset={name}",
        "--release_id=night",
        f"--result_file={name}.json",
        "--overwrite",
    ]
    if step == 1:
        assert in_child(lambda: main([*run, "--output=old"])) == 0
    for path in glob.glob("old[-.]*"):
        shutil.copy(path, name + path.removeprefix("old"))
    before = readable()
    old = {path: pathlib.Path(path).read_text() for path in glob.glob(f"{name}-*.txt")}
    limit = ["--epsilon=0.5", "--delta=1e-6", "--quiet"]  # one release fits, and no other
    assert main(["budget", "create", f"--budget={store}", f"--dataset={name}", *limit]) == 0

    def killed() -> int:
        killed_at(step)
        return main(charged)

    code = in_child(killed)
    if code == 0:
        return None
    outcome = {"step": step, "killed": code, "old": old, "before": before, "after": state(store, name, name)}
    outcome["retry"] = in_child(lambda: main(charged))
    outcome["retried"] = state(store, name, name)
    result = pathlib.Path(f"{name}.json")
    outcome["result"] = json.loads(result.read_text()) if result.exists() else None
    outcome["again"] = in_child(lambda: main(charged))
    outcome["at_last"] = state(store, name, name)
    return outcome


def kills(folder: pathlib.Path, store: str) -> list[dict[str, Any]]:
    """What was seen after a kill at each step. This process works in `folder` from now on, and has no pipelines."""
    os.chdir(folder)
    os.umask(0o022)
    tempfile.tempdir = str(folder)
    stand_in()
    pathlib.Path("pairs.csv").write_text("u,i\na,b\n")
    flags = [
        "--epsilon=0.5",
        "--delta=1e-6",
        "--output=warm",
        "--output_format=text",
        "--quiet",
        "--method=basic",
    ]
    # What this process has loaded and calibrated, its forks have.
    assert main(["select", "--input=pairs.csv", "--user_column=u", "--item_column=i", *flags]) == 0
    for path in glob.glob("warm*"):
        os.remove(path)
    steps: list[dict[str, Any]] = []
    while one := scenario(len(steps) + 1, store):
        steps.append(one)
    return steps
