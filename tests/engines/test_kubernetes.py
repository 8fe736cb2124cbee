"""The manifests of configs/kubernetes against Flink's operator, kustomize and Flink itself, without Kubernetes.

Their settings run on a real cluster, whose workers come from a pool and whose files lie on a real store.
"""

import contextlib
import os
import pathlib
import re
import subprocess
import sys

import jsonschema
import kubernetes_validate
import pytest
import yaml

import dpbeam
from dpbeam.cli import main
from dpbeam.engine.seal import FOLDER_KEY
from dpbeam.runners import options
from dpbeam.storage import FileSystems
from tests.engines.conftest import java
from tests.engines.test_stores import KEY, output, put
from tests.support.long_items import write_long_items
from tests.support.manifests import FOLDER, ROOT, closed, containers, pods, resource, settings
from tests.support.stores import free_port
from tests.support.waiting import wait_until
from tests.test_kubernetes import FOLDERS, KUBERNETES

pytestmark = [pytest.mark.slow, pytest.mark.engines]


@pytest.fixture(scope="module")
def flink_schema(kubernetes_tools):
    definition = yaml.load(kubernetes_tools[0].read_text(), Loader=yaml.CSafeLoader)
    (version,) = (v for v in definition["spec"]["versions"] if v["name"] == "v1beta1")
    schema = closed(version["schema"]["openAPIV3Schema"])
    schema["properties"] |= {name: {} for name in ("apiVersion", "kind", "metadata")}
    return schema


def test_flinks_operator_knows_every_field(flink_schema):
    jsonschema.validate(resource("FlinkDeployment"), flink_schema)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("flinkVersion",), "v1_99"),
        (("taskManager", "replicas"), "four"),
        (("taskManager", "podTemplate", "spec", "containers", 1, "imag"), "x"),
        (("taskManger",), {}),
    ],
)
def test_a_wrong_field_is_seen(place, value, flink_schema):
    wrong = resource("FlinkDeployment")
    *way, last = place
    target = wrong["spec"]
    for step in way:
        target = target[step]
    target[last] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, flink_schema)


@pytest.mark.parametrize("folder", FOLDERS)
def test_kustomize_builds_what_the_schemas_take(folder, kubernetes_tools, flink_schema):
    argv = [str(ROOT / "scripts" / "kubernetes"), "build", str(FOLDER / folder)]
    built = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True).stdout
    resources = list(yaml.safe_load_all(built))
    made = {r["metadata"]["name"] for r in resources if r["kind"] == "ConfigMap"}
    for one in resources:
        if one["kind"] == "FlinkDeployment":
            jsonschema.validate(one, flink_schema)
        else:
            for version in KUBERNETES:
                kubernetes_validate.validate(one, version, strict=True)
        assert one["kind"] == "Namespace" or one["metadata"]["namespace"] == "dpbeam"
    images = re.findall(r"image: (\S+)", built)
    assert images and {image.rpartition(":")[2] for image in images} == {dpbeam.__version__}
    assert all(image.startswith("registry.example.com/") for image in images)
    if folder != "cluster":
        (name,) = made
        assert re.fullmatch(rf"dpbeam-{folder}-\w+", name) and built.count(f"name: {name}\n") == 2


def test_flink_gives_a_slot_what_docs_scaling_asks(flink_cluster, tmp_path):
    """500 MB of heap and 400 MB of direct memory, computed by Flink's own code from the manifest."""
    spec = resource("FlinkDeployment")["spec"]
    config = spec["flinkConfiguration"] | {
        "taskmanager.memory.process.size": spec["taskManager"]["resource"]["memory"],
        "jobmanager.memory.process.size": spec["jobManager"]["resource"]["memory"],
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    home = pathlib.Path(options.cache_folder()) / f"flink-{_flink_version()}"
    said = {}
    for part in ("JM", "TM"):
        argv = [
            *(java(), "-cp", f"{home}/*", "org.apache.flink.runtime.util.bash.BashJavaUtils"),
            *(f"GET_{part}_RESOURCE_PARAMS", "--configDir", str(tmp_path)),
        ]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True)
        said[part] = dict(re.findall(r"-XX:(\w+)=(\d+)", done.stdout)) | {
            "heap": re.search(r"-Xmx(\d+)", done.stdout)[1]
        }
    asked = " ".join((ROOT / "docs/reference/scaling.md").read_text().split())
    heap, direct = re.search(r"Flink (\d+) MB of heap and (\d+) MB of direct memory per slot", asked).groups()
    slots = int(config["taskmanager.numberOfTaskSlots"])
    assert int(said["TM"]["heap"]) >= slots * int(heap) * 1e6
    assert int(said["TM"]["MaxDirectMemorySize"]) >= slots * int(direct) * 1e6
    assert int(said["JM"]["heap"]) >= 400e6


def _flink_version() -> str:
    return re.search(r"^FLINK_VERSION=(\S+)", (ROOT / "scripts/_engines/versions.sh").read_text(), re.M)[1]


@contextlib.contextmanager
def worker_pool(log: pathlib.Path, environment: dict[str, str]):
    """The sidecar: its arguments in the manifest, but for the port. Yields its address and its process."""
    (argument,) = containers(pods()["taskmanager"])["workers"]["args"]
    assert re.fullmatch(r"--pool_port=\d+", argument)
    argv = [options.worker_command(), "--pool_port=0"]
    with open(log, "wb") as sink:
        pool = subprocess.Popen(argv, stdout=sink, stderr=sink, env={**os.environ, **environment})
    try:
        wait_until(lambda: b"pool at" in log.read_bytes(), 60, "the pool")
        yield re.search(r"pool at (\S+)", log.read_text())[1], pool
    finally:
        pool.terminate()
        assert pool.wait(60) == 0


@contextlib.contextmanager
def job_server(master: str, folder: pathlib.Path):
    """The server beside the launcher, by its manifest but for addresses and paths. Yields its address."""
    server = containers(pods()["select"])["job-server"]
    port, artifacts = free_port(), folder / "artifacts"
    changed = {
        "--flink-master": master,
        "--job-port": str(port),
        "--artifact-port": "0",
        "--expansion-port": "0",
        "--artifacts-dir": str(artifacts),
    }
    names = [argument.partition("=")[0] for argument in server["args"]]
    assert set(changed) < set(names)
    defaults = (argument.split("=", 1) for argument in server["args"])
    arguments = [f"{name}={changed.get(name, value)}" for name, value in defaults]
    jar = options.flink_jar(options.cache_folder())
    command = [jar if word.endswith(".jar") else word for word in server["command"]]
    probe = [word.replace("8099", str(port)) for word in server["startupProbe"]["exec"]["command"]]
    with open(folder / "server.log", "wb") as sink:
        process = subprocess.Popen([java(), *command[1:], *arguments], stdout=sink, stderr=sink)
    try:
        wait_until(lambda: subprocess.run(probe, capture_output=True).returncode == 0, 90, "the job server")
        yield f"localhost:{port}"
        assert not artifacts.exists() or not list(artifacts.rglob("*.txt")), (
            "staged where no task manager sees it"
        )
    finally:
        process.terminate()
        process.wait(30)


def children(process: int) -> list[int]:
    text = pathlib.Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(child) for child in text.split()]


@pytest.mark.parametrize("sealed_from_workers", [True, False], ids=["workers without the key", "whole"])
def test_the_settings_of_the_job_on_flink_and_s3(
    sealed_from_workers, engine, s3_store, tmp_path, monkeypatch
):
    """Those of select.yaml, but for addresses and the bucket's name; and encrypted, with the key of the Secret."""
    monkeypatch.setenv(FOLDER_KEY, "5ec4e7" + "00" * 29)
    data = tmp_path / "data"
    data.mkdir()
    write_long_items(data, users=2_000, items=800, files=2)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{s3_store.address}")
    place = f"{s3_store.url}/kubernetes-{sealed_from_workers}"
    put(data, f"{place}/pairs")
    on = engine("flink-cluster")
    flags = options.read(on.flags)
    broken = {FOLDER_KEY: ""} if sealed_from_workers else {}
    with (
        worker_pool(tmp_path / "pool.log", {"TMPDIR": str(tmp_path), **broken}) as (address, pool),
        job_server(flags.flink_master, tmp_path) as server,
    ):
        config = settings("select") | {
            "input": [f"{place}/pairs/*.parquet"],
            "output": f"{place}/out/x",
            "temp_location": f"{place}/temp",
            "flink_master": flags.flink_master,
            "job_endpoint": server,
            "environment_config": address,
            "encrypt_intermediates": True,
            "parallelism": 2,
            "num_shards": 2,
        }
        (tmp_path / "select.yaml").write_text(yaml.safe_dump(config))
        argv = [sys.executable, "-m", "dpbeam.cli", "select", f"--config={tmp_path}/select.yaml", KEY]
        process = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            timeout=300,
            cwd=ROOT,
            env={**os.environ, "DPBEAM_TEST_CLUSTER": on.tag},
        )
        if sealed_from_workers:
            assert process.returncode == 2, process.stderr[-4000:]
            assert f"--encrypt_intermediates: {FOLDER_KEY} must be 64 hexadecimal digits" in process.stderr
            assert FileSystems.list_prefix(f"{place}/out/") == []
            return
        assert process.returncode == 0, (process.stderr[-4000:], (tmp_path / "pool.log").read_text()[-2000:])
        assert "error" not in process.stderr.lower()
        wait_until(lambda: not children(pool.pid), 60, "the end of the pool's workers")
    here = [f"--input={data}/*.parquet", f"--output={tmp_path}/out/x", f"--temp_location={tmp_path}/temp"]
    own = {name: config[name] for name in ("user_column", "item_column", "method", "epsilon", "delta")}
    assert (
        main(["select", *(f"--{k}={v}" for k, v in own.items()), *here, "--num_shards=2", KEY, "--quiet"])
        == 0
    )
    assert released(output(place)) == released(output(str(tmp_path)))
    assert FileSystems.folders(f"{place}/temp", "", "") == [], "private intermediates were left behind"
    FileSystems.set_options(None)


def released(files: dict[str, bytes]) -> dict[str, bytes]:
    shards = {name: data for name, data in files.items() if name.endswith(".parquet")}
    assert shards
    return shards
