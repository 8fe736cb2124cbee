"""The audit through the real command: what `dpbeam select` shows to anybody, on small neighbouring files.

`dpbeam_lab.audit.audit` looks into programs as they run in process. Here nothing is looked into: files go in, the
command runs on Beam under fixed keys, and every byte that comes out is held against two claims.

- *Side channels*: what a run shows is a function of its released set and the settings. Over all keys, S and S',
  runs that release the same set must be equal in everything else: names, number, modes and bytes of files, ledger,
  lines on both streams, exit code; and nothing stays behind in the temporary folder. The same rows in another order,
  under the same key, change nothing at all.
- *Released sets*: P(E) - e^eps Q(E) <= delta, by Clopper-Pearson bounds on one half of the trials for events chosen on
  the other; copies of a small input in one file are the trials, as in `dpbeam_lab.audit.neighbours`. For noise
  that hardly depends on the key, copies are not trials: there E is "this copy releases what it released under the
  first key", over the other keys.

Times are no part of it (they are not protected): "elapsed" lines and the times in ledgers are blanked, and so is the
code's revision in ledgers.
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import SelectionPlan, make_plan
from dpbeam.selection.shown import as_typed
from dpbeam_lab.audit.audit import Finding
from dpbeam_lab.audit.confidence import event_excess, proportion_bounds
from dpbeam_lab.audit.methods import study
from dpbeam_lab.audit.neighbours import Neighbours, all_novel
from dpbeam_lab.audit.worst_cases import worst_cases
from dpbeam_lab.tables import markdown_table

Rows = list[tuple[str, str]]
Main = Callable[[list[str]], int]
"""`dpbeam.cli.main`, which stands above the lab: a command line -> its exit code."""

_ELAPSED = re.compile(r"^elapsed: .*$", re.MULTILINE)
# Of the checkout that runs; a commit in the midst of an audit is no side channel.
_REVISION = re.compile(rb'"code_revision": "[^"]*"')
_TIMES = re.compile(rb'"(date|started)": "[^"]*"')
_OFTEN = 60  # users of an item that is released for sure at the audit's budgets
_MANY = 1_000  # items of a newcomer that only a side channel could tell of


@dataclass(frozen=True)
class RunOutcome:
    """All that one run shows.

    Attributes:
      released: the released items; empty where there is no output.
      rest: what -> bytes or text, for everything but the released items; output files are part of it.
      left: what lies in the temporary folder afterwards.
    """

    released: frozenset[str]
    rest: Mapping[str, Any]
    left: tuple[str, ...]


@dataclass(frozen=True)
class EndToEnd:
    """What the audit of one method through the command found.

    Attributes:
      runs: of the command.
      compared: pairs of a run on S and one on S' that released the same set, and so could be compared.
      leaks: one line per side channel; what differs, never how.
      findings: divergences of released sets.
    """

    runs: int
    compared: int
    leaks: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """Nothing refutes the claim, and something could have."""
        return self.compared > 0 and not self.leaks and not any(f.violated for f in self.findings)

    @property
    def worst(self) -> Finding:
        """The finding about released sets with the largest estimate."""
        return max((f for f in self.findings if f.kind == "released set"), key=lambda f: f.estimate)


class Command:
    """Runs `dpbeam select` on rows, always under the same paths, and takes down all that it shows.

    Args:
      main: the command line.
      folder: an empty folder that exists.
      flags: besides input, output, key and temporary folder.
    """

    def __init__(self, main: Main, folder: str, flags: Sequence[str]):
        self._main, self._folder, self._flags = main, Path(folder), tuple(flags)
        self.runs = 0

    def run(self, rows: Rows, key: str) -> RunOutcome:
        """One run under a fixed key, as hexadecimal digits."""
        self.runs += 1
        for child in self._folder.iterdir():
            shutil.rmtree(child) if child.is_dir() else child.unlink()
        temp, out = self._folder / "temp", self._folder / "out"
        temp.mkdir()
        out.mkdir()
        source = self._folder / "pairs.csv"
        source.write_text("".join(f"{user},{item}\n" for user, item in [("user", "item"), *rows]))
        argv = [
            "select",
            f"--input={source}",
            "--user_column=user",
            "--item_column=item",
            f"--output={out / 'items'}",
            f"--temp_location={temp}",
            f"--insecure_test_key={key}",
            "--allow_empty",  # without it an input of nobody is refused, which shows
            *self._flags,
        ]
        code, stdout, stderr = _call(self._main, argv)
        files = {name: data for name, data in _tree(self._folder) if name not in ("pairs.csv", "temp", "out")}
        left = tuple(sorted(name for name in files if name.startswith("temp/")))
        rest = {
            "exit code": code,
            "stdout": _ELAPSED.sub("elapsed", stdout),
            "stderr": _ELAPSED.sub("elapsed", stderr),
            "names of files": sorted(files),
            **{f"file {name}": data for name, data in files.items()},
        }
        return RunOutcome(_released(out), rest, left)


def _call(main: Main, argv: list[str]) -> tuple[int, str, str]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    stdout, stderr = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
            code = main(argv)
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    return code, stdout.getvalue(), stderr.getvalue()


def _tree(folder: Path) -> Iterator[tuple[str, tuple[int, bytes]]]:
    """Relative path -> (mode, bytes) of every file and folder below."""
    for path in sorted(folder.rglob("*")):
        data = path.read_bytes() if path.is_file() else b""
        if path.name.endswith(".ledger.json"):
            data = _TIMES.sub(rb'"\1": ""', _REVISION.sub(b'"code_revision": ""', data))
        yield str(path.relative_to(folder)), (path.lstat().st_mode, data)


def _released(out: Path) -> frozenset[str]:
    items: set[str] = set()
    for path in out.glob("items-*-of-*.parquet"):
        items.update(pq.read_table(path).column("item").to_pylist())
    return frozenset(items)


def audit_command(
    main: Main,
    method: str,
    folder: str,
    *,
    keys: int,
    copies: int,
    settings: Mapping[str, Any],
    more: Sequence[str] = (),
    alpha: float = 1e-6,
    statistics: bool = True,
    cases: Sequence[Neighbours] | None = None,
) -> EndToEnd:
    """Audit `dpbeam select --method=METHOD`.

    Args:
      main: the command line.
      folder: an empty folder that exists, for all files.
      keys: fixed keys that every input is run under.
      copies: of each hard case in one file.
      settings: fields of a `SelectionConfig`, with epsilon and a large delta.
      more: further flags; --num_shards=2 takes small inputs through the engine's rounds, which run in one step else.
      alpha: probability that a divergence is reported of a program that keeps its claim.
      statistics: false: side channels only.
      cases: inputs for side channels; None: `telling_cases()`.

    Raises:
      ValueError: fewer than two keys: noise that repeats itself could not be seen.
    """
    if keys < 2:
        raise ValueError(f"keys must be at least 2, got {keys}")
    plan = make_plan(SelectionConfig(method=method, **settings))
    command = Command(main, folder, [*as_typed({"method": method, **settings}).split(), *more])
    names = [f"{number:02x}" for number in range(keys)]
    leaks: dict[str, None] = {}
    compared = 0
    for case in telling_cases() if cases is None else cases:
        compared += _compare(case, command, names if case.others else names[:1], leaks)
    findings = _frequencies(plan, command, names, copies, alpha, leaks) if statistics else ()
    return EndToEnd(command.runs, compared, tuple(leaks), tuple(findings))


def telling_cases() -> list[Neighbours]:
    """Inputs that release the same set with and without the newcomer, mostly."""
    popular = tuple((0, 1, 2) for _ in range(_OFTEN))
    return [
        Neighbours("nobody", (), (0,)),
        Neighbours("a heavy user beside popular items", popular, tuple(range(_MANY))),
    ]


def _compare(case: Neighbours, command: Command, keys: Sequence[str], leaks: dict[str, None]) -> int:
    """Add to `leaks` what differs between runs that release the same; returns how many of S met one of S'."""
    groups: dict[frozenset[str], list[tuple[bool, RunOutcome]]] = defaultdict(list)
    for key in keys:
        for there in (False, True):
            shown = command.run(rows_of([case], 1, with_newcomer=there), key)
            groups[shown.released].append((there, shown))
            if shown.left:
                leaks[f"{case.name}: files stay behind in the temporary folder"] = None
            if shown.rest["exit code"]:
                leaks[f"{case.name}: exit code {shown.rest['exit code']}"] = None
    for runs in groups.values():
        first = runs[0][1].rest
        for _, shown in runs[1:]:
            for what in sorted({*first, *shown.rest}):
                if first.get(what) != shown.rest.get(what):
                    leaks[f"{case.name}: {what} differs under equal released items"] = None
    met = [[there for there, _ in runs] for runs in groups.values()]
    return sum(min(sides.count(True), sides.count(False)) for sides in met)


def rows_of(cases: Sequence[Neighbours], copies: int, *, with_newcomer: bool) -> Rows:
    """Rows of all copies of all cases; a case has users and items of its own."""
    rows: Rows = []
    for number, case in enumerate(cases):
        users, items = case.pairs(copies, with_newcomer=with_newcomer)
        named = zip(users.tolist(), items.tolist())
        rows += [(f"u{number}.{user}", f"i{number}.{item}") for user, item in named]
    return rows


def _frequencies(
    plan: SelectionPlan,
    command: Command,
    keys: Sequence[str],
    copies: int,
    alpha: float,
    leaks: dict[str, None],
) -> list[Finding]:
    """Divergences of released sets over keys and copies, both ways, for every hard case."""
    cases = _hard_cases(plan)
    seen: dict[bool, list[list[np.ndarray]]] = {False: [], True: []}
    for number, key in enumerate(keys):
        for there, runs in seen.items():
            rows = rows_of(cases, copies, with_newcomer=there)
            shown = command.run(rows, key)
            runs.append([_table(shown.released, i, case, copies) for i, case in enumerate(cases)])
            if there and not number and command.run(_shuffled(rows), key) != shown:
                leaks["the same rows in another order change what is shown"] = None
    claim, level = plan.config, alpha / (4 * len(cases))
    findings = []
    for i, case in enumerate(cases):
        without, with_newcomer = (np.array([run[i] for run in seen[there]]) for there in (False, True))
        for direction, p, q in (("add", with_newcomer, without), ("remove", without, with_newcomer)):
            first, second = (x.reshape(-1, x.shape[-1]) for x in (p, q))
            estimate, lower, _ = event_excess(first, second, claim.epsilon, level)
            trials = len(first)
            findings.append(
                Finding(case.name, "released set", direction, trials, estimate, lower, claim.delta)
            )
            estimate, lower, trials = repeated_excess(p, q, claim.epsilon, level)
            findings.append(Finding(case.name, "repetition", direction, trials, estimate, lower, claim.delta))
    return findings


def _hard_cases(plan: SelectionPlan) -> list[Neighbours]:
    """Those of `worst_cases` that are small, and few enough for a file: novel items, the threshold, a heavy user."""
    d0 = plan.config.max_items_per_user or 1
    wanted = {all_novel(1).name, all_novel(d0).name, "tips one item from below", "tips one item from above"}
    wanted |= {"heavy user beyond D0", *(case.name for case in study(plan.selector.name).hard_cases(plan))}
    return [case for case in worst_cases(plan) if case.name in wanted and len(case.others) < _OFTEN]


def _table(released: frozenset[str], number: int, case: Neighbours, copies: int) -> np.ndarray:
    """(copies, items) bool: which items of each copy of a case are released."""
    table = np.zeros(copies * case.num_items, bool)
    prefix = f"i{number}."
    table[[int(name[len(prefix) :]) for name in released if name.startswith(prefix)]] = True
    return table.reshape(copies, case.num_items)


def _shuffled(rows: Rows) -> Rows:
    order = np.random.default_rng(0).permutation(len(rows))
    return [rows[i] for i in order]


def repeated_excess(
    first: np.ndarray, second: np.ndarray, epsilon: float, alpha: float
) -> tuple[float, float, int]:
    """Excess P(E) - e^eps Q(E) on average over copies, E: a copy releases what it released under the first key.

    The copies that count are those where P and Q differed under the first key; the trials are the other keys. Trials of
    different copies need not follow one law: the tails of a sum of independent trials of unequal chances lie within
    those of the binomial of their mean (Hoeffding 1956), beyond its mean by one or more.

    Args:
      first, second: (keys, copies, items) bool under P and Q.
      alpha: probability that the lower bound is false.

    Returns:
      estimate, lower bound (0 where no copy counts), number of trials.
    """
    chosen = (first[0] != second[0]).any(axis=1)
    trials = int(chosen.sum()) * (len(first) - 1)
    if not trials:
        return 0.0, 0.0, 0
    hits = [int((runs[1:, chosen] == first[0, chosen]).all(axis=2).sum()) for runs in (first, second)]
    low = proportion_bounds(hits[0], trials, alpha / 2)[0]
    high = proportion_bounds(hits[1], trials, alpha / 2)[1]
    factor = math.exp(epsilon)
    return (hits[0] - factor * hits[1]) / trials, max(0.0, low - factor * high), trials


def markdown(rows: Sequence[tuple[str, EndToEnd]]) -> str:
    """A table: per method what was run and compared, the worst divergence as share of delta, and the verdict."""
    head = [
        "method",
        "runs",
        "equal released sets compared",
        "side channels",
        "released set: estimate / delta",
    ]
    lines = []
    for name, result in rows:
        worst = result.worst
        low = max(f.lower for f in result.findings if f.kind == worst.kind) / worst.claimed
        share = worst.estimate / worst.claimed
        cells = [name, result.runs, result.compared, len(result.leaks), f"{share:.2f}", f"{low:.2f}"]
        lines.append([*cells, worst.trials, "passes" if result.passed else "refuted"])
    return markdown_table([*head, "lower bound", "trials", "verdict"], lines)
