"""The flags that `complete` adds: enough for a job to run, and never against the user."""

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from dpbeam.errors import InputError
from dpbeam.runners import matrix, options


@pytest.fixture
def cache(tmp_path):
    """A cache with empty files in the places of the fetched ones."""
    for path in (
        options.flink_jar(str(tmp_path)),
        options.spark_jar(str(tmp_path)),
        options.prism_binary(str(tmp_path)),
    ):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w"):
            pass
    return str(tmp_path)


@pytest.fixture
def flink_master():
    """A stand-in for a Flink master that answers /overview; set `.overview`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            body = json.dumps(server.overview).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.overview = {
        "flink-version": matrix.FLINK,
        "slots-total": 6,
        "slots-available": 6,
        "taskmanagers": 3,
    }
    server.address = f"localhost:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def added(argv, cache):
    completed = options.complete(argv, cache)
    assert completed[: len(argv)] == argv
    return dict(flag.removeprefix("--").split("=", 1) for flag in completed[len(argv) :])


def test_nothing_is_added_for_runners_without_needs(cache):
    assert options.complete([], cache) == []
    assert options.complete(["--runner=DataflowRunner"], cache) == ["--runner=DataflowRunner"]
    assert options.complete(["--runner", "DirectRunner"], cache) == ["--runner", "DirectRunner"]


def test_threads_of_the_in_process_runner(cache):
    def threads(*argv):
        return options.complete(argv, cache, threads=3)[len(argv) :]

    assert threads() == threads("--runner=DirectRunner") == ["--direct_num_workers=3"]
    assert threads("--direct_num_workers=2") == threads("--direct_running_mode=multi_processing") == []
    assert threads("--runner=DataflowRunner") == []


def test_prism_comes_from_the_cache(cache, tmp_path):
    assert added(["--runner=PrismRunner"], cache) == {"prism_location": options.prism_binary(cache)}
    assert added(["--runner=PrismRunner", "--prism_location=/x"], cache) == {}
    assert added(["--runner=PrismRunner"], str(tmp_path / "empty")) == {}


def test_flink_cluster_gets_job_server_workers_and_its_own_parallelism(cache, flink_master):
    flags_added = added(["--runner=FlinkRunner", f"--flink_master={flink_master.address}"], cache)
    name = flags_added.pop("job_name")
    assert name.startswith("dpbeam-")
    assert flags_added == {
        "flink_version": matrix.minor(matrix.FLINK),
        "flink_job_server_jar": options.flink_jar(cache),
        "parallelism": "6",
        "sdk_worker_parallelism": "2",
        "environment_type": "PROCESS",
        "environment_option": f"process_command={options.worker_command()}",
        "environment_cache_millis": str(options.WORKER_CACHE_MILLIS),
        "experiments": options.STAGE_NOTHING,
    }
    assert (
        added(["--runner=FlinkRunner", f"--flink_master={flink_master.address}"], cache)["job_name"] != name
    )


def test_one_slot_per_task_manager_needs_no_further_interpreter(cache, flink_master):
    flink_master.overview |= {"slots-total": 3}
    flags_added = added(["--runner=FlinkRunner", f"--flink_master={flink_master.address}"], cache)
    assert "sdk_worker_parallelism" not in flags_added


def test_every_flag_of_the_user_stays_alone(cache, flink_master):
    argv = [
        "--runner=FlinkRunner",
        f"--flink_master={flink_master.address}",
        "--flink_version=1.19",
        "--flink_job_server_jar=/my.jar",
        "--parallelism=1",
        "--sdk_worker_parallelism=1",
        "--environment_type=PROCESS",
        "--environment_options=process_command=/mine",
        "--environment_cache_millis=0",
        "--job_name=mine",
        f"--experiment=mine,{options.STAGE_NOTHING}",
    ]
    assert added(argv, cache) == {}


@pytest.mark.parametrize(
    "flags",
    [
        ["--environment_type=LOOPBACK"],
        ["--environment_type=DOCKER", "--environment_config=image"],
        ["--sdk_container_image=image"],
        ["--environment_type=EXTERNAL", "--environment_config=localhost:1"],
    ],
)
def test_another_kind_of_worker_is_left_alone(flags, cache, flink_master):
    flags_added = added(["--runner=FlinkRunner", f"--flink_master={flink_master.address}", *flags], cache)
    assert not [name for name in flags_added if name.startswith("environment")]


def test_embedded_engines_keep_beams_own_workers(cache):
    for argv in (["--runner=FlinkRunner"], ["--runner=FlinkRunner", "--flink_master=[local]"]):
        assert set(added(argv, cache)) == {"flink_version", "flink_job_server_jar", "experiments", "job_name"}
    for argv in (["--runner=SparkRunner"], ["--runner=SparkRunner", "--spark_master_url=local[2]"]):
        assert set(added(argv, cache)) == {"spark_job_server_jar", "experiments", "job_name"}


def test_spark_cluster_starts_workers_anew_for_every_stage(cache):
    flags_added = added(["--runner=SparkRunner", "--spark_master_url=spark://h:7077"], cache)
    assert flags_added.pop("job_name")
    assert flags_added == {
        "spark_job_server_jar": options.spark_jar(cache),
        "environment_type": "PROCESS",
        "environment_option": f"process_command={options.worker_command()}",
        "experiments": options.STAGE_NOTHING,
    }


def test_the_cached_job_server_serves_its_own_flink_only(cache, flink_master):
    flink_master.overview |= {"flink-version": "1.20.1"}
    flags_added = added(["--runner=FlinkRunner", f"--flink_master={flink_master.address}"], cache)
    assert flags_added["flink_version"] == "1.20"
    assert "flink_job_server_jar" not in flags_added


def test_a_shared_job_server_brings_its_jar_itself(cache):
    flags_added = added(["--runner=FlinkRunner", "--job_endpoint=localhost:8099"], cache)
    assert "flink_job_server_jar" not in flags_added
    assert flags_added["environment_type"] == "PROCESS"


def test_refusals(cache, flink_master):
    flink_master.overview |= {"flink-version": "1.14.6"}
    with pytest.raises(InputError, match=r"--flink_master=.*no runner for Flink 1\.14\.6"):
        options.complete(["--runner=FlinkRunner", f"--flink_master={flink_master.address}"], cache)
    with pytest.raises(InputError, match="--spark_rest_url"):
        options.complete(["--runner=SparkRunner", "--spark_submit_uber_jar"], cache)
    with pytest.raises(InputError, match="HOST:PORT"):
        options.host_and_port("localhost:80a")


def test_a_missing_worker_program_is_named(cache, monkeypatch):
    monkeypatch.setattr(options, "worker_command", lambda: None)
    with pytest.raises(InputError, match="dpbeam-worker is not installed"):
        options.complete(["--runner=SparkRunner", "--spark_master_url=spark://h:7077"], cache)


@pytest.mark.parametrize(
    ("argv", "remote"),
    [
        ([], False),
        (["--runner=PrismRunner"], False),
        (["--runner=FlinkRunner"], False),
        (["--runner=FlinkRunner", "--flink_master=localhost:8081"], False),
        (["--runner=FlinkRunner", "--flink_master=127.0.0.1:8081", "--environment_type=DOCKER"], True),
        (["--runner=FlinkRunner", "--flink_master=localhost:8081", "--sdk_container_image=i"], True),
        (["--runner=FlinkRunner", "--flink_master=http://far:8081"], True),
        (["--runner=FlinkRunner", "--flink_master", "far:8081", "--environment_type", "LOOPBACK"], False),
        (["--runner=SparkRunner", "--spark_master_url=spark://far:7077"], True),
        (["--runner=SparkRunner", "--spark_master_url=local[*]"], False),
        (["--runner=SparkRunner", "--job_endpoint=far:8098"], True),
        (["--runner=DataflowRunner"], True),
    ],
)
def test_who_sees_the_launchers_disk(argv, remote):
    assert options.read(argv).remote_workers is remote


def test_the_cache_folder_can_be_moved(monkeypatch):
    monkeypatch.setenv("DPBEAM_CACHE", "/somewhere")
    assert options.cache_folder() == "/somewhere"
    monkeypatch.delenv("DPBEAM_CACHE")
    monkeypatch.setenv("HOME", "/home/me")
    assert options.cache_folder() == "/home/me/.cache/dpbeam"
