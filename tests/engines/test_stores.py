"""Input, output and private folder on real stores: the same bytes as on this machine, whatever the store does."""

import glob
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpbeam.cli import main
from dpbeam.engine.beam import owner
from dpbeam.engine.beam.messages import FILE_PREFIX
from dpbeam.engine.beam.store import RunFolder
from dpbeam.io.output import OutputTarget
from dpbeam.runners import options
from dpbeam.storage import FileSystems, cloud, hdfs, lease
from dpbeam.storage.remote import patiently
from dpbeam.testing import StoreContract
from tests.support.long_items import write_long_items
from tests.support.stores import KEY, ROOT, Proxy, comparable, put, s3_server
from tests.support.stores import selection as flags
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.engines]

#: Engine and store. This process meets each store below; engines on S3: test_hosts, Spark on HDFS: test_yarn.
RUNS = [
    ("flink-cluster", "s3"),
    ("pyspark-cluster", "azure"),
    ("flink-cluster", "hdfs"),
]
CHANGES = ("put", "part", "complete", "delete")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> pathlib.Path:
    """Four files of 4,000 users' pairs; items so long that messages go through files as well."""
    folder = tmp_path_factory.mktemp("pairs")
    write_long_items(folder, users=4_000, items=1_500, files=4)
    return folder


def output(place: str) -> dict[str, bytes]:
    """Released files by name, and what the ledger says without times and names."""
    if "://" in place:
        paths = FileSystems.list_prefix(f"{place}/out/")
        return comparable({path.rpartition("/")[2]: FileSystems.read(path) for path in paths})
    return comparable({path.name: path.read_bytes() for path in pathlib.Path(place, "out").iterdir()})


@pytest.fixture(scope="module")
def expected(pairs, tmp_path_factory) -> dict[str, bytes]:
    """What the same command writes on this machine."""
    folder = tmp_path_factory.mktemp("expected")
    assert main(flags(str(pairs), str(folder))) == 0
    files = output(str(folder))
    assert pq.read_table(glob.glob(f"{folder}/out/*.parquet")).num_rows > 20
    return files


@pytest.fixture(autouse=True)
def fresh_options():
    yield
    FileSystems.set_options(None)


@pytest.fixture
def s3(s3_store, monkeypatch, request):
    """(the store, a place of this test's own in it)."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{s3_store.address}")
    return s3_store, _place(s3_store, request)


@pytest.fixture
def objects(object_store, request):
    """As `s3`, on each store of objects."""
    return object_store, _place(object_store, request)


def _place(store, request) -> str:
    return f"{store.url}/{re.sub(r'[^a-z0-9]+', '-', request.node.name.lower())}"


def hurry(monkeypatch, attempts: int) -> None:
    """Let clients of object stores try so often."""
    monkeypatch.setattr(cloud, "ATTEMPTS", attempts)


OBJECT_STORES = pytest.mark.parametrize("object_store", ["s3", "azure"], indirect=True)


@pytest.mark.parametrize(("name", "store"), RUNS)
def test_same_bytes_as_on_this_machine(name, store, engine, pairs, expected, request, tmp_path, monkeypatch):
    remote = request.getfixturevalue(f"{store}_store")
    place = f"{remote.url}/{name}"
    # The address goes with the job, the credentials never do: workers find them in their environment.
    address = [f"--s3_endpoint_url=http://{remote.address}"] if store == "s3" else []
    for variable, text in remote.variables().items():
        monkeypatch.setenv(variable, text)
    put(pairs, place)
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    argv = [sys.executable, "-m", "dpbeam.cli", *flags(place, place, *address)]
    run = engine(name).run(argv, tmp_path / "log")
    assert run.code == 0, run.log[-4000:]
    if store == "s3":
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{remote.address}")
    assert output(place) == expected
    assert FileSystems.folders(f"{place}/temp", "", "") == [], "private intermediates were left behind"
    assert FileSystems.folders(f"{place}/out", "", "") == []


@pytest.mark.parametrize("store", ["s3", "azure", "hdfs"])
@pytest.mark.parametrize("test", [name for name in vars(StoreContract) if name.startswith("test_")])
def test_promises_of_files(store, test, request, monkeypatch):
    """As of any store, of the real ones."""
    remote = request.getfixturevalue(f"{store}_store")
    for variable, text in remote.variables().items():
        monkeypatch.setenv(variable, text)
    monkeypatch.setattr(lease, "BEAT", 0.5)

    class Tried(StoreContract):
        place = f"{remote.url}/promises"

        def files(self):
            return FileSystems.at(self.place)

    getattr(Tried(), test)()


class TestCommands:
    """Every command on S3 alone, on the runner in this process."""

    def test_output_is_refused_replaced_verified_reported(self, s3, pairs, expected, capsys, tmp_path):
        _, place = s3
        assert main(flags(str(pairs), place)) == 0
        assert output(place) == expected
        assert main(flags(str(pairs), place)) == 2
        assert f"'{place}/out/x.ledger.json' exists; pass --overwrite" in capsys.readouterr().err
        assert main(flags(str(pairs), place, "--overwrite", "--num_output_shards=3")) == 0
        assert list(output(place)) == [*(f"x-0000{n}-of-00003.parquet" for n in range(3)), "x.ledger.json"]
        assert main(flags(str(pairs), place, "--overwrite")) == 0
        assert output(place) == expected, "files of the replaced output were left behind"
        verify = ["verify", f"{place}/out/x.ledger.json", "--contents"]
        assert main(verify) == 1  # for the key of tests alone
        shown = capsys.readouterr().out
        assert "ok     contents: digests and numbers of rows are those of the ledger" in shown
        page = tmp_path / "report.html"
        assert main(["report", f"{place}/out/x.ledger.json", f"--output={page}"]) == 0
        assert "mad2r" in page.read_text()
        (shard,) = (path for path in FileSystems.list_prefix(f"{place}/out/x-"))
        with FileSystems.put(shard) as file:
            file.write(b"another")
        assert main(verify) == 1
        assert "FAILS  contents: 1 of 1 files are not what the run wrote" in capsys.readouterr().out

    def test_rankings_and_packing(self, s3, tmp_path):
        from tests.cli.test_pack import QUICK, SUPPLIES, columns

        _, place = s3
        table = pa.table(
            {"user": [f"u{n}" for n in range(400) for _ in range(3)], "item": ["a", "b", "c"] * 400}
        )
        for name, rows in {"pairs": table, "agents": pa.table(columns())}.items():
            pq.write_table(rows, tmp_path / f"{name}.parquet")
            with FileSystems.put(f"{place}/{name}.parquet") as file:
                file.write((tmp_path / f"{name}.parquet").read_bytes())
        with FileSystems.put(f"{place}/supplies.yaml") as file:
            file.write(json.dumps(SUPPLIES).encode())
        (tmp_path / "supplies.yaml").write_text(json.dumps(SUPPLIES))
        commands = {
            "top": ["top-k", "--input={}/pairs.parquet", "--k=2", "--epsilon=1", "--delta=1e-6"],
            "hit": ["hitting-set", "--input={}/pairs.parquet", "--k=1", "--epsilon=1", "--delta=1e-6"],
            "pack": ["pack", "--agents={}/agents.parquet", f"--supplies={tmp_path}/supplies.yaml", *QUICK],
        }
        for name, command in commands.items():
            named = [] if name == "pack" else ["--user_column=user", "--item_column=item", "--num_shards=2"]
            stem = "x.not_for_publication" if name == "pack" else "x"
            files = []
            for where in (str(tmp_path), place):
                argv = [part.format(where) if "{}" in part else part for part in command]
                argv += [
                    *named,
                    f"--output={where}/{name}/x",
                    f"--temp_location={where}/temp",
                    KEY,
                    "--quiet",
                ]
                assert main(argv) == 0, (name, where)
                if where == place:
                    files.append(
                        sorted(map(FileSystems.read, FileSystems.list_prefix(f"{where}/{name}/{stem}-")))
                    )
                else:
                    files.append(
                        sorted(pathlib.Path(p).read_bytes() for p in glob.glob(f"{where}/{name}/{stem}-*"))
                    )
            assert files[0] == files[1] and files[0], name
        assert FileSystems.folders(f"{place}/temp", "", "") == []

    def test_killed_runs_go_on_and_are_cleaned(self, s3, pairs, expected, capfd, tmp_path):
        _, place = s3
        command = [sys.executable, "-m", "dpbeam.cli", *flags(str(pairs), place)]
        kept = [f"--checkpoint={place}/kept", "--passes_per_job=1"]
        process = subprocess.Popen([*command, *kept], stderr=subprocess.DEVNULL)
        try:
            wait_until(lambda: _objects(f"{place}/kept/**/checkpoint-1"), 120, "a checkpoint")
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert output(place) == {}
        assert [owner.state_of(path) for path in owner.folders(f"{place}/kept", owner.RUN_FOLDER)] == ["gone"]
        shown = subprocess.run(
            [part for part in [*command, *kept] if part != "--quiet"], capture_output=True, text=True
        )
        assert shown.returncode == 0, shown.stderr
        assert "going on from the checkpoint after pass" in shown.stdout + shown.stderr
        assert output(place) == expected
        assert owner.folders(f"{place}/kept", owner.RUN_FOLDER) == []

        # Without a checkpoint the next run names what is left, and `clean` removes it.
        command = [sys.executable, "-m", "dpbeam.cli", *flags(str(pairs), f"{place}/again")]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            wait_until(lambda: _objects(f"{place}/again/temp/**/{FILE_PREFIX}*"), 120, "messages in files")
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        alive = f"{place}/again/temp/{owner.RUN_FOLDER}alive"
        owner.mark(alive)
        capfd.readouterr()
        cleaning = ["clean", f"--temp_location={place}/again/temp", f"--output={place}/again/out/x"]
        assert main([*cleaning, "--dry_run"]) == 0
        assert capfd.readouterr().out.count("its process is gone; would be removed") == 2
        assert main(flags(str(pairs), f"{place}/again")) == 0
        assert "a killed run left" in capfd.readouterr().err
        assert main(cleaning) == 0
        assert owner.folders(f"{place}/again/temp", owner.RUN_FOLDER) == [alive]
        assert owner.folders(f"{place}/again/out", "x.staging-") == []
        assert owner.folders(f"{place}/again/temp", owner.STAGING) == []
        assert output(f"{place}/again") == expected

    def test_errors_name_the_flag(self, s3, pairs, capsys, monkeypatch):
        _, place = s3
        assert main(flags("s3://nowhere", place)) == 2
        assert "--input: " in capsys.readouterr().err
        assert main(flags(str(pairs), place, "--temp_location=s3://nowhere/x")) == 2
        assert "--temp_location s3://nowhere/x: no such bucket" in capsys.readouterr().err
        assert main(flags(str(pairs), place, "--output=s3://nowhere/x")) == 2
        assert "--output: cannot look up 's3://nowhere/x': no such bucket" in capsys.readouterr().err
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        assert main(flags(place, place)) == 2
        assert "the store denies access" in capsys.readouterr().err
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        store_is_down = "--s3_endpoint_url=http://127.0.0.1:1"
        assert main(flags(place, place, store_is_down)) == 1
        stderr = capsys.readouterr().err
        assert "--input: " in stderr and "the store does not answer" in stderr and "Traceback" not in stderr


def _objects(pattern: str) -> dict[str, int]:
    return FileSystems.match(pattern)


@OBJECT_STORES
def test_credentials_are_nowhere(objects, pairs, tmp_path):
    """Not in what a run says, not in its ledger, and not in any object that it leaves or leaves behind."""
    store, place = objects
    argv = [
        *flags(str(pairs), place, "--verbose", f"--result_file={tmp_path}/result"),
        f"--checkpoint={place}/kept",
    ]
    argv += ["--passes_per_job=1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "dpbeam.cli", *(flag for flag in argv if flag != "--quiet")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    leaks: dict[str, bytes] = {}
    while process.poll() is None:
        for path in _objects(f"{place}/**"):
            if path not in leaks:
                try:
                    leaks[path] = FileSystems.read(path)
                except OSError:
                    continue  # renamed or removed meanwhile
        time.sleep(0.05)
    said = process.communicate()[0]
    assert process.returncode == 0, said
    assert any("/kept/" in name for name in leaks) and any(name.endswith("ledger.json") for name in leaks)
    secrets = [value.encode() for name, value in store.environment.items() if "KEY" in name]
    assert secrets
    for text in (said.encode(), (tmp_path / "result").read_bytes(), *leaks.values()):
        assert not any(secret in text for secret in secrets)


@pytest.fixture
def proxied(objects, monkeypatch):
    store, place = objects
    monkeypatch.setattr(cloud, "FIRST_WAIT", 0.02)
    with Proxy(store.address) as proxy:
        for name, text in store.variables(f"127.0.0.1:{proxy.port}").items():
            monkeypatch.setenv(name, text)
        yield proxy, place


@pytest.mark.parametrize("object_store", ["s3"], indirect=True)
class TestFaults:
    """The store misbehaves: the output is the same, or the run says why there is none.

    On Azure: test_stores_series.py, and tests/storage/test_cloud.py on a server of the tests.
    """

    @pytest.mark.parametrize(
        "fault",
        [
            pytest.param(lambda r: 503 if r.number % 9 == 1 else None, id="slow-down"),
            pytest.param(
                lambda r: "cut" if r.kind in ("put", "part") and r.number % 3 == 0 else None, id="cut-put"
            ),
            pytest.param(
                lambda r: "cut answer" if r.kind == "get" and r.number % 4 == 0 else None, id="cut-get"
            ),
            pytest.param(
                lambda r: "lose answer" if r.kind in CHANGES and r.number % 3 == 0 else None, id="lost-answer"
            ),
        ],
    )
    def test_passing_faults_change_nothing(self, fault, proxied, pairs, expected):
        proxy, place = proxied
        proxy.rule = fault
        put(pairs, place)
        assert main(flags(place, place)) == 0
        assert sum(proxy.faults.values()) >= 3
        proxy.rule = lambda request: None
        assert output(place) == expected
        assert FileSystems.folders(f"{place}/temp", "", "") == []

    def test_lasting_faults_are_one_line(self, proxied, pairs, capsys, monkeypatch):
        """A store that takes no message any more: exit code 1, no output, and what is in place is not half of one."""
        proxy, place = proxied
        hurry(monkeypatch, 2)
        proxy.rule = lambda r: (
            503 if r.kind in ("put", "begin", "part") and f"/{FILE_PREFIX}" in r.path else None
        )
        assert main(flags(str(pairs), place)) == 1
        stderr = capsys.readouterr().err
        assert "503" in stderr and "Traceback" not in stderr
        assert output(place) == {}
        assert FileSystems.folders(f"{place}/temp", "", "") == []

    def test_a_store_that_dies_before_the_run(self, proxied, pairs, capsys, monkeypatch):
        """Whatever it takes no more, from a probe of the private folder to its key: a later run may do better."""
        proxy, place = proxied
        hurry(monkeypatch, 1)
        for last in (0, 2):
            proxy.rule = lambda r, last=last: 503 if r.kind == "put" and r.number >= last else None
            proxy.seen.clear()
            assert main(flags(str(pairs), place)) == 1
            stderr = capsys.readouterr().err
            assert "503" in stderr and "Traceback" not in stderr
            assert output(place) == {}


@pytest.mark.parametrize("object_store", ["s3"], indirect=True)
def test_a_listing_that_lags(proxied, pairs, expected, capsys):
    """Where listings do not show what was just written, a run may fail, and never releases other bytes."""
    proxy, place = proxied
    put(pairs, place)
    time.sleep(3)
    proxy.lag = 2.5
    code = main(flags(place, place, f"--checkpoint={place}/kept", "--passes_per_job=1"))
    stderr = capsys.readouterr().err
    proxy.lag = 0
    if code:
        assert code == 1 and (
            "not hold one whole set of shards" in stderr or "does not list yet" in stderr
        ), stderr
        assert output(place) == {}
    else:
        assert output(place) == expected


@pytest.mark.parametrize("name", ["s3", "hdfs"])
def test_a_server_that_starts_anew(name, request, pairs, expected, monkeypatch):
    """kill -9 in the middle of the rounds, of HDFS its name node; what was written is there again when it is back."""
    store = request.getfixturevalue(f"{name}_store")
    for variable, text in store.variables().items():
        monkeypatch.setenv(variable, text)
    place = f"{store.url}/starts-anew"
    argv = [sys.executable, "-m", "dpbeam.cli", *flags(str(pairs), place)]
    run = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: run.poll() is not None or _messages(f"{place}/temp"), 120, "messages in files")
    assert run.poll() is None, run.communicate()[1]
    store.kill()
    gone, back = time.monotonic(), []
    starting = threading.Timer(2, lambda: back.append(store.call("up")))
    starting.start()
    stderr = run.communicate(timeout=240)[1]
    starting.join()
    away = time.monotonic() - gone
    assert back[0].returncode == 0, back[0].stderr
    if away > 25 and run.returncode == 1:  # so slow is the machine: longer than requests are repeated
        assert "does not answer" in stderr and output(place) == {}, stderr
        assert subprocess.run(argv, timeout=240).returncode == 0
        assert output(place) == expected
        return
    assert run.returncode == 0, stderr
    assert output(place) == expected
    assert FileSystems.folders(f"{place}/temp", "", "") == []


def _messages(temp: str) -> list:
    """Messages that travel through files, of any run."""
    return [path for run in FileSystems.folders(temp, "", "") for path in _objects(f"{run}/{FILE_PREFIX}*")]


@OBJECT_STORES
def test_large_objects_are_whole_or_absent(objects, tmp_path):
    """Uploads of many parts: cut, lost, left by their writer; ranges of what is there."""
    store, place = objects
    data = np.random.default_rng(1).bytes(21 << 20)
    with Proxy(store.address) as proxy, pytest.MonkeyPatch.context() as patch:
        for name, text in store.variables(f"127.0.0.1:{proxy.port}").items():
            patch.setenv(name, text)
        faults = {"part": "cut", "complete": "lose answer", "get": "cut answer"}
        proxy.rule = lambda r: None if r.number else faults.get(r.kind)
        with FileSystems.put(f"{place}/whole") as file:
            for start in range(0, len(data), 1 << 20):
                file.write(data[start : start + (1 << 20)])
                assert not FileSystems.exists(f"{place}/whole")
        assert proxy.seen["part"] >= 3 and proxy.faults.keys() >= {"part", "complete"}
        assert FileSystems.read(f"{place}/whole") == data
        assert proxy.faults["get"] == 1
        assert FileSystems.read_range(f"{place}/whole", 5, 17 << 20) == data[5 : 5 + (17 << 20)]
        with pytest.raises(OSError):
            FileSystems.read_range(f"{place}/whole", len(data) - 5, 6)
        with FileSystems.open(f"{place}/whole") as file:
            file.seek(-10, os.SEEK_END)
            assert file.read(100) == data[-10:]
    with pytest.raises(RuntimeError), FileSystems.put(f"{place}/left") as file:
        file.write(data)
        raise RuntimeError
    file = FileSystems.put(f"{place}/lost/one")
    file.write(data)
    del file
    assert not FileSystems.exists(f"{place}/left") and not FileSystems.exists(f"{place}/lost/one")


@OBJECT_STORES
def test_an_object_that_is_replaced_while_it_is_read(objects):
    """A reader keeps to one version, and says so where there is another."""
    _, place = objects
    size = 20 << 20
    for text in (b"a", b"b"):
        with FileSystems.put(f"{place}/x") as file:
            file.write(text * size)
        if text == b"a":
            reader = FileSystems.open(f"{place}/x")
            assert reader.read(5) == b"aaaaa"
    with pytest.raises(OSError, match="the object was replaced while it was read"):
        reader.read()


@pytest.mark.parametrize("store", ["s3", "azure", "hdfs"])
def test_a_late_worker_does_not_bring_a_folder_back(store, request, monkeypatch):
    """What it writes after the end of the run would be private data that nobody removes."""
    remote = request.getfixturevalue(f"{store}_store")
    for variable, text in remote.variables().items():
        monkeypatch.setenv(variable, text)
    place = f"{remote.url}/late"
    folder = RunFolder(place)
    assert owner.state_of(folder.path) == "alive"
    large, small = b"x" * (9 << 20), b"y"
    folder.store.write_bytes("block-1", large)
    folder.store.write_bytes("block-2", small)
    assert folder.store.names("block-") == ["block-1", "block-2"]
    assert folder.store.read_bytes("block-1") == large and folder.store.read_bytes("block-2") == small
    if store != "hdfs":  # which refuses by itself, after half a minute
        with pytest.raises(OSError), folder.store.create("late-1") as late:
            late.write(large)
            folder.remove()
            late.write(small)
    folder.remove()
    for data in (small, large):
        with pytest.raises(OSError):
            folder.store.write_bytes("late-2", data)
    assert FileSystems.folders(place, "", "") == []


@pytest.mark.parametrize("store", ["s3", "azure", "hdfs"])
def test_a_place_is_bound_once(store, request, monkeypatch):
    """What a run's noise is added to, by workers that know of each other through the store alone."""
    remote = request.getfixturevalue(f"{store}_store")
    for variable, text in remote.variables().items():
        monkeypatch.setenv(variable, text)
    with RunFolder(f"{remote.url}/bound") as folder:
        assert folder.store.bind("a", b"1" * 32) and folder.store.bind("a", b"1" * 32)
        assert not folder.store.bind("a", b"2" * 32)
        with ThreadPoolExecutor(8) as pool:
            digests = [bytes([n % 3]) * 32 for n in range(8)]
            won = {
                d for d, may in zip(digests, pool.map(lambda d: folder.store.bind("b", d), digests)) if may
            }
        assert len(won) <= 1


def test_staged_output_on_hdfs_is_its_owners_and_the_output_is_not(hdfs_store):
    target = OutputTarget(f"{hdfs_store.url}/staged/new/out")
    files = FileSystems.at(target.staging)

    def about(path):
        return files._ask(path, lambda client, name: client.status(name))

    with FileSystems.put(FileSystems.join(target.prepare(), "shard-00000-of-00001.parquet")) as file:
        file.write(b"x")
    assert about(target.staging)["permission"] == "700"
    assert about(FileSystems.split(target.prefix)[0])["permission"] != "700"
    target.abort()


def test_hdfs_answers_late(hdfs_store, pairs, expected, monkeypatch):
    """503 of the name node is repeated and never taken for a file that is not there."""
    monkeypatch.setattr(hdfs, "patiently", partial(patiently, sleep=lambda seconds: time.sleep(seconds / 20)))
    with Proxy(hdfs_store.address) as proxy:
        place = f"hdfs://127.0.0.1:{proxy.port}/faults"
        put(pairs, place)
        proxy.rule = lambda r: 503 if r.kind in ("get", "delete") and r.number % 3 == 1 else None
        assert main(flags(place, place)) == 0
        assert proxy.faults["get"] >= 3
        proxy.rule = lambda r: None
        assert output(place) == expected
        assert FileSystems.folders(f"{place}/temp", "", "") == []


def test_the_policy_of_the_document_is_enough_and_narrow(s3, pairs, expected, monkeypatch, capsys):
    """A user with the policy of docs/how-to/stores.md can do a whole run, and nothing beside it."""
    import boto3

    store, _ = s3
    text = (ROOT / "docs/how-to/stores.md").read_text()
    policy = json.loads(re.search(r"```json\n(.*?)```", text, re.DOTALL)[1])
    client = boto3.client("s3")
    put(pairs, f"{store.url}/pairs")
    server = [s3_server(options.cache_folder()), "admin", "--er", f"http://{store.address}"]
    owner_keys = ["-a", os.environ["AWS_ACCESS_KEY_ID"], "-s", os.environ["AWS_SECRET_ACCESS_KEY"]]
    user = ["create-user", "-a", "dpbeam-run", "-s", "narrow", "-r", "user"]
    done = subprocess.run([*server, *owner_keys, *user], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    client.put_bucket_policy(Bucket="dpbeam", Policy=json.dumps(policy))
    try:
        with FileSystems.put(f"{store.url}/elsewhere/x") as file:
            file.write(b"x")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "dpbeam-run")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "narrow")
        place = f"{store.url}/team"
        argv = flags(f"{store.url}/pairs", place, f"--checkpoint={place}/temp", "--passes_per_job=2")
        assert main(argv) == 0, capsys.readouterr().err
        assert output(place) == expected
        assert main([*argv, "--overwrite"]) == 0
        for forbidden in (
            lambda: FileSystems.read(f"{store.url}/elsewhere/x"),
            lambda: FileSystems.list_prefix(f"{store.url}/elsewhere/"),
            lambda: FileSystems.delete([f"{store.url}/pairs/part-0.parquet"]),
            lambda: FileSystems.put(f"{store.url}/pairs/part-9.parquet").close(),
        ):
            with pytest.raises(OSError):
                forbidden()
    finally:
        client.delete_bucket_policy(Bucket="dpbeam")
