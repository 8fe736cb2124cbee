"""From the few flags that a user knows to the full set that a portable Beam runner needs.

Beam's defaults for Flink and Spark fetch a job server, start workers as containers of an image without dpbeam, and
run with parallelism 1. `complete` adds what is missing for a job to run as it stands: the job server from the cache,
workers as processes of this installation, the cluster's parallelism. It never changes or repeats a flag that the
user has set, and it adds nothing for runners that it does not know.
"""

from __future__ import annotations

import argparse
import difflib
import functools
import http.client
import importlib
import json
import os
import re
import secrets
import shutil
import sys
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from dpbeam.errors import SettingError, SetupError
from dpbeam.runners import matrix
from dpbeam.runners.pyspark.session import ALL_CORES, is_on_this_machine, standing

DEFAULT_RUNNER = "FnApiRunner"
#: How long Flink keeps an idle Python worker of a job: longer than the gap between two stages, since starting a worker
#: takes seconds, but shorter than the delay before a restart (1 s by default), since a kept worker may be a dead one
#: and every attempt would fail on it. Spark retries at once and on the same executor: there every stage starts its own.
WORKER_CACHE_MILLIS = 500
_KEEPS_WORKERS = ("FlinkRunner",)
_LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1", "0.0.0.0")
_SECONDS = 5.0

_ALIASES = {
    "directrunner": DEFAULT_RUNNER,
    "fnapirunner": DEFAULT_RUNNER,
    "bundlebaseddirectrunner": DEFAULT_RUNNER,
    "switchingdirectrunner": DEFAULT_RUNNER,
    "prismrunner": "PrismRunner",
    "flinkrunner": "FlinkRunner",
    "sparkrunner": "SparkRunner",
    "pysparkrunner": "PySparkRunner",
    "portablerunner": "PortableRunner",
    "dataflowrunner": "DataflowRunner",
    "interactiverunner": "InteractiveRunner",
    "kafkastreamsrunner": "KafkaStreamsRunner",
}
#: Beam finds a runner of ours by its place alone.
_PYSPARK_RUNNER = "dpbeam.runners.pyspark.PySparkRunner"
#: Beam lists the launcher's packages in a file that goes with the job, for a log alone. On Flink and Spark workers read
#: such files from the disk of the job server, which those on other machines do not see.
STAGE_NOTHING = "disable_logging_submission_environment"
_ADDRESSES = ("flink_master", "spark_master_url", "spark_rest_url", "job_endpoint")


@dataclass(frozen=True)
class EngineFlags:
    """The Beam flags that decide where a job runs, as the user set them (None: not set)."""

    runner: str
    flink_master: str | None
    flink_version: str | None
    flink_job_server_jar: str | None
    flink_submit_uber_jar: bool
    parallelism: str | None
    execution_mode_for_batch: str | None
    spark_master_url: str | None
    spark_job_server_jar: str | None
    spark_submit_uber_jar: bool
    spark_rest_url: str | None
    spark_conf: list[str] | None
    prism_location: str | None
    direct_num_workers: str | None
    direct_running_mode: str | None
    direct_runner_bundle_repeat: str | None
    job_endpoint: str | None
    job_name: str | None
    experiments: list[str] | None
    environment_type: str | None
    environment_config: str | None
    environment_option: list[str] | None
    environment_cache_millis: str | None
    sdk_container_image: str | None
    sdk_worker_parallelism: str | None
    job_server_java_launcher: str | None
    temp_location: str | None
    artifacts_dir: str | None
    setup_file: str | None
    requirements_file: str | None
    extra_package: list[str] | None
    save_main_session: bool
    template_location: str | None
    output_executable_path: str | None

    @property
    def is_default(self) -> bool:
        """The runner is that of Beam in this process, which runs where none is named."""
        return self.runner == DEFAULT_RUNNER

    @property
    def one_process(self) -> bool:
        """Every step runs in the launcher itself, and once."""
        others = self.environment_type, self.direct_runner_bundle_repeat
        in_memory = self.direct_running_mode in (None, "in_memory")
        return self.is_default and in_memory and not any(others)

    @property
    def staged(self) -> list[str]:
        """Names of the flags by which files go with the job, besides what dpbeam needs: nothing."""
        names = ("setup_file", "requirements_file", "extra_package", "save_main_session")
        return [name for name in names if getattr(self, name)]

    @property
    def written_and_not_run(self) -> str | None:
        """Name of the flag by which Beam writes the job to a file, for others to run, and reports it as done."""
        names = ("template_location", "output_executable_path")
        return next((name for name in names if getattr(self, name)), None)

    @property
    def embedded(self) -> bool:
        """The engine runs inside this machine's launcher or job server, not on a cluster."""
        if self.runner == "FlinkRunner":
            return self.job_endpoint is None and (self.flink_master or "[auto]") in ("[local]", "[auto]")
        if self.runner == "SparkRunner":
            return self.job_endpoint is None and is_local_spark(self.spark_master_url)
        if self.runner == "PySparkRunner":
            return is_on_this_machine(pyspark_master(self))
        return self.runner in (DEFAULT_RUNNER, "PrismRunner")

    @property
    def in_turns(self) -> bool:
        """Flink runs the parts of a stage in turns where there are more of them than slots."""
        return (self.execution_mode_for_batch or "").upper().startswith("BATCH")

    @property
    def cluster_host(self) -> str | None:
        """Host of the cluster's master, None if there is none or it is unknown."""
        if self.embedded:
            return None
        if self.runner == "FlinkRunner":
            address = self.flink_master
        elif self.runner == "SparkRunner":
            address = self.spark_rest_url or self.spark_master_url
        elif self.runner == "PySparkRunner":
            master = pyspark_master(self)
            address = master if master.startswith("spark://") else None
        else:
            address = None
        address = address or self.job_endpoint
        return host_and_port(address)[0] if address else None

    @property
    def remote_workers(self) -> bool:
        """Workers run where this machine's files are not seen: another machine, or a container."""
        if self.runner == "DataflowRunner":
            return True
        if self.runner == "PySparkRunner" and not self.embedded and self.cluster_host is None:
            return True  # YARN, Kubernetes: wherever there is room
        if self.environment_type in ("LOOPBACK", "EMBEDDED") or self.is_default:
            return False
        if self.environment_type == "DOCKER" or (self.sdk_container_image and self.environment_type is None):
            return True
        host = self.cluster_host
        return host is not None and host not in _LOOPBACK_HOSTS


def read(argv: Sequence[str]) -> EngineFlags:
    """Read the engine's flags out of a list of Beam flags; other flags are ignored.

    Raises:
      InputError: an address that none can be, or a number of workers below 0.
    """
    return _read(tuple(argv))


@functools.lru_cache(maxsize=64)  # a command asks six times
def _read(argv: tuple[str, ...]) -> EngineFlags:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name, kind in EngineFlags.__annotations__.items():
        if kind == "bool":
            parser.add_argument(f"--{name}", action="store_true")
        elif kind.startswith("list"):
            single = name.removesuffix("s")
            parser.add_argument(f"--{single}", f"--{single}s", dest=name, action="append")
        else:
            parser.add_argument(f"--{name}", default=None)
    flags = vars(parser.parse_known_args(list(argv))[0])
    for name in _ADDRESSES:
        if flags[name] is not None and not re.fullmatch(r"[\x21-\x7e]+", flags[name]):
            raise SettingError(f"--{name}: {flags[name]!r} is no address")
    workers = flags["direct_num_workers"]
    if workers is not None and not re.fullmatch(r"\d+", workers):
        raise SettingError(f"--direct_num_workers must be a number from 0 (all cores), got '{workers}'")
    flags["runner"] = runner_name(flags["runner"])
    return EngineFlags(**flags)


def runner_name(named: str | None) -> str:
    """The one name of a runner, whatever name it was given; that of the default runner where none was."""
    runner = named or DEFAULT_RUNNER
    short = runner.split(".")[-1].lower()
    return _ALIASES.get(short, _ALIASES.get(f"{short}runner", runner))


def check_runner_name(flags: EngineFlags) -> None:
    """Refuse a runner that does not exist.

    Raises:
      InputError: neither one of Beam's names nor an importable class; names the likely one.
    """
    if flags.runner in _ALIASES.values():
        return
    module, _, name = flags.runner.rpartition(".")
    if module:
        try:
            exists = hasattr(importlib.import_module(module), name)
        except ImportError:
            exists = False
        if not exists:
            raise SettingError(f"--runner: there is no class {flags.runner}")
        return
    from apache_beam.options.pipeline_options import StandardOptions

    known = sorted({*StandardOptions.KNOWN_RUNNER_NAMES, *_ALIASES.values()})
    if flags.runner.lower() in (
        k for name in known for k in (name.lower(), name.lower().removesuffix("runner"))
    ):
        return
    close = difflib.get_close_matches(flags.runner, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"one of {', '.join(known)}"
    raise SettingError(f"--runner: unknown runner {flags.runner!r}; {hint}")


def complete(argv: Sequence[str], cache: str | None = None, *, threads: int = 1) -> list[str]:
    """The user's Beam flags, followed by what the chosen engine needs besides.

    Args:
      argv: Beam flags as on a command line.
      cache: folder of job servers and Prism; default `cache_folder()`.
      threads: bundles at once on the in-process runner, unless a flag says how it runs.

    Raises:
      InputError: the engine's version is refused, or a flag of an engine contradicts another.
    """
    flags = read(argv)
    cache = cache or cache_folder()
    engines = {
        "PrismRunner": _prism,
        "FlinkRunner": _flink,
        "SparkRunner": _spark,
        "PySparkRunner": _pyspark,
    }
    if flags.is_default:
        return [*argv, *_in_process(flags, threads)]
    added = engines[flags.runner](flags, cache) if flags.runner in engines else []
    return [*argv, *added]


def cache_folder() -> str:
    """Where the scripts put engines and job servers: $DPBEAM_CACHE, default ~/.cache/dpbeam."""
    return os.environ.get("DPBEAM_CACHE") or os.path.join(os.path.expanduser("~"), ".cache", "dpbeam")


def flink_jar(cache: str) -> str:
    """Where Beam keeps the job server for Flink."""
    name = f"beam-flink-{matrix.minor(matrix.FLINK)}-job-server-{matrix.RUNNER_LIBRARIES}.jar"
    return os.path.join(cache, "jars", name)


def spark_jar(cache: str) -> str:
    """Where Beam keeps the job server for Spark."""
    return os.path.join(cache, "jars", f"beam-spark-3-job-server-{matrix.RUNNER_LIBRARIES}.jar")


def prism_binary(cache: str) -> str:
    """Where Prism lies once Beam has it."""
    return os.path.join(cache, f"prism-{matrix.BEAM}", "prism")


def worker_command() -> str | None:
    """The program that starts one Python worker of this installation, None if it is not installed."""
    beside = os.path.join(os.path.dirname(sys.executable), "dpbeam-worker")
    if os.access(beside, os.X_OK):
        return beside
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    in_tree = os.path.join(root, "scripts", "_engines", "worker")
    return in_tree if os.access(in_tree, os.X_OK) else shutil.which("dpbeam-worker")


def is_local_spark(master: str | None) -> bool:
    """Whether a master is Spark in its launcher's process; Beam's default is."""
    return re.fullmatch(r"local(\[.+\])?", master or "local[4]") is not None


def flink_address(flags: EngineFlags) -> str | None:
    """The cluster's REST address with its scheme, None for an embedded Flink or an unknown one."""
    master = flags.flink_master
    if master in (None, "[local]", "[auto]"):
        return None
    return master if re.match("https?://", master) else f"http://{master}"


def flink_overview(address: str) -> dict | None:
    """A Flink cluster's own account of itself (version, slots, task managers); None if it does not answer."""
    try:
        with urllib.request.urlopen(f"{address}/overview", timeout=_SECONDS) as answer:
            return json.load(answer)
    except (OSError, ValueError, http.client.HTTPException):
        return None


def host_and_port(address: str) -> tuple[str, int | None]:
    """ "http://a:1", "spark://a:1" and "a:1" -> ("a", 1).

    Raises:
      InputError: the port is not a number.
    """
    parts = urlsplit(address if "://" in address else f"//{address}")
    try:
        return parts.hostname or address, parts.port
    except ValueError:
        raise SettingError(f"{address!r} is no HOST:PORT") from None


def _in_process(flags: EngineFlags, threads: int) -> list[str]:
    if threads < 2 or flags.direct_num_workers or flags.direct_running_mode:
        return []
    return [f"--direct_num_workers={threads}"]


def _prism(flags: EngineFlags, cache: str) -> list[str]:
    binary = prism_binary(cache)
    if flags.prism_location or flags.job_endpoint or not os.path.exists(binary):
        return []
    return [f"--prism_location={binary}"]


def _flink(flags: EngineFlags, cache: str) -> list[str]:
    added = []
    overview = None
    address = flink_address(flags)
    if address:
        overview = flink_overview(address)
    version = flags.flink_version
    if overview:
        verdict = matrix.flink(overview["flink-version"])
        if verdict.level == "refuse":
            raise SetupError(f"--flink_master={flags.flink_master}: {verdict.reason}; {verdict.fix}")
        version = version or matrix.minor(overview["flink-version"])
        added += _flink_parallelism(flags, overview)
    version = version or matrix.minor(matrix.FLINK)
    if flags.flink_version is None:
        added.append(f"--flink_version={version}")
    jar = flink_jar(cache)
    own_server = flags.flink_job_server_jar or flags.job_endpoint or flags.flink_submit_uber_jar
    if not own_server and version == matrix.minor(matrix.FLINK) and os.path.exists(jar):
        added.append(f"--flink_job_server_jar={jar}")
    return added + _environment(flags) + _experiments(flags) + _job_name(flags)


def _flink_parallelism(flags: EngineFlags, overview: dict) -> list[str]:
    """Use every slot, with one Python process per slot: slots of one task manager would share an interpreter."""
    added = []
    slots, managers = overview.get("slots-total", 0), overview.get("taskmanagers", 0)
    if flags.parallelism is None and slots > 0:
        added.append(f"--parallelism={slots}")
    if flags.sdk_worker_parallelism is None and managers > 0 and slots > managers:
        added.append(f"--sdk_worker_parallelism={-(-slots // managers)}")
    return added


def _spark(flags: EngineFlags, cache: str) -> list[str]:
    added = []
    jar = spark_jar(cache)
    own_server = flags.spark_job_server_jar or flags.job_endpoint or flags.spark_submit_uber_jar
    if not own_server and os.path.exists(jar):
        added.append(f"--spark_job_server_jar={jar}")
    if flags.spark_submit_uber_jar and not flags.spark_rest_url:
        raise SettingError("--spark_submit_uber_jar needs --spark_rest_url=http://HOST:6066")
    return added + _environment(flags) + _experiments(flags) + _job_name(flags)


def pyspark_master(flags: EngineFlags) -> str:
    """The master of the session that a job on PySpark will run on.

    Raises:
      InputError: the session that stands is one of Spark Connect.
    """
    session = standing()
    return str(session.master) if session is not None else flags.spark_master_url or ALL_CORES


def _pyspark(flags: EngineFlags, cache: str) -> list[str]:
    return [f"--runner={_PYSPARK_RUNNER}"]


def _environment(flags: EngineFlags) -> list[str]:
    """Workers as processes on clusters; an embedded engine keeps Beam's choice, the launcher's own threads."""
    added = []
    kind = flags.environment_type
    if kind is None and not flags.embedded and not flags.sdk_container_image and not flags.environment_config:
        kind = "PROCESS"
        added.append("--environment_type=PROCESS")
    if kind == "PROCESS" and not flags.environment_config and not flags.environment_option:
        command = worker_command()
        if command is None:
            raise SetupError(
                "--environment_type=PROCESS: dpbeam-worker is not installed beside this Python; "
                "install dpbeam with pip, or name it: --environment_option=process_command=PATH"
            )
        added.append(f"--environment_option=process_command={command}")
    keeps = flags.runner in _KEEPS_WORKERS and kind == "PROCESS"
    if keeps and flags.environment_cache_millis is None:
        added.append(f"--environment_cache_millis={WORKER_CACHE_MILLIS}")
    return added


def _experiments(flags: EngineFlags) -> list[str]:
    names = ",".join(flags.experiments or ()).split(",")
    return [] if STAGE_NOTHING in names else [f"--experiments={STAGE_NOTHING}"]


def _job_name(flags: EngineFlags) -> list[str]:
    """A name of its own, by which the job is found and cancelled on the cluster."""
    if flags.job_name:
        return []
    return [f"--job_name=dpbeam-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"]
