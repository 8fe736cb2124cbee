"""Preflight of a runner: what a job would need, whether it is there, and the fix for each thing that is not.

A job on a cluster that lacks something fails after minutes, deep in another program's log. Every row here takes
seconds at most and changes nothing. Rows are data; the command line prints them.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import IO

import apache_beam
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions
from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator

from dpbeam.errors import InputError
from dpbeam.runners import matrix
from dpbeam.runners import options as engine_options
from dpbeam.runners.options import EngineFlags
from dpbeam.runners.pyspark.session import parse as settings
from dpbeam.runners.pyspark.session import standing
from dpbeam.storage import FileSystems
from dpbeam.storage.reasons import is_passing, missing_filesystem, reason

_SECONDS = 5.0


@dataclass(frozen=True)
class Row:
    """One line of the preflight.

    Attributes:
      what: the thing checked.
      level: "ok", "warn" (the job may run) or "refuse" (it would fail).
      finding: what is there.
      fix: what to do; empty where level is "ok".
      passing: it may be there a minute later, though nobody fixes anything.
    """

    what: str
    level: str
    finding: str
    fix: str = ""
    passing: bool = field(default=False, kw_only=True)

    @property
    def ok(self) -> bool:
        """Whether the command would go on."""
        return self.level != "refuse"


@dataclass(frozen=True)
class Path:
    """A path that the job uses. `use` is "input", "output" or "temp"; `flag` names it in messages."""

    flag: str
    value: str
    use: str


def preflight(
    argv: Sequence[str], paths: Sequence[Path] = (), shared_folders: Sequence[str] | None = None
) -> list[Row]:
    """Check everything that a job with these Beam flags needs before its first element.

    Args:
      argv: Beam flags as the user gave them, without what `complete` adds.
      paths: paths that the job reads and writes.
      shared_folders: local folders that every worker sees at the same place (network mounts); default
        $DPBEAM_SHARED_FOLDERS, separated by colons.

    Returns:
      rows in the order of a job's start; the job can start if all are `ok`.
    """
    if shared_folders is None:
        shared_folders = [f for f in os.environ.get("DPBEAM_SHARED_FOLDERS", "").split(":") if f]
    try:
        flags = engine_options.read(argv)
        engine_options.check_runner_name(flags)
        rows = _versions(flags) + _runs_here(flags)
        engines = {"PrismRunner": _prism, "FlinkRunner": _flink, "SparkRunner": _spark}
        rows += {**engines, "PySparkRunner": _pyspark}.get(flags.runner, lambda _: [])(flags)
        rows += _dataflow(flags, argv) if flags.runner == "DataflowRunner" else []
        if flags.runner == "PortableRunner" and not flags.job_endpoint:
            rows.append(
                Row("job server", "refuse", "PortableRunner has no address", "give --job_endpoint=HOST:PORT")
            )
        if flags.job_endpoint:
            rows.append(_reachable("job server", "--job_endpoint", flags.job_endpoint))
        rows += _workers(flags) + _staged(flags)
    except InputError as error:
        return [Row("flags", "refuse", str(error), "correct the flag")]
    return rows + [check_path(flags, path, shared_folders) for path in _with_temp(flags, paths)]


def _row(what: str, verdict: matrix.Verdict) -> Row:
    return Row(what, verdict.level, verdict.reason, verdict.fix)


def _versions(flags: EngineFlags) -> list[Row]:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    runner = _row("runner", matrix.runner(flags.runner))
    return [runner, _row("Beam", matrix.beam(apache_beam.__version__)), _row("Python", matrix.python(python))]


def _runs_here(flags: EngineFlags) -> list[Row]:
    """The launcher publishes the output when the job has ended, so a job that is only written has none."""
    flag = flags.written_and_not_run
    if flag is None or flags.is_default:  # which ignores both
        return []
    finding = f"--{flag} writes the job to a file, and the launcher publishes the output of a job that it ran"
    return [Row("job", "refuse", finding, f"leave out --{flag}")]


def _dataflow(flags: EngineFlags, argv: Sequence[str]) -> list[Row]:
    """What Dataflow would refuse, or fail of, that shows without an account there."""
    options = PipelineOptions(list(argv))
    rules = PipelineOptionsValidator(options, None)
    faults = rules.validate_cloud_options(options.view_as(GoogleCloudOptions))
    rows = [Row("Dataflow", "refuse", fault.rstrip("."), "correct the flag") for fault in faults]
    try:
        installed = importlib.util.find_spec("google.cloud.dataflow") is not None
    except ModuleNotFoundError:
        installed = False
    if not installed:
        fix = "pip install 'apache-beam[gcp]'"
        rows.append(Row("Dataflow", "refuse", "Beam's part for Google Cloud is not installed", fix))
    if not (flags.temp_location or "").startswith("gs://"):
        fix = "name a folder of a bucket, --temp_location=gs://BUCKET/FOLDER"
        rows.append(Row("--temp_location", "refuse", "Dataflow stages its files on gs:// alone", fix))
    if flags.sdk_container_image is None and not flags.staged:
        fix = "give --sdk_container_image, an image made from Beam's with dpbeam in it"
        rows.append(Row("workers", "refuse", "containers of Beam's own image, which lacks dpbeam", fix))
    return rows


def _prism(flags: EngineFlags) -> list[Row]:
    binary = flags.prism_location or engine_options.prism_binary(engine_options.cache_folder())
    if flags.job_endpoint:
        return []
    return [_file("Prism", binary, "run scripts/prism, or give --prism_location", _runs_prism)]


def _runs_prism(path: str) -> str | None:
    return None if os.access(path, os.X_OK) else "is not executable"


def _flink(flags: EngineFlags) -> list[Row]:
    rows = _job_server(flags, flags.flink_job_server_jar, engine_options.flink_jar, "scripts/flink fetch")
    address = engine_options.flink_address(flags)
    if address is None:
        return rows
    overview = engine_options.flink_overview(address)
    if overview is None:
        fix = "start the cluster (scripts/flink up on this machine) or correct --flink_master"
        return [*rows, Row("Flink cluster", "refuse", f"{address} does not answer", fix)]
    rows.append(_row("Flink cluster", matrix.flink(overview["flink-version"])))
    slots, free = overview.get("slots-total", 0), overview.get("slots-available", 0)
    slots_text = f"{overview.get('taskmanagers', 0)} task managers, {slots} slots, {free} free"
    wanted = int(flags.parallelism or slots)
    if slots and flags.in_turns:
        wanted = min(wanted, slots)
    if slots == 0 or wanted > slots:
        fix = (
            "start task managers"
            if slots == 0
            else f"set --parallelism={slots}, or add task managers or --execution_mode_for_batch=BATCH"
        )
        rows.append(Row("Flink slots", "refuse", slots_text, fix))
    elif free < wanted:
        rows.append(Row("Flink slots", "warn", slots_text, "other jobs hold slots; this job waits for them"))
    else:
        rows.append(Row("Flink slots", "ok", slots_text))
    return rows


def _spark(flags: EngineFlags) -> list[Row]:
    rows = _job_server(flags, flags.spark_job_server_jar, engine_options.spark_jar, "scripts/spark fetch")
    master = flags.spark_master_url
    if master is None or engine_options.is_local_spark(master) or flags.spark_submit_uber_jar:
        return rows
    # A Spark master does not tell its release to clients, so the row says which one it must be.
    return [
        *rows,
        _reachable("Spark cluster", "--spark_master_url", master, f"; must run Spark {matrix.SPARK}"),
    ]


def _pyspark(flags: EngineFlags) -> list[Row]:
    """PySpark is here, and there is a session or what one is made of."""
    if importlib.util.find_spec("pyspark") is None:
        fix = "pip install 'dpbeam[pyspark]', or start the job with Spark's own spark-submit"
        return [Row("PySpark", "refuse", "is not installed", fix)]
    rows = [_row("PySpark", matrix.pyspark(importlib.import_module("pyspark.version").__version__))]
    try:
        settings(flags.spark_conf or ())
        session = standing()
    except InputError as error:
        return [*rows, Row("Spark", "refuse", str(error), "correct it")]
    if session is not None:
        return [*rows, Row("Spark", "ok", f"the session that stands here, on {session.master}")]
    rows.append(
        _java(os.path.join(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else "java")
    )
    master = engine_options.pyspark_master(flags)
    if master.startswith("spark://"):
        rows.append(_reachable("Spark cluster", "--spark_master_url", master))
    else:
        rows.append(Row("Spark", "ok", f"a session is made on {master}"))
    python = os.environ.get("PYSPARK_PYTHON", sys.executable)
    where = "" if flags.embedded else ", which must exist on every worker machine, with dpbeam"
    return [*rows, Row("workers", "ok", f"processes of {python}{where}")]


def _job_server(flags: EngineFlags, jar: str | None, cached: Callable[[str], str], fetch: str) -> list[Row]:
    if flags.job_endpoint or flags.flink_submit_uber_jar or flags.spark_submit_uber_jar:
        return []
    rows = [_java(flags.job_server_java_launcher or "java")]
    if jar and "://" in jar:
        return [
            *rows,
            Row("job server", "warn", f"{jar} is fetched at start", f"run {fetch} to have one here"),
        ]
    path = jar or cached(engine_options.cache_folder())
    if jar is None and not os.path.exists(path):
        fix = f"run {fetch}; without it Beam fetches its own job server at start"
        return [*rows, Row("job server", "warn", f"{path} is missing", fix)]
    return [*rows, _file("job server", path, f"run {fetch}, or correct the flag of the job server jar")]


def _java(launcher: str) -> Row:
    """The launcher runs and is of a tested release."""
    path = shutil.which(launcher)
    fix = "install Java 17 and put it on the PATH, or give --job_server_java_launcher"
    if path is None:
        return Row("Java", "refuse", f"{launcher} is not found", fix)
    try:
        done = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return Row("Java", "refuse", f"{path} does not run: {type(error).__name__}", fix)
    version = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    if version is None:
        return Row("Java", "warn", f"{path} does not tell its version", fix)
    return _row("Java", matrix.java(int(version.group(1))))


def _file(what: str, path: str, fix: str, fault: Callable[[str], str | None] = lambda _: None) -> Row:
    if not os.path.isfile(path):
        return Row(what, "refuse", f"{path} is missing", fix)
    problem = fault(path)
    if problem:
        return Row(what, "refuse", f"{path} {problem}", fix)
    return Row(what, "ok", path)


def _reachable(what: str, flag: str, address: str, note: str = "") -> Row:
    host, port = engine_options.host_and_port(address)
    if port is None:
        return Row(what, "refuse", f"{flag}={address} has no port", f"give {flag} with HOST:PORT")
    try:
        socket.create_connection((host, port), timeout=_SECONDS).close()
    except OSError:
        return Row(what, "refuse", f"{host}:{port} does not answer", f"start it or correct {flag}")
    return Row(what, "ok", f"{host}:{port} answers{note}")


def _workers(flags: EngineFlags) -> list[Row]:
    """How Python workers start."""
    if flags.runner not in ("FlinkRunner", "SparkRunner", "PrismRunner"):
        return []
    kind = flags.environment_type
    if kind is None and flags.embedded:
        kind = "LOOPBACK"
    if kind == "LOOPBACK":
        if flags.cluster_host and not _is_here(flags.cluster_host):
            fix = "use --environment_type=PROCESS with dpbeam installed on every worker"
            return [Row("workers", "refuse", "LOOPBACK workers run here, the cluster cannot reach them", fix)]
        return [Row("workers", "ok", "LOOPBACK: threads of this process")]
    if kind == "DOCKER" or (kind is None and flags.sdk_container_image):
        image = flags.sdk_container_image or flags.environment_config
        if image is None:
            fix = "build the Dockerfile and give --sdk_container_image"
            return [Row("workers", "refuse", "containers of Beam's own image, which lacks dpbeam", fix)]
        return [Row("workers", "ok", f"containers of {image}")]
    if kind == "PROCESS" or kind is None:
        return [_process_worker(flags)]
    return [Row("workers", "ok", f"{kind}, set by the user")]


def _staged(flags: EngineFlags) -> list[Row]:
    """Engines read files that go with a job from the folder in which the job server put them."""
    on_its_disk = flags.runner in ("FlinkRunner", "SparkRunner") and not flags.job_endpoint
    elsewhere = flags.cluster_host is not None and not _is_here(flags.cluster_host)
    if not (flags.staged and on_its_disk and elsewhere) or flags.artifacts_dir:
        return []
    fix = "install on the workers what they bring, or give --artifacts_dir=FOLDER, one that all machines see"
    problem = (
        f"--{flags.staged[0]}: files of the job lie on this machine's disk, which the cluster does not see"
    )
    return [Row("staged files", "refuse", problem, fix)]


def _process_worker(flags: EngineFlags) -> Row:
    command = flags.environment_config or engine_options.worker_command()
    for option in flags.environment_option or []:
        if option.startswith("process_command="):
            command = option.split("=", 1)[1]
    fix = "install dpbeam with pip, or give --environment_option=process_command=PATH"
    if command is None:
        return Row("workers", "refuse", "dpbeam-worker is not installed beside this Python", fix)
    if flags.environment_config or (flags.cluster_host and not _is_here(flags.cluster_host)):
        return Row("workers", "ok", f"processes of {command}, which must exist on every worker machine")
    return _file("workers", command, fix, lambda p: None if os.access(p, os.X_OK) else "is not executable")


def _is_here(host: str) -> bool:
    return host in ("localhost", "127.0.0.1", "::1", "0.0.0.0", socket.gethostname())


def _with_temp(flags: EngineFlags, paths: Sequence[Path]) -> list[Path]:
    temp = [Path("--temp_location", flags.temp_location, "temp")] if flags.temp_location else []
    return [*paths, *(t for t in temp if all(p.flag != t.flag for p in paths))]


def check_path(flags: EngineFlags, path: Path, shared_folders: Sequence[str] = ()) -> Row:
    """Workers can see the path, and this machine can read or write it."""
    what = f"{path.flag} {path.value}"
    try:
        scheme = FileSystems.get_scheme(path.value)
        FileSystems.at(path.value)
    except (ValueError, OSError, ImportError):
        fix = "name storage that Beam reads, as s3:// or gs://"
        return Row(what, "refuse", "no filesystem for this path", fix)
    if scheme is not None:
        return _remote(what, path)
    if flags.remote_workers and not _is_shared(path.value, shared_folders):
        where = flags.cluster_host or "a container"
        fix = "use storage that all workers share, or name the mount in DPBEAM_SHARED_FOLDERS"
        return Row(what, "refuse", f"a local path, but workers run on {where} and do not see this disk", fix)
    return _local_read(what, path) if path.use == "input" else _local_write(what, path)


def _is_shared(path: str, folders: Sequence[str]) -> bool:
    real = os.path.realpath(path)
    return any(os.path.commonpath([real, os.path.realpath(f)]) == os.path.realpath(f) for f in folders)


def _none(what: str, path: Path) -> Row:
    return Row(what, "refuse", "no file matches", f"correct {path.flag}")


def _local_read(what: str, path: Path) -> Row:
    files = FileSystems.match(path.value)
    if not files:
        return _none(what, path)
    closed = sum(not os.access(file, os.R_OK) for file in files)
    if closed:
        return Row(what, "refuse", f"{closed} of {len(files)} files cannot be read", "give read permission")
    return Row(what, "ok", f"{len(files)} files")


def _remote(what: str, path: Path) -> Row:
    """Try it from here; workers reach it with what they find in their own environment."""
    if missing := missing_filesystem(path.value):
        return Row(what, "refuse", *missing.split("; "))
    try:
        if path.use == "input":
            count = len(FileSystems.match(path.value))
            return Row(what, "ok", f"{count} files") if count else _none(what, path)
        name = uuid.uuid4().hex
        folder = f"{path.value}.staging-{name[:16]}"
        if path.use == "temp":
            folder = FileSystems.join(path.value, f"dpbeam-run-{name}")
        FileSystems.make_folder(folder, private=path.use == "temp")
        try:
            with FileSystems.put(FileSystems.join(folder, "probe")) as probe:
                probe.write(b"dpbeam")
        finally:
            FileSystems.remove_folder(folder)
    except (OSError, ValueError, ImportError) as error:
        fix = f"correct {path.flag}, or what the store's client finds in its environment"
        return Row(what, "refuse", reason(error), fix, passing=is_passing(error))
    return Row(what, "ok", "can be written")


def _local_write(what: str, path: Path) -> Row:
    """Try it in the nearest folder that exists: permissions alone do not tell of a full or read-only disk."""
    folder = path.value if path.use == "temp" else os.path.dirname(path.value)
    folder = os.path.abspath(folder or ".")
    while not os.path.isdir(folder):
        if os.path.exists(folder):
            return Row(what, "refuse", f"{folder} is a file, not a folder", f"correct {path.flag}")
        folder = os.path.dirname(folder)
    try:
        with _without_name(folder) as probe:
            probe.write(b"\0" * 4096)
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        return Row(
            what,
            "refuse",
            f"cannot write in {folder}: {error.strerror}",
            f"correct {path.flag} or make room and permission",
        )
    return Row(what, "ok", f"{folder} can be written")


def _without_name(folder: str) -> IO[bytes]:
    """A new file of which a killed process leaves nothing, where the filesystem has such files; elsewhere it has a name
    for a moment. Raises OSError.
    """
    if hasattr(os, "O_TMPFILE"):
        try:
            return open(folder, "w+b", opener=lambda at, _: os.open(at, os.O_TMPFILE | os.O_RDWR, 0o600))
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR):
                raise
    return tempfile.TemporaryFile(dir=folder)
