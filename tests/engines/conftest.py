"""Real engines for tests: clusters on loopback, shared job servers, and a way to run a program on each.

Fixtures for any test in this folder:

    engine(name)     -> Engine for a name in ENGINES; starts what it needs, once per session
    flink_cluster    -> Cluster: the standalone Flink cluster of scripts/flink, on ports of its own
    spark_cluster    -> Cluster: the standalone Spark cluster of scripts/spark, on ports of its own
    pyspark_cluster  -> Cluster: a standalone cluster of PySpark's own jars

`Engine.flags` are the flags that a user would give; `Engine.run(argv)` runs a program with them appended, as
`engine("flink-cluster").run([sys.executable, "-m", "pipelines.select_items", "--input", ...])`. The job server is
shared (`--job_endpoint`), which saves ten seconds a job and changes nothing else.

Every test that asks for these fixtures is marked `engines`, but for those on the runner in this process (`direct`).
What the scripts fetch is kept in the cache. Where Java, Maven or Go is absent, or the cache is empty and there is no
network, the tests are skipped with a line that says what they need, except where CI is set: there they must run.
"""

from __future__ import annotations

import base64
import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NoReturn

import pytest

from dpbeam.runners import options
from tests.support.stores import (
    Store,
    azurite,
    free_port,
    hadoop,
    quiet_ports,
    running,
    s3_server,
    yarn,
)
from tests.support.waiting import PATIENCE, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENGINES = (
    "direct",
    "direct-2",
    "prism",
    "flink-embedded",
    "flink-cluster",
    "flink-cluster-in-turns",
    "pyspark-local",
    "pyspark-local-cluster",
    "pyspark-cluster",
    "pyspark-twice",
    "spark-embedded",
    "spark-cluster",
    "spark-cluster-kept",
)
#: With a second copy of whatever takes long, on another host.
_SPECULATION = [
    f"--spark_conf=spark.speculation{setting}"
    for setting in ("=true", ".interval=100ms", ".multiplier=1.5", ".quantile=0.25", ".minTaskRuntime=2s")
]
RUN_SECONDS = 600 * PATIENCE
_TAG = "DPBEAM_TEST_CLUSTER"
_SPARK_OPENS = (
    "java.base/sun.nio.ch",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.lang.invoke",
)


_REAL = {"engine", "rounds_job", "flink_cluster", "spark_cluster", "pyspark_cluster"}
_STORES = {"s3_store", "azure_store", "hdfs_store", "yarn_on_hdfs", "object_store"}


def pytest_collection_modifyitems(items) -> None:
    """Mark what needs a real engine: by its fixtures, unless its parameter `name` is the runner in this process."""
    for item in items:
        name = getattr(item, "callspec", None) and item.callspec.params.get("name")
        used = set(getattr(item, "fixturenames", ()))
        if _STORES & used or (_REAL & used and str(name) != "direct"):
            item.add_marker(pytest.mark.engines)


def tagged_processes(tag: str, only: str = "") -> dict[int, str]:
    """Processes that inherited a cluster's tag: id -> command line containing `only`."""
    processes = {}
    for folder in pathlib.Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if command and only in command and f"{_TAG}={tag}".encode() in (folder / "environ").read_bytes():
                processes[int(folder.name)] = command
    return processes


@dataclass
class Run:
    """How a program ended."""

    code: int
    log: str


@dataclass
class Engine:
    """Where to run a program: its Beam flags and environment."""

    name: str
    flags: list[str]
    tag: str
    environment: dict[str, str] = field(default_factory=dict)

    def start(self, argv: list[str], log: pathlib.Path) -> subprocess.Popen:
        """Start a program in its own session, its output in a file; see `finish`."""
        with open(log, "wb") as sink:
            return subprocess.Popen(
                [*argv, *self.flags],
                stdout=sink,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                cwd=ROOT,
                env={**os.environ, _TAG: self.tag, **self.environment},
            )

    def finish(self, process: subprocess.Popen, log: pathlib.Path, seconds: float = RUN_SECONDS) -> Run:
        """Wait for a started program; ends it and fails the test if it takes too long."""
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            pytest.fail(f"{self.name}: no end within {seconds} s\n{log.read_text(errors='replace')[-4000:]}")
        return Run(code, log.read_text(errors="replace"))

    def run(self, argv: list[str], log: pathlib.Path, seconds: float = RUN_SECONDS) -> Run:
        return self.finish(self.start(argv, log), log, seconds)

    def python_workers(self) -> dict[int, str]:
        """Python worker processes that this engine started and that still live."""
        return tagged_processes(self.tag, "pyspark.daemon" if "pyspark" in self.name else "dpbeam-worker")


@dataclass
class Cluster:
    """A standalone cluster: address for clients, and the script that repairs it."""

    script: str
    address: str
    tag: str
    environment: dict[str, str]

    def call(self, command: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [str(ROOT / "scripts" / self.script), command],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=900,
            env={**os.environ, **self.environment},
        )


def _refuse(message: str) -> NoReturn:
    """Skip the test, with one line of reason; in CI it fails, as nothing may be left out there."""
    if os.environ.get("CI"):
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


def java() -> str:
    """The Java that runs engines and job servers, as the scripts find it."""
    home = os.environ.get("JAVA_HOME", "")
    path = shutil.which("java", path=f"{home}/bin") if home else None
    return path or shutil.which("java") or _refuse("needs Java 17: install a runtime or set JAVA_HOME")


def _fetch(script: str) -> str:
    """Run a fetching script and return what it prints; refuses where it cannot work."""
    cache = options.cache_folder()
    if script in ("prism", "s3"):
        built = os.path.exists(options.prism_binary(cache) if script == "prism" else s3_server(cache))
        if not built and shutil.which("go") is None:
            _refuse(
                f"needs Go 1.24 or later, to build {'Prism' if script == 'prism' else 'the S3 server'} once"
            )
    elif script == "azure":
        if shutil.which("node") is None:
            _refuse("needs Node.js, for Azurite")
        if not os.path.exists(azurite(cache)) and shutil.which("npm") is None:
            _refuse("needs npm, to fetch Azurite once")
    else:
        java()
        fetched = {
            "flink": options.flink_jar,
            "spark": options.spark_jar,
            "hdfs": hadoop,
            "yarn": yarn,
        }
        made = fetched[script](cache)
        if not os.path.exists(made) and shutil.which("mvn") is None:
            _refuse("needs Maven, to build the job servers and to fetch Hadoop once")
    argv = [str(ROOT / "scripts" / script), *([] if script == "prism" else ["fetch"])]
    done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=1800)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        _refuse(f"scripts/{script} cannot fetch what it needs and the cache lacks it: {reason}")
    return done.stdout.strip()


def _cluster(script: str, ports: dict[str, int], address: str) -> Iterator[Cluster]:
    _fetch(script)
    tag = uuid.uuid4().hex
    environment = {_TAG: tag, **{name: str(port) for name, port in ports.items()}}
    cluster = Cluster(script, address, tag, environment)
    up = cluster.call("up")
    try:
        assert up.returncode == 0, up.stderr
        yield cluster
    finally:
        down = cluster.call("down")
        assert down.returncode == 0, down.stderr
        wait_until(lambda: not tagged_processes(tag), 20, f"end of every process of {script}")


@pytest.fixture(scope="session")
def aws_keys() -> Iterator[dict[str, str]]:
    """Credentials of the S3 store, in the environment of all that is started here: where its clients look for them."""
    made = {
        "AWS_ACCESS_KEY_ID": f"key{uuid.uuid4().hex[:17]}",
        "AWS_SECRET_ACCESS_KEY": uuid.uuid4().hex,
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in made.items():
            patch.setenv(name, value)
        yield made


@pytest.fixture(scope="session")
def s3_store(aws_keys, tmp_path_factory) -> Iterator[Store]:
    """The S3 server of scripts/s3 on a port of its own."""
    _fetch("s3")
    port = quiet_ports(1)
    store = Store("s3", "s3://dpbeam", f"127.0.0.1:{port}", {"S3_PORT": str(port), **aws_keys})
    store.finding = {"AWS_ENDPOINT_URL": "http://{}"}
    with running(store, options.cache_folder(), tmp_path_factory.mktemp("s3") / "store"):
        yield store


@pytest.fixture(scope="session")
def azure_account() -> Iterator[dict[str, str]]:
    """Where the Azure store will be and its credentials, in the environment of all that is started here."""
    port, key = quiet_ports(1), base64.b64encode(uuid.uuid4().bytes).decode()
    text = (
        f"DefaultEndpointsProtocol=http;AccountName=dpbeam;AccountKey={key};BlobEndpoint=http://{{}}/dpbeam;"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AZURE_STORAGE_CONNECTION_STRING", text.replace("{}", f"127.0.0.1:{port}"))
        yield {"port": str(port), "key": key, "connection": text}


@pytest.fixture(scope="session")
def azure_store(azure_account, tmp_path_factory) -> Iterator[Store]:
    """The server of scripts/azure on a port of its own."""
    _fetch("azure")
    port = azure_account["port"]
    settings = {
        "AZURE_PORT": port,
        "AZURE_STORAGE_ACCOUNT": "dpbeam",
        "AZURE_STORAGE_KEY": azure_account["key"],
    }
    store = Store("azure", "az://dpbeam", f"127.0.0.1:{port}", settings)
    store.finding = {"AZURE_STORAGE_CONNECTION_STRING": azure_account["connection"]}
    with running(store, options.cache_folder(), tmp_path_factory.mktemp("azure") / "store"):
        yield store


@pytest.fixture
def object_store(request, monkeypatch) -> Store:
    """The store that the test's parameter names, which clients find."""
    store = request.getfixturevalue(f"{request.param}_store")
    for name, text in store.variables().items():
        monkeypatch.setenv(name, text)
    return store


@pytest.fixture(scope="session")
def hdfs_store(tmp_path_factory) -> Iterator[Store]:
    """The nodes of scripts/hdfs on ports of their own."""
    _fetch("hdfs")
    port = quiet_ports(5)
    ports = {"HDFS_PORT": str(port), "HDFS_RPC_PORT": str(port + 1), "HDFS_DATA_PORT": str(port + 2)}
    store = Store("hdfs", f"hdfs://127.0.0.1:{port}", f"127.0.0.1:{port}", ports)
    with running(store, options.cache_folder(), tmp_path_factory.mktemp("hdfs") / "store"):
        yield store


@pytest.fixture(scope="session")
def yarn_on_hdfs(hdfs_store, tmp_path_factory) -> Iterator[Store]:
    """The manager and two nodes of scripts/yarn; `finding` is the environment of who submits to it."""
    _fetch("yarn")
    port, folder = quiet_ports(15), tmp_path_factory.mktemp("yarn") / "store"
    names = f"hdfs://127.0.0.1:{hdfs_store.environment['HDFS_RPC_PORT']}"
    settings = {"YARN_PORT": str(port), "YARN_STORE": names}
    store = Store("yarn", hdfs_store.url, f"127.0.0.1:{port}", settings)
    store.finding = {"HADOOP_CONF_DIR": str(folder / "cache" / "run" / f"yarn-{port}" / "conf")}
    with running(store, options.cache_folder(), folder):
        yield store


@pytest.fixture(scope="session")
def flink_cluster(aws_keys, azure_account) -> Iterator[Cluster]:
    port = quiet_ports(2)
    yield from _cluster("flink", {"FLINK_PORT": port, "FLINK_RPC_PORT": port + 1}, f"localhost:{port}")


@pytest.fixture(scope="session")
def spark_cluster(aws_keys, azure_account) -> Iterator[Cluster]:
    # Workers take the two ports after the UI's; a pair below the ephemeral range stays free.
    ui = 20000 + os.getpid() % 4000 * 3
    port = free_port()
    yield from _cluster("spark", {"SPARK_PORT": port, "SPARK_UI_PORT": ui}, f"spark://localhost:{port}")


def pyspark_daemon(role: str, *flags: str) -> tuple[list[str], dict[str, str]]:
    """The command, and its variables, of a "Master" or "Worker" of a standalone cluster of PySpark's own jars."""
    home = pathlib.Path(pytest.importorskip("pyspark").__file__).parent
    argv = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{role.lower()}.{role}", *flags]
    return argv, {"SPARK_HOME": str(home)}


@pytest.fixture(scope="session")
def pyspark_cluster(aws_keys, azure_account, tmp_path_factory) -> Iterator[Cluster]:
    """A standalone cluster of PySpark's own jars: two workers of a core each, on hosts of different names."""
    java()
    folder, tag, port = tmp_path_factory.mktemp("pyspark"), uuid.uuid4().hex, free_port()
    address = f"spark://127.0.0.1:{port}"
    started = []

    def start(role: str, *flags: str) -> None:
        argv, variables = pyspark_daemon(role, *flags, "--webui-port", "0")
        with open(folder / f"{len(started)}.log", "wb") as log:
            started.append(
                subprocess.Popen(
                    argv,
                    stdout=log,
                    stderr=log,
                    stdin=subprocess.DEVNULL,
                    env={**os.environ, **variables, _TAG: tag, "SPARK_LOCAL_DIRS": str(folder)},
                )
            )

    def says(number: int, what: str) -> bool:
        assert started[number].poll() is None, (folder / f"{number}.log").read_text()[-2000:]
        return what in (folder / f"{number}.log").read_text()

    try:
        start("Master", "--host", "127.0.0.1", "--port", str(port))
        wait_until(lambda: says(0, "elected leader"), 90, "Spark's master")
        for host in ("127.0.0.2", "127.0.0.3"):
            start("Worker", "--host", host, "-c", "1", "-m", "1g", "-d", str(folder / host), address)
        wait_until(lambda: says(1, "registered with") and says(2, "registered with"), 90, "Spark's workers")
        yield Cluster("", address, tag, {})
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(30 * PATIENCE)
        wait_until(lambda: not tagged_processes(tag), 30, "end of every process of Spark")


@pytest.fixture(scope="session")
def job_servers(tmp_path_factory) -> Iterator[Callable[[str, list[str], str], str]]:
    """Starts job servers that all jobs of one engine share; returns their addresses."""
    processes, addresses = [], {}
    folder = tmp_path_factory.mktemp("job-servers")

    def address_of(jar: str, flags: list[str], tag: str) -> str:
        key = (jar, *flags)
        if key in addresses:
            return addresses[key]
        port = free_port()
        opens = [f"--add-opens={module}=ALL-UNNAMED" for module in _SPARK_OPENS]
        ports = [
            "--job-host",
            "localhost",
            "--job-port",
            str(port),
            "--artifact-port",
            "0",
            "--expansion-port",
            "0",
        ]
        argv = [
            java(),
            "-Xmx768m",
            *opens,
            "-jar",
            jar,
            *ports,
            "--artifacts-dir",
            str(folder / str(port)),
            *flags,
        ]
        with open(folder / f"{port}.log", "wb") as log:
            processes.append(
                subprocess.Popen(
                    argv,
                    stdout=log,
                    stderr=log,
                    stdin=subprocess.DEVNULL,
                    env={**os.environ, _TAG: f"server-{tag}"},
                )
            )

        def answers() -> bool:
            assert processes[-1].poll() is None, (folder / f"{port}.log").read_text()[-2000:]
            with contextlib.suppress(OSError), socket.create_connection(("localhost", port), 1):
                return True
            return False

        wait_until(answers, 90, f"job server {jar}")
        addresses[key] = f"localhost:{port}"
        return addresses[key]

    yield address_of
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(20 * PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()


@pytest.fixture(scope="session")
def engine(request, job_servers) -> Callable[[str], Engine]:
    made: dict[str, Engine] = {}

    def get(name: str) -> Engine:
        if name not in made:
            made[name] = _make(name, request, job_servers)
        return made[name]

    return get


def _make(name: str, request, job_servers) -> Engine:
    cache = options.cache_folder()
    tag = uuid.uuid4().hex
    if name == "direct":
        return Engine(name, [], tag)
    if name == "direct-2":
        return Engine(name, ["--direct_num_workers=2", "--direct_running_mode=multi_processing"], tag)
    if name == "prism":
        return Engine(name, ["--runner=PrismRunner", f"--prism_location={_fetch('prism')}"], tag)
    if name.startswith("pyspark-local"):
        java()
        pytest.importorskip("pyspark")
        master = "local-cluster[2,1,1024]" if name.endswith("cluster") else "local[2]"
        return Engine(name, ["--runner=PySparkRunner", f"--spark_master_url={master}"], tag)
    if name.startswith("pyspark"):
        cluster = request.getfixturevalue("pyspark_cluster")
        flags = ["--runner=PySparkRunner", f"--spark_master_url={cluster.address}"]
        return Engine(name, [*flags, *_SPECULATION * name.endswith("twice")], cluster.tag)
    if name == "flink-embedded":
        _fetch("flink")
        return Engine(name, ["--runner=FlinkRunner", "--flink_master=[local]", "--parallelism=2"], tag)
    if name == "spark-embedded":
        _fetch("spark")
        return Engine(name, ["--runner=SparkRunner", "--spark_master_url=local[2]"], tag)
    if name in ("flink-cluster", "flink-cluster-in-turns"):
        cluster = request.getfixturevalue("flink_cluster")
        server = job_servers(options.flink_jar(cache), ["--flink-master", cluster.address], cluster.tag)
        flags = ["--runner=FlinkRunner", f"--flink_master={cluster.address}", f"--job_endpoint={server}"]
        if name.endswith("in-turns"):
            flags += ["--parallelism=5", "--execution_mode_for_batch=BATCH"]
        return Engine(name, flags, cluster.tag)
    if name.startswith("spark-cluster"):
        cluster = request.getfixturevalue("spark_cluster")
        server = job_servers(options.spark_jar(cache), ["--spark-master-url", cluster.address], cluster.tag)
        flags = ["--runner=SparkRunner", f"--spark_master_url={cluster.address}", f"--job_endpoint={server}"]
        if name.endswith("kept"):  # a third less time; not where workers die, see docs/how-to/spark.md
            flags.append("--environment_cache_millis=30000")
        return Engine(name, flags, cluster.tag)
    raise ValueError(f"no engine {name!r}; one of {ENGINES}")


class RoundsJob:
    """The small job of rounds_job.py on one engine."""

    def __init__(self, on: Engine, folder: pathlib.Path):
        self.engine, self.folder = on, folder
        self.state = folder / "state"
        self.state.mkdir()
        self.output = folder / "out"
        self.log = folder / "log"

    def argv(self, *flags: str) -> list[str]:
        program = str(pathlib.Path(__file__).parent / "rounds_job.py")
        return [sys.executable, program, f"--folder={self.state}", f"--output={self.output}", *flags]

    def run(self, *flags: str) -> Run:
        return self.engine.run(self.argv(*flags), self.log)

    def start(self, *flags: str) -> subprocess.Popen:
        return self.engine.start(self.argv(*flags), self.log)

    def finish(self, process: subprocess.Popen) -> Run:
        return self.engine.finish(process, self.log)

    def reached(self) -> int:
        """Wait for a job that holds; the id of its Python worker."""
        mark = self.state / "reached"
        wait_until(mark.exists, 120, "the job to reach its last round")
        return int(mark.read_text())

    def go_on(self) -> None:
        (self.state / "go").touch()

    def result(self) -> tuple[bytes, bytes]:
        return self.output.read_bytes(), self.output.with_name("out.count").read_bytes()


@pytest.fixture
def rounds_job(engine, tmp_path) -> Callable[[str], RoundsJob]:
    return lambda name: RoundsJob(engine(name), tmp_path)


@pytest.fixture(scope="session")
def expected(engine, tmp_path_factory) -> tuple[bytes, bytes]:
    """The result of the rounds in one process, without faults."""
    job = RoundsJob(engine("direct"), tmp_path_factory.mktemp("expected"))
    run = job.run()
    assert run.code == 0, run.log
    return job.result()
