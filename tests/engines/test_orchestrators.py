"""The example DAGs on a real Airflow, the example assets on a real Dagster, each in an environment of its own.

All runs of Airflow are one test: its start takes longer than a run. Needs PyPI for the first installation; skipped
without it, except where CI is set.
"""

import contextlib
import gzip
import itertools
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpbeam
from dpbeam.budget.store import BudgetStore
from dpbeam.cli import main
from dpbeam.randomness import RunKey
from dpbeam.series.window import SeriesWindow
from tests.support.examples import ROOT, blocks

SECONDS = 1500
DAYS = ("2026-11-01", "2026-11-02", "2026-11-03")
MORE = "2026-11-04"
PLAIN, BEAM, SERIES = "dpbeam_nightly", "dpbeam_nightly_beam", "dpbeam_series"
EPSILON = 0.5  # of one release, configs/nightly
MONTH = 1.0  # of a window
PUBLIC = {
    *("command", "status", "dataset", "release_id", "charge", "epsilon", "delta"),
    *("items_released", "private", "outputs", "ledger", "software"),
}

pytestmark = [pytest.mark.engines, pytest.mark.slow]


class Place:
    """An account for so many releases, or none yet, and dpbeam as an installation of its own."""

    def __init__(self, folder: pathlib.Path, releases: int = 0, months: int = 0):
        self.folder, self.budget = folder, str(folder / "budget.db")
        for name in ("bin", "temp"):
            (folder / name).mkdir()
        for name, module in {"python": "", "dpbeam": " -m dpbeam.cli"}.items():
            (folder / "bin" / name).write_text(f'#!/bin/sh\nexec {sys.executable}{module} "$@"\n')
            (folder / "bin" / name).chmod(0o755)
        if epsilon := releases * EPSILON + months * MONTH:
            limit = [f"--epsilon={epsilon}", "--delta=1e-6", "--quiet"]
            assert main(["budget", "create", f"--budget={self.budget}", "--dataset=logs", *limit]) == 0
        self.environment = {
            **os.environ,
            "TMPDIR": str(folder / "temp"),  # what is killed leaves its private folder
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "DPBEAM_BIN": str(folder / "bin"),
            "DPBEAM_PIPELINES": str(ROOT / "pipelines"),
            "DPBEAM_CONFIGS": str(ROOT / "configs" / "nightly"),
            "DPBEAM_INPUT": str(folder / "input"),
            "DPBEAM_OUTPUT": str(folder / "out"),
            "DPBEAM_SERIES": str(folder / "series"),
            "DPBEAM_BUDGET": self.budget,
            "DPBEAM_RETRY_SECONDS": "1",
            "AIRFLOW_RUN": str(folder / "airflow"),
            "DAGSTER_HOME": str(folder / "dagster"),
        }

    def run(self, *argv: str) -> str:
        """A script of the sources; its output."""
        return self._run([str(ROOT / "scripts" / argv[0]), *argv[1:]], self.folder)

    def follow(self, code: str) -> str:
        """A block of commands of the documents, given where the sources are; its output."""
        return self._run(["bash", "-euo", "pipefail", "-c", code], ROOT)

    def _run(self, argv: list[str], folder: pathlib.Path) -> str:
        done = subprocess.run(
            argv,
            cwd=folder,
            env=self.environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=SECONDS,
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
        return done.stdout

    def day(self, day: str) -> pathlib.Path:
        """The folder of a day's input."""
        folder = self.folder / "input" / day
        folder.mkdir(parents=True)
        return folder

    def account(self):
        return BudgetStore(self.budget).account("logs")

    def kinds(self, release_id: str) -> list[str]:
        return [entry.kind for entry in self.account().entries if entry.release_id == release_id]

    def files(self) -> dict[str, bytes]:
        """All that was released."""
        paths = (self.folder / "out").rglob("*")
        return {str(path): path.read_bytes() for path in paths if path.suffix in (".parquet", ".html")}

    def kill_once(self, release_id: str, stop: threading.Event) -> bool:
        """kill -9 to the process of a release as soon as it has its reservation, half-way through its run."""
        while not stop.wait(0.2):
            with contextlib.suppress(RuntimeError):
                release = self.account().releases.get(release_id)
                if release is not None and release.state == "reserved":
                    os.kill(release.holder["pid"], signal.SIGKILL)
                    return True
        return False


def write_days(place: Place) -> None:
    """Lines of four days, and pairs of the first and the third; on the second none come."""
    with gzip.open(ROOT / "dpbeam/data/wordnet_glosses.txt.gz", "rb") as sample:
        lines = list(itertools.islice(sample, 4_000))
    for number, day in enumerate((*DAYS, MORE)):
        folder = place.day(day)
        part = b"".join(lines[number * 1_000 : (number + 1) * 1_000])
        (folder / "lines.txt.gz").write_bytes(gzip.compress(part, 1))
        if day in (DAYS[0], DAYS[2]):
            users = range(800)
            write_pairs(folder / "pairs.parquet", users, [f"{number} {u % 4}" for u in users])
        (folder / "_SUCCESS").touch()


def write_pairs(path: pathlib.Path, users: Iterable[int], items: Iterable[str]) -> None:
    pq.write_table(pa.table({"user": [f"u{user}" for user in users], "item": list(items)}), path)


def fetch(script: str) -> None:
    done = subprocess.run(
        [str(ROOT / "scripts" / script), "fetch"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=SECONDS,
    )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"scripts/{script} cannot install: {reason}")


def test_airflow(tmp_path):
    """A series of three nights, and a day by each of the other DAGs, of which a task is killed half-way; a night and a
    day again; a day that no budget is left for."""
    fetch("airflow")
    place = Place(tmp_path, releases=4, months=1)
    write_days(place)
    killed = {f"{PLAIN}.select.{DAYS[1]}", f"{BEAM}.top_k.{DAYS[0]}"}
    stop, kills = threading.Event(), []
    threads = [
        threading.Thread(target=lambda n=name: kills.append(place.kill_once(n, stop))) for name in killed
    ]
    for thread in threads:
        thread.start()
    wanted = [[SERIES, f"{day}T00:00:00+00:00"] for day in (*DAYS, DAYS[0])]
    wanted[-1][1] = f"{DAYS[0]}T13:37:11+00:00"  # a day again
    wanted += [[dag, f"{day}T00:00:00+00:00"] for dag, day in ((PLAIN, DAYS[1]), (BEAM, DAYS[0]))]
    # The same day at an odd hour, given again when all is out; and one day too many.
    wanted += [[PLAIN, f"{DAYS[1]}T13:37:11+00:00"], [BEAM, f"{MORE}T00:00:00+00:00"]]
    try:
        said = place.run(
            *(
                "airflow",
                "python",
                str(ROOT / "tests/support/airflow_runs.py"),
                str(ROOT / "configs/airflow"),
            ),
            json.dumps(wanted),
        )
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    state = json.loads(said.splitlines()[-1])
    assert state["errors"] == {} and state["dags"] == [PLAIN, BEAM, SERIES]
    check_series(place, state["runs"][:4])
    *filled, again, refused = state["runs"][4:]
    assert kills == [True, True] and {run["state"] for run in (*filled, again)} == {"success"}

    for run in filled:
        day = run["day"][:10]
        for task in ("select", "top_k"):
            name = f"{run['dag']}.{task}.{day}"
            ended, result = run["tasks"][task], run["tasks"][task]["returned"]
            retried = ["takeover"] if name in killed else []
            assert ended["tries"] == 1 + len(retried), name
            assert place.kinds(name) == ["reserve", *retried, "publish", "commit"]
            assert set(result) == PUBLIC and result["status"] == "released"
            assert (result["release_id"], result["charge"]["epsilon"]) == (name, EPSILON)
            for path in (*result["outputs"], result["ledger"]):
                assert pathlib.Path(path).exists() and f"/{run['dag']}/{day}/" in path
            assert pathlib.Path(result["ledger"].replace(".ledger.json", ".report.html")).exists()

    for task in ("select", "top_k"):
        before = filled[0]["tasks"][task]["returned"]
        assert again["tasks"][task]["returned"] == {**before, "status": "already_released"}

    assert refused["state"] == "failed"
    ends = {name: (task["state"], task["tries"]) for name, task in refused["tasks"].items()}
    assert ends["select"] == ends["top_k"] == ("failed", 1)  # it has three retries, and takes none
    assert ends["report_select"][0] == ends["report_top_k"][0] == "upstream_failed"
    result = json.loads((tmp_path / "out" / BEAM / MORE / "select.result.json").read_text())
    assert result["status"] == "refused" and "the limit of dataset 'logs' would be passed" in result["error"]

    account = place.account()
    assert len([e for e in account.entries if e.kind == "reserve"]) == len(account.releases) == 5
    assert {release.state for release in account.releases.values()} == {"committed"}
    (standing,) = account.touched(next(iter(account.releases.values())).charge)
    assert standing.left["epsilon"] == 0


def check_series(place: Place, runs) -> None:
    """Three nights of one window, the first of them again; one charge; what is out stays out."""
    assert {run["state"] for run in runs} == {"success"}
    assert {task["tries"] for run in runs for task in run["tasks"].values()} == {1}
    nights = [run["tasks"]["night"]["returned"] for run in runs]
    assert [night["status"] for night in nights] == ["released"] * 3 + ["already_released"]
    assert nights[3] == {**nights[0], "status": "already_released"} and set(nights[0]) == PUBLIC
    output, window = place.folder / "out" / SERIES / "2026-11", f"{SERIES}.2026-11"
    assert place.kinds(window) == ["reserve", "publish", "commit"]
    assert float(place.account().releases[window].charge.amounts("basic")["epsilon"]) == MONTH
    so_far = pq.read_table(output / f"items-{DAYS[2]}.released.parquet").to_pydict()
    new = [pq.read_table(output / f"items-{day}-00000-of-00001.parquet")["item"].to_pylist() for day in DAYS]
    assert so_far["item"] == [item for items in new for item in items]
    assert {"0 0", "0 1", "0 2", "0 3"} <= set(so_far["item"])
    assert all((output / f"items-{day}.report.html").exists() for day in DAYS)


def test_dagster(tmp_path):
    """One day, and again; a night that is refused, in the month below."""
    fetch("dagster")
    place = Place(tmp_path, releases=2)
    write_days(place)
    argv = [
        "dagster",
        "run",
        "asset",
        "materialize",
        "-f",
        str(ROOT / "configs/dagster/nightly.py"),
        "--select",
        "*",
    ]
    place.run(*argv, "--partition", DAYS[0])
    names = [f"dagster.{task}.{DAYS[0]}" for task in ("select", "top_k")]
    assert [place.kinds(name) for name in names] == [["reserve", "publish", "commit"]] * 2
    before = place.files()
    assert len(before) == 4
    place.run(*argv, "--partition", DAYS[0])
    assert place.files() == before and len(place.account().releases) == 2


def month() -> dict[str, tuple[np.ndarray, list[str]]]:
    """Users and items of a September: 500 who come on most nights, on fewer at the weekend; some who come once; 80 who
    come three nights of ten and bring much; one with 5,000 items that nobody else has."""
    rng, days = np.random.default_rng(28), {}
    for number in range(30):
        day = date(2026, 9, 1 + number)
        weekend = day.weekday() >= 5
        often = np.flatnonzero(rng.random(500) < (0.6 if weekend else 0.95))
        once = 1_000 + 100 * number + np.arange(30 if weekend else 100)
        bursts = 5_000 + np.flatnonzero((np.arange(80) + number) % 10 < 3)
        users = np.concatenate([np.repeat(often, 3), np.repeat(once, 5), np.repeat(bursts, 25)])
        items = [f"query {query}" for query in (600 ** rng.random(len(users))).astype(int)]
        days[str(day)] = users, items
    users, items = days["2026-09-12"]
    hostile = [f"mine {n}" for n in range(5_000)]
    days["2026-09-12"] = np.append(users, np.full(len(hostile), 9_999)), items + hostile
    return days


def test_a_month_of_a_series_from_the_account_to_the_signed_report(tmp_path, monkeypatch):
    """What docs/how-to/month_of_a_series.md says, block by block: a backfill, a day whose input is late and the day
    after it, pairs of a day that come with the next one, a day on which nothing comes, days given again."""
    fetch("dagster")
    place, days = Place(tmp_path), month()
    empty, late = "2026-09-15", "2026-09-10"
    days[empty] = np.array([], int), []
    # A tenth of September 20 comes with September 21.
    (users, items), (more_users, more_items) = days["2026-09-20"], days["2026-09-21"]
    tenth = len(items) // 10
    days["2026-09-20"] = users[tenth:], items[tenth:]
    days["2026-09-21"] = np.append(more_users, users[:tenth]), more_items + items[:tenth]
    for day, (users, items) in days.items():
        folder = place.day(day)
        if day != empty:
            half = len(items) // 2
            write_pairs(folder / "part-0.parquet", users[:half], items[:half])
            write_pairs(folder / "part-1.parquet", users[half:], items[half:])
        if day != late:
            (folder / "_SUCCESS").touch()

    account, first_days, one_day, the_rest, the_end = [
        block.code for block in blocks((ROOT / "docs/how-to/month_of_a_series.md").read_text())
    ]
    output = tmp_path / "out/dagster_series/2026-09"
    place.follow(account)
    place.follow(first_days)
    assert place.kinds("dagster.series.2026-09") == ["reserve", "publish", "commit"]
    with pytest.raises(AssertionError, match=f"the input of {late} is not complete"):
        place.follow(one_day)
    with pytest.raises(AssertionError, match="dpbeam ended with 2; its log says why"):
        place.follow(one_day.replace(late, "2026-09-11"))  # it has three retries, and takes none
    assert len(list(output.glob("items-*.released.parquet"))) == 9
    (tmp_path / "input" / late / "_SUCCESS").touch()
    place.follow(one_day)
    before = place.files()
    assert the_rest.endswith(f"{late}...2026-09-30\n")
    place.follow(the_rest.replace("2026-09-30", "2026-09-16"))  # the late day is out, and in it
    assert before.items() <= place.files().items()
    folder = tmp_path / "series/dagster/2026-09"
    for day in [day for day in days if day > "2026-09-16"]:  # as Dagster makes them, in a tenth of the time
        flags = {"folder": folder, "night": day, "input": f"{tmp_path}/input/{day}/*.parquet"}
        night = [f"--{flag}={value}" for flag, value in flags.items()]
        assert main(["series", "run", f"--config={ROOT}/configs/nightly/series_night.yaml", *night]) == 0

    secret = SeriesWindow.load(str(folder)).key.secret_bytes()
    held = sum(path.stat().st_size for path in folder.iterdir())
    before = place.files()
    place.follow(the_end)
    assert held > 10 * sum(path.stat().st_size for path in folder.iterdir())
    page = (output / "items.report.html").read_text()
    assert (
        "Ada Example" in page and "The window of a series of 30 nights" in page and "NOT PRIVATE" not in page
    )
    assert f"Night {late} of a series of 30 nights" in (output / f"items-{late}.report.html").read_text()

    # The same nights in memory, under the window's key.
    monkeypatch.setattr("dpbeam.in_memory.series.run_key", lambda _: RunKey(secret, insecure=True))
    series = dpbeam.Series(nights=30, epsilon=MONTH, delta=1e-8, first_night="2026-09-01")
    known: list[tuple[str, str]] = []
    for day, (users, items) in days.items():
        new = series.run({"user": [f"u{user}" for user in users], "item": items}).items
        out = pq.read_table(output / f"items-{day}-00000-of-00001.parquet")["item"].to_pylist()
        assert out == new
        known += [(item, day) for item in new]
        so_far = pq.read_table(output / f"items-{day}.released.parquet").to_pylist()
        assert [(row["item"], row["night"]) for row in so_far] == known
    counts = [sum(night <= day for _, night in known) for day in ("2026-09-07", "2026-09-20", "2026-09-30")]
    assert 0 < counts[0] < counts[1] < counts[2]
    assert not any(item.startswith("mine") for item, _ in known)

    assert place.kinds("dagster.series.2026-09") == ["reserve", "publish", "commit"]
    (charged,) = place.account().releases.values()
    (standing,) = place.account().touched(charged.charge)
    assert standing.left["epsilon"] == standing.left["delta"] == 0
    assert before.items() <= place.files().items() and len(place.files()) == len(before) + 1
