"""The preflight: each thing that a job lacks is one row with its fix."""

import errno
import os
import socket
import stat
import tempfile

import pytest

from dpbeam.runners import check, matrix, options
from dpbeam.runners.check import Path, preflight


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DPBEAM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DPBEAM_SHARED_FOLDERS", raising=False)


@pytest.fixture
def listener():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield f"127.0.0.1:{server.getsockname()[1]}"


def closed_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def rows(argv, *paths, **settings):
    return {row.what: row for row in preflight(argv, paths, **settings)}


def refused(checked):
    return [row for row in checked.values() if not row.ok]


def program(folder, name, text):
    path = folder / name
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_the_default_runner_needs_nothing(tmp_path):
    checked = rows([], Path("--output", str(tmp_path / "new" / "out"), "output"))
    assert not refused(checked)
    assert checked["runner"].finding == "FnApiRunner"


def test_every_refusal_says_how_to_mend_it():
    port = closed_port()
    for argv in (
        ["--runner=FlinkRunner", f"--flink_master=localhost:{port}"],
        ["--runner=SparkRunner", f"--spark_master_url=spark://localhost:{port}"],
        ["--runner=PrismRunner"],
        ["--runner=FlinkRunner", f"--job_endpoint=localhost:{port}"],
    ):
        bad = refused(rows(argv))
        assert bad, argv
        assert all(row.fix for row in bad), bad


@pytest.mark.parametrize("flag", ["template_location", "output_executable_path"])
def test_a_job_that_is_written_and_not_run_is_refused(flag):
    """Beam reports such a job as done: what the launcher then publishes would be the output of no run."""
    for runner in ("DataflowRunner", "FlinkRunner", "SparkRunner", "PrismRunner", "PortableRunner"):
        row = rows([f"--runner={runner}", f"--{flag}=job"])["job"]
        assert row.level == "refuse" and f"--{flag} writes the job to a file" in row.finding, runner
    assert "job" not in rows([f"--{flag}=job"])


DATAFLOW = ["--runner=DataflowRunner", "--project=acme-data", "--temp_location=gs://bucket/temp"]


@pytest.mark.parametrize(
    ("argv", "finding"),
    [
        (["--runner=DataflowRunner", "--temp_location=gs://bucket/temp"], "Missing required option: project"),
        ([*DATAFLOW, "--project=12345"], "Invalid Project ID (12345)"),
        ([*DATAFLOW, "--job_name=Two words"], "Invalid job_name (Two words)"),
        ([*DATAFLOW, "--temp_location=/tmp/here"], "Dataflow stages its files on gs:// alone"),
        (DATAFLOW, "Beam's own image, which lacks dpbeam"),
    ],
)
def test_what_dataflow_lacks_is_refused_before_a_job(argv, finding, monkeypatch):
    monkeypatch.setattr(check, "check_path", lambda flags, path, folders: check.Row(path.flag, "ok", ""))
    image = [] if argv is DATAFLOW else ["--sdk_container_image=image"]
    bad = [row for row in preflight([*argv, *image]) if not row.ok]
    assert any(finding in row.finding for row in bad), bad
    assert all(row.fix for row in bad)


def test_dataflow_with_all_its_flags(monkeypatch):
    monkeypatch.setattr(check, "check_path", lambda flags, path, folders: check.Row(path.flag, "ok", ""))
    monkeypatch.setattr(check.importlib.util, "find_spec", lambda name: name)
    for workers in ("--sdk_container_image=image", "--setup_file=setup.py"):
        checked = rows([*DATAFLOW, workers])
        assert not refused(checked), workers
        assert checked["runner"].level == "warn"
    monkeypatch.setattr(check.importlib.util, "find_spec", lambda name: None)
    assert "Google Cloud is not installed" in rows([*DATAFLOW, workers])["Dataflow"].finding


def test_an_unreachable_cluster(listener):
    port = closed_port()
    checked = rows(["--runner=FlinkRunner", f"--flink_master=localhost:{port}"])
    assert checked["Flink cluster"].level == "refuse"
    assert f"localhost:{port} does not answer" in checked["Flink cluster"].finding
    checked = rows(["--runner=SparkRunner", f"--spark_master_url=spark://{listener}"])
    assert checked["Spark cluster"].finding == f"{listener} answers; must run Spark {matrix.SPARK}"
    checked = rows(["--runner=SparkRunner", "--spark_master_url=spark://localhost"])
    assert "has no port" in checked["Spark cluster"].finding


def test_flink_version_and_slots(monkeypatch):
    overview = {"flink-version": "1.19.1", "slots-total": 2, "slots-available": 2, "taskmanagers": 2}
    monkeypatch.setattr(options, "flink_overview", lambda _: overview)
    argv = ["--runner=FlinkRunner", "--flink_master=localhost:1"]
    assert rows(argv)["Flink cluster"].level == "ok"
    assert rows(argv)["Flink slots"].level == "ok"
    assert rows([*argv, "--parallelism=3"])["Flink slots"].level == "refuse"
    assert (
        rows([*argv, "--parallelism=3", "--execution_mode_for_batch=PIPELINED"])["Flink slots"].level
        == "refuse"
    )
    assert rows([*argv, "--parallelism=3", "--execution_mode_for_batch=BATCH"])["Flink slots"].level == "ok"
    overview["slots-available"] = 1
    assert rows(argv)["Flink slots"].level == "warn"
    overview.update({"slots-total": 0, "taskmanagers": 0, "slots-available": 0})
    assert rows(argv)["Flink slots"].fix == "start task managers"
    overview["flink-version"] = "1.20.0"
    assert rows(argv)["Flink cluster"].level == "warn"
    overview["flink-version"] = "1.13.0"
    assert rows(argv)["Flink cluster"].level == "refuse"


@pytest.mark.parametrize(
    ("version", "level"), [("17.0.15", "ok"), ("21.0.1", "warn"), ("11.0.2", "warn"), ("1.8.0_402", "refuse")]
)
def test_java(version, level, tmp_path):
    java = program(tmp_path, "java", f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    checked = rows(["--runner=FlinkRunner", f"--job_server_java_launcher={java}"])
    assert checked["Java"].level == level


def test_java_that_is_missing_or_broken(tmp_path):
    assert rows(["--runner=SparkRunner", "--job_server_java_launcher=no-such"])["Java"].level == "refuse"
    java = program(tmp_path, "java", "#!/bin/sh\nexit 3\n")
    assert (
        "does not run" in rows(["--runner=SparkRunner", f"--job_server_java_launcher={java}"])["Java"].finding
    )


def test_the_job_server_jar(tmp_path):
    row = rows(["--runner=FlinkRunner"])["job server"]
    assert (row.level, row.fix) == (
        "warn",
        "run scripts/flink fetch; without it Beam fetches its own job server at start",
    )
    assert rows(["--runner=FlinkRunner", "--flink_job_server_jar=/no.jar"])["job server"].level == "refuse"
    jar = options.spark_jar(options.cache_folder())
    os.makedirs(os.path.dirname(jar))
    open(jar, "w").close()
    assert rows(["--runner=SparkRunner"])["job server"] == check.Row("job server", "ok", jar)


def test_prism(tmp_path):
    assert "scripts/prism" in rows(["--runner=PrismRunner"])["Prism"].fix
    plain = tmp_path / "prism"
    plain.write_text("")
    row = rows(["--runner=PrismRunner", f"--prism_location={plain}"])["Prism"]
    assert "not executable" in row.finding


def test_workers(tmp_path):
    far = ["--runner=FlinkRunner", "--flink_master=far.invalid:8081"]
    assert rows([*far, "--environment_type=LOOPBACK"])["workers"].level == "refuse"
    assert rows([*far, "--environment_type=DOCKER"])["workers"].level == "refuse"
    assert rows([*far, "--sdk_container_image=mine"])["workers"].level == "ok"
    assert "must exist on every worker machine" in rows(far)["workers"].finding
    here = ["--runner=SparkRunner", "--spark_master_url=spark://localhost:1"]
    missing = rows([*here, "--environment_option=process_command=/no/such"])["workers"]
    assert (missing.level, missing.finding) == ("refuse", "/no/such is missing")
    worker = program(tmp_path, "worker", "#!/bin/sh\n")
    assert rows([*here, f"--environment_option=process_command={worker}"])["workers"].level == "ok"


def test_files_that_go_with_the_job():
    """The job server keeps them on its own disk, which workers on other machines do not see."""
    flink = ["--runner=FlinkRunner", "--flink_master"]
    spark = ["--runner=SparkRunner", "--spark_master_url"]
    for flag, engine in (
        ("--save_main_session", flink),
        ("--setup_file=setup.py", spark),
        ("--extra_packages=a.whl", flink),
        ("--requirements_file=r.txt", spark),
    ):
        here, far = ([engine[0], f"{engine[1]}={host}:1", flag] for host in ("localhost", "far.invalid"))
        assert "staged files" not in rows(here)
        assert rows(far)["staged files"].finding.startswith(flag.partition("=")[0].removesuffix("s"))
        assert "staged files" not in rows([*far, "--artifacts_dir=/mnt/all"])
        assert "staged files" not in rows(far[:2])


def test_a_local_output_with_remote_workers_is_refused(tmp_path):
    far = ["--runner=SparkRunner", "--spark_master_url=spark://far.invalid:7077"]
    output = Path("--output", str(tmp_path / "out"), "output")
    row = rows(far, output)[f"--output {output.value}"]
    assert row.level == "refuse"
    assert "workers run on far.invalid and do not see this disk" in row.finding
    temp = rows([*far, f"--temp_location={tmp_path}"])[f"--temp_location {tmp_path}"]
    assert temp.level == "refuse"
    shared = rows(far, output, shared_folders=[str(tmp_path)])[f"--output {output.value}"]
    assert shared.level == "ok"
    beside = rows(far, output, shared_folders=[str(tmp_path) + "-other"])[f"--output {output.value}"]
    assert beside.level == "refuse"


def test_the_same_output_with_local_workers_is_fine(tmp_path):
    argv = ["--runner=FlinkRunner", "--flink_master=localhost:1"]
    output = Path("--output", str(tmp_path / "out"), "output")
    assert rows(argv, output)[f"--output {output.value}"].level == "ok"


def test_paths(tmp_path):
    (tmp_path / "a.parquet").touch()
    there = Path("--input", str(tmp_path / "*.parquet"), "input")
    assert rows([], there)[f"--input {there.value}"].finding == "1 files"
    none = Path("--input", str(tmp_path / "*.csv"), "input")
    assert rows([], none)[f"--input {none.value}"].level == "refuse"
    under_file = Path("--output", str(tmp_path / "a.parquet" / "x"), "output")
    assert "is a file" in rows([], under_file)[f"--output {under_file.value}"].finding
    nowhere = Path("--output", "nosuchscheme://bucket/x", "output")
    assert rows([], nowhere)["--output nosuchscheme://bucket/x"].level == "refuse"


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="needs files without a name")
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EOPNOTSUPP, errno.EISDIR])
def test_a_disk_that_cannot_be_written(tmp_path, monkeypatch, number):
    """Where it is full no other way is tried, where its files must have names one of a name is."""
    path = tmp_path / "x"

    def fails(at, flags, *mode, opened=os.open, **how):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(number, os.strerror(number))
        return opened(at, flags, *mode, **how)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", fails)
        patch.setattr(tempfile, "_O_TMPFILE_WORKS", False, raising=False)
        row = rows([], Path("--output", str(path), "output"))[f"--output {path}"]
    if number in (errno.EOPNOTSUPP, errno.EISDIR):
        assert row.level == "ok"
    else:
        assert row.level == "refuse" and os.strerror(number) in row.finding
    assert os.listdir(tmp_path) == []


def test_the_preflight_writes_nothing(tmp_path):
    rows(
        [],
        Path("--output", str(tmp_path / "new" / "x"), "output"),
        Path("--temp_location", str(tmp_path), "temp"),
    )
    assert os.listdir(tmp_path) == []


def test_a_bad_address_is_a_row_not_a_crash():
    checked = rows(["--runner=SparkRunner", "--spark_master_url=spark://h:x"])
    assert checked["flags"].level == "refuse"
