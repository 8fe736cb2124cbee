"""A series whose folder and output lie on real stores: killed, two at once, on a store that breaks; made once."""

import os
import pathlib
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow.parquet as pq
import pytest

from dpbeam.cli import main
from dpbeam.storage import FileSystems, cloud, lease
from tests.cli.test_series import COLUMNS, write_night
from tests.support.stores import Proxy
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.engines]
STORES = ("s3", "azure", "hdfs")
NIGHTS = (1, 2, 3)


def opening(place: str, *more: str) -> list[str]:
    window = ["--nights=3", "--epsilon=4", "--delta=1e-3", "--preset=toward-end", "--insecure_test_key=ab"]
    return ["series", "open", f"--folder={place}/f", f"--output={place}/out/x", *window, "--quiet", *more]


def night(place: str, number: int, *more: str) -> list[str]:
    return [
        *("series", "run", f"--folder={place}/f", f"--night={number}", f"--input=n{number}.csv"),
        *(*COLUMNS, "--quiet", *more),
    ]


def output(place: str) -> dict[str, bytes]:
    """Files of the nights by name, less ledgers, which tell of times."""
    if "://" in place:
        paths = FileSystems.list_prefix(f"{place}/out/")
        files = {path.rpartition("/")[2]: FileSystems.read(path) for path in paths}
    else:
        files = {path.name: path.read_bytes() for path in pathlib.Path(place, "out").iterdir()}
    ledgers = [name for name in files if name.endswith(".ledger.json")]
    return {"ledgers": sorted(ledgers), **{name: files[name] for name in files if name not in ledgers}}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("nights")
    for number in NIGHTS:
        write_night(str(folder / f"n{number}.csv"), number)
    return folder


@pytest.fixture(scope="module")
def expected(inputs, tmp_path_factory) -> dict[str, bytes]:
    """What the same nights release with everything on this machine."""
    place = str(tmp_path_factory.mktemp("here"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(inputs)
        for argv in (opening(place), *(night(place, number) for number in NIGHTS)):
            assert main(argv) == 0
    assert pq.read_table(f"{place}/out/x-3.released.parquet").num_rows > 5
    return output(place)


@pytest.fixture
def place(request, monkeypatch, inputs) -> str:
    """A folder of this test's own on the store that its parameter names."""
    store = request.getfixturevalue(f"{request.param}_store")
    for name, text in store.variables().items():
        monkeypatch.setenv(name, text)
    monkeypatch.chdir(inputs)
    place = f"{store.url}/series-{abs(hash(request.node.name)):x}"
    FileSystems.make_folder(place)
    return place


ON_EACH = pytest.mark.parametrize("place", STORES, indirect=True)


def processes(*commands: list[str]) -> list[tuple[int, str]]:
    """Exit code and errors of commands that run at the same time."""

    def run(argv: list[str]) -> tuple[int, str]:
        done = subprocess.run([sys.executable, "-m", "dpbeam.cli", *argv], capture_output=True, text=True)
        return done.returncode, done.stderr

    with ThreadPoolExecutor(len(commands)) as pool:
        return list(pool.map(run, commands))


@ON_EACH
def test_the_same_bytes_as_on_this_machine(place, expected, capsys):
    for argv in (opening(place), *(night(place, number) for number in NIGHTS)):
        assert main(argv) == 0, capsys.readouterr().err
    assert output(place) == expected
    assert main(night(place, 2)) == 0 and output(place) == expected
    other = [word.replace("n2.csv", "n1.csv") for word in night(place, 2)]
    assert main(other) == 2 and "was made from other pairs" in capsys.readouterr().err
    assert (
        main(["verify", "--contents", "--quiet", f"{place}/out/x-3.ledger.json"]) == 1
    )  # for the test key alone
    sizes = FileSystems.sizes(f"{place}/f/")
    assert [size for path, size in sizes.items() if "state-" in path and size] == [
        sizes[f"{place}/f/state-00000003"]
    ]
    assert main(["series", "close", f"--folder={place}/f", "--quiet"]) == 0
    assert main(night(place, 1)) == 0 and output(place) == expected


@ON_EACH
def test_nights_on_an_engine_give_the_same_bytes(place, expected, capsys):
    """Its parts lie on the store; the second night is made in one process."""
    engine = ("--runner=FnApiRunner", "--num_shards=3")
    assert main(opening(place)) == 0
    for number, how in zip(NIGHTS, (engine, (), engine)):
        assert main(night(place, number, *how)) == 0, capsys.readouterr().err
    assert output(place) == expected
    assert not FileSystems.folders(f"{place}/f", "work-", "key")
    assert main(["series", "close", f"--folder={place}/f", "--quiet"]) == 0
    assert not any("/part-" in path for path in FileSystems.list_prefix(f"{place}/f/"))


@ON_EACH
def test_of_two_nights_at_once_one_is_made(place, expected):
    """By processes of their own, of which one has other data: whoever wins, the folder holds one night."""
    assert main(opening(place)) == 0
    other = [word.replace("n1.csv", "n2.csv") for word in night(place, 1)]
    ended = processes(night(place, 1), other)
    codes = [code for code, _ in ended]
    assert 0 in codes, ended
    loser = ended[1 - codes.index(0)]
    if loser[0]:
        assert "another run of the series" in loser[1] or "was made from other pairs" in loser[1]
    else:
        pytest.fail(f"both made night 1: {ended}")
    won = night(place, 1) if codes[0] == 0 else other
    lost = other if codes[0] == 0 else night(place, 1)
    assert main(won) == 0 and main(lost) == 2
    if codes[0] == 0:
        name = "x-1-00000-of-00001.parquet"
        assert output(place)[name] == expected[name]


@pytest.fixture
def proxied(request, monkeypatch, inputs):
    """(a proxy before the store of objects that the parameter names, a folder of this test's own there)."""
    store = request.getfixturevalue(f"{request.param}_store")
    monkeypatch.setattr(cloud, "FIRST_WAIT", 0.02)
    monkeypatch.chdir(inputs)
    with Proxy(store.address) as proxy:
        for name, text in store.variables(f"127.0.0.1:{proxy.port}").items():
            monkeypatch.setenv(name, text)
        yield proxy, f"{store.url}/series-{abs(hash(request.node.name)):x}"


ON_OBJECTS = pytest.mark.parametrize("proxied", ["s3", "azure"], indirect=True)


@ON_OBJECTS
def test_passing_faults_change_nothing(proxied, expected):
    """An answer that is lost tells the next try that the file is there: it is its own. Others: test_stores."""
    proxy, place = proxied
    faults = {"put": ["cut", "lose answer"], "delete": ["lose answer"] * 2}
    proxy.rule = lambda r: None if r.number % 3 else faults.get(r.kind, [None] * 2)[r.number % 2]
    for argv in (opening(place), *(night(place, number) for number in NIGHTS)):
        assert main(argv) == 0
    assert sum(proxy.faults.values()) >= 3
    proxy.rule = lambda request: None
    assert output(place) == expected


ON_S3 = pytest.mark.parametrize("proxied", ["s3"], indirect=True)


@ON_S3
def test_a_store_that_takes_nothing_more_is_one_line(proxied, expected, capsys, monkeypatch):
    proxy, place = proxied
    monkeypatch.setattr(cloud, "ATTEMPTS", 1)
    monkeypatch.setattr(lease, "SECONDS", 2)  # this process lives, and cannot say that its lock is free
    assert main(opening(place)) == 0
    for last in (0, 3):
        proxy.rule = lambda r, last=last: 503 if r.kind == "put" and r.number >= last else None
        proxy.seen.clear()
        code = main(night(place, 1))
        said = capsys.readouterr().err.splitlines()[-1]
        assert code == 1 and "503" in said, said
    proxy.rule = lambda request: None
    for number in NIGHTS:
        assert main(night(place, number)) == 0
    assert output(place) == expected


@ON_S3
def test_killed_at_a_request_a_night_is_made_by_the_next(proxied, expected):
    """kill -9 of the process, before the store has taken a request or after: its lock counts as free at once."""
    proxy, place = proxied
    assert main(opening(place)) == 0
    lived = 0
    for step in (2, 9, 16, 30, 44):
        proxy.seen.clear()
        running: list[subprocess.Popen] = []
        begun = threading.Event()
        count = [0]

        def rule(request, step=step, count=count, running=running, begun=begun):
            begun.wait()
            count[0] += 1
            if count[0] >= step:
                running[0].kill()
                return "cut" if step % 2 else "lose answer"
            return None

        proxy.rule = rule
        number = 1 + step // 21
        argv = [sys.executable, "-m", "dpbeam.cli", *night(place, number)]
        running.append(subprocess.Popen(argv, stderr=subprocess.DEVNULL, env=os.environ.copy()))
        begun.set()
        lived += running[0].wait(120) == 0
        proxy.rule = lambda request: None
        if step > 9:  # the last kill of this night
            assert main(night(place, number)) == 0
    assert lived <= 2
    assert output(place) == expected


@pytest.mark.parametrize("place", ["hdfs"], indirect=True)
def test_killed_on_hdfs_a_night_is_made_by_the_next(place, expected):
    """Some time after the process has taken the folder: the longer, the nearer to its end."""
    assert main(opening(place)) == 0
    for number, seconds in zip(NIGHTS, (0.0, 0.5, 1.5)):
        before = FileSystems.list_prefix(f"{place}/f/lock-")
        running = subprocess.Popen([sys.executable, "-m", "dpbeam.cli", *night(place, number)])
        wait_until(
            lambda before=before, running=running: (
                running.poll() is not None or FileSystems.list_prefix(f"{place}/f/lock-") > before
            ),
            120,
            "its lock",
        )
        time.sleep(seconds)
        running.kill()
        running.wait()
        assert main(night(place, number)) == 0
    assert output(place) == expected
    assert all(".tmp-" not in path for path in FileSystems.list_prefix(f"{place}/f/"))
