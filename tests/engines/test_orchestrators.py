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

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpbeam.budget.store import BudgetStore
from dpbeam.cli import main
from tests.support.examples import ROOT

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
    """Input of some days, an account for so many releases, and dpbeam as an installation of its own."""

    def __init__(self, folder: pathlib.Path, releases: int, months: int = 0):
        self.folder, self.budget = folder, str(folder / "budget.db")
        with gzip.open(ROOT / "dpbeam/data/wordnet_glosses.txt.gz", "rb") as sample:
            lines = list(itertools.islice(sample, 4_000))
        for number, day in enumerate((*DAYS, MORE)):
            (folder / "input" / day).mkdir(parents=True)
            part = b"".join(lines[number * 1_000 : (number + 1) * 1_000])
            (folder / "input" / day / "lines.txt.gz").write_bytes(gzip.compress(part, 1))
            if day in (DAYS[0], DAYS[2]):  # for the series; on the second day nothing comes
                pairs = {
                    "user": [f"u{u}" for u in range(800)],
                    "item": [f"{number} {u % 4}" for u in range(800)],
                }
                pq.write_table(pa.table(pairs), folder / "input" / day / "pairs.parquet")
            (folder / "input" / day / "_SUCCESS").touch()
        for name in ("bin", "temp"):
            (folder / name).mkdir()
        for name, module in {"python": "", "dpbeam": " -m dpbeam.cli"}.items():
            (folder / "bin" / name).write_text(f'#!/bin/sh\nexec {sys.executable}{module} "$@"\n')
            (folder / "bin" / name).chmod(0o755)
        limit = [f"--epsilon={releases * EPSILON + months * MONTH}", "--delta=1e-6", "--quiet"]
        assert main(["budget", "create", f"--budget={self.budget}", "--dataset=logs", *limit]) == 0
        self.environment = {
            **os.environ,
            "TMPDIR": str(folder / "temp"),  # what is killed leaves its private folder
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
        done = subprocess.run(
            [str(ROOT / "scripts" / argv[0]), *argv[1:]],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=SECONDS,
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
        return done.stdout

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
    """A series of three nights, two days and one by the other DAGs, a task of each killed half-way; a night and a day
    again; a day that no budget is left for."""
    fetch("airflow")
    place = Place(tmp_path, releases=6, months=1)
    killed = {f"{PLAIN}.select.{DAYS[1]}", f"{BEAM}.top_k.{DAYS[0]}"}
    stop, kills = threading.Event(), []
    threads = [
        threading.Thread(target=lambda n=name: kills.append(place.kill_once(n, stop))) for name in killed
    ]
    for thread in threads:
        thread.start()
    wanted = [[SERIES, f"{day}T00:00:00+00:00"] for day in (*DAYS, DAYS[0])]
    wanted[-1][1] = f"{DAYS[0]}T13:37:11+00:00"  # a day again
    wanted += [
        [dag, f"{day}T00:00:00+00:00"] for dag, day in ((PLAIN, DAYS[0]), (PLAIN, DAYS[1]), (BEAM, DAYS[0]))
    ]
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
        before = filled[1]["tasks"][task]["returned"]
        assert again["tasks"][task]["returned"] == {**before, "status": "already_released"}

    assert refused["state"] == "failed"
    ends = {name: (task["state"], task["tries"]) for name, task in refused["tasks"].items()}
    assert ends["select"] == ends["top_k"] == ("failed", 1)  # it has three retries, and takes none
    assert ends["report_select"][0] == ends["report_top_k"][0] == "upstream_failed"
    result = json.loads((tmp_path / "out" / BEAM / MORE / "select.result.json").read_text())
    assert result["status"] == "refused" and "the limit of dataset 'logs' would be passed" in result["error"]

    account = place.account()
    assert len([e for e in account.entries if e.kind == "reserve"]) == len(account.releases) == 7
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
    check_window(place, f"{SERIES}.2026-11", place.folder / "out" / SERIES / "2026-11")


def check_window(place: Place, release_id: str, output: pathlib.Path) -> None:
    """One charge for all nights, and their output, which grows."""
    assert place.kinds(release_id) == ["reserve", "publish", "commit"]
    charge = place.account().releases[release_id].charge
    assert float(charge.amounts("basic")["epsilon"]) == MONTH
    so_far = pq.read_table(output / f"items-{DAYS[2]}.released.parquet").to_pydict()
    new = [pq.read_table(output / f"items-{day}-00000-of-00001.parquet")["item"].to_pylist() for day in DAYS]
    assert so_far["item"] == [item for items in new for item in items]
    assert {"0 0", "0 1", "0 2", "0 3"} <= set(so_far["item"])
    assert all((output / f"items-{day}.report.html").exists() for day in DAYS)


def test_dagster(tmp_path):
    """One day, and again; then a day that no budget is left for."""
    fetch("dagster")
    place = Place(tmp_path, releases=2)
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
    with pytest.raises(AssertionError, match="dpbeam ended with 2; its log says why"):
        place.run(*argv, "--partition", MORE)
    assert len(place.account().releases) == 2


def test_dagster_series(tmp_path):
    """Three nights of a window, the second without data; a backfill in order; a night again; a night out of order."""
    fetch("dagster")
    place = Place(tmp_path, releases=0, months=1)
    folder = ROOT / "configs/dagster"
    argv = [
        *("dagster", "run", "asset", "materialize", "-f", str(folder / "series.py"), "-d", str(folder)),
        *("--select", "*", "--partition"),
    ]
    place.run(*argv, DAYS[0])
    with pytest.raises(AssertionError, match="dpbeam ended with 2; its log says why"):
        place.run(*argv, DAYS[2])  # it has three retries, and takes none
    place.run(
        *argv[:-1], "--partition-range", f"{DAYS[0]}...{DAYS[2]}"
    )  # a backfill, of which one night is out
    before = place.files()
    place.run(*argv, DAYS[0])
    output = tmp_path / "out/dagster_series/2026-11"
    assert place.files() == before
    results = [json.loads((output / f"items-{day}.result.json").read_text()) for day in DAYS]
    assert [result["status"] for result in results] == ["already_released", "released", "released"]
    starts = [
        json.loads((output / f"items-{day}.ledger.json").read_text())["release"]["started"] for day in DAYS
    ]
    assert starts == sorted(starts)
    check_window(place, "dagster.series.2026-11", output)
