"""The manifests of configs/kubernetes: published schemas accept them; they agree with the code and each other."""

import datetime
import os
import re
import shlex
import subprocess
import time

import kubernetes_validate
import pytest

import dpbeam
from dpbeam.cli import select
from dpbeam.runners import matrix, options
from tests.support.manifests import (
    FOLDER,
    ROOT,
    containers,
    kustomization,
    pods,
    resource,
    resources,
    settings,
)
from tests.test_documents import known_flags

#: the oldest release that keeps a sidecar beside a job, and a late one
KUBERNETES = ("1.29", "1.34")
FOLDERS = ("cluster", "select", "nightly")
RESOURCE_KINDS = {"Namespace", "ServiceAccount", "NetworkPolicy", "Job", "CronJob"}


class TestSchemas:
    @pytest.mark.parametrize("version", KUBERNETES)
    def test_of_kubernetes(self, version):
        checked = [r for _, r in resources() if r["apiVersion"].partition("/")[0] != "flink.apache.org"]
        for checked_one in checked:
            kubernetes_validate.validate(checked_one, version, strict=True)
        assert {r["kind"] for r in checked} == RESOURCE_KINDS

    @pytest.mark.parametrize("version", KUBERNETES)
    @pytest.mark.parametrize("part", ["jobmanager", "taskmanager"])
    def test_of_flinks_pods(self, part, version):
        """The rest of a FlinkDeployment is checked in tests/engines/test_kubernetes.py."""
        pod = {"apiVersion": "v1", "kind": "Pod", **pods()[part]}
        kubernetes_validate.validate(pod, version, strict=True)

    def test_a_wrong_field_is_seen(self):
        job = resource("Job")
        job["spec"]["template"]["spec"]["containers"][0]["imag"] = "x"
        with pytest.raises(kubernetes_validate.ValidationError, match="imag"):
            kubernetes_validate.validate(job, KUBERNETES[0], strict=True)


class TestImages:
    @pytest.mark.parametrize("folder", FOLDERS)
    def test_the_tag_is_the_version(self, folder):
        for image in kustomization(folder)["images"]:
            assert image["newTag"] == dpbeam.__version__
            assert image["newName"].endswith(f"/{image['name']}")

    def test_every_image_is_given_a_registry(self):
        """None is left at a name without a tag, which would be somebody's `latest`."""
        flink = resource("FlinkDeployment")["spec"]
        used = {c["image"] for pod in pods().values() for c in containers(pod).values() if "image" in c}
        assert {flink["image"], *used} == {"dpbeam", "dpbeam-flink"}
        for folder in FOLDERS:
            assert {image["name"] for image in kustomization(folder)["images"]} == {"dpbeam", "dpbeam-flink"}

    def test_flinks_image_holds_what_was_tested(self):
        text = (FOLDER / "flink.Dockerfile").read_text()
        assert re.search(r"^FROM flink:(\S+)-java17$", text, re.M)[1] == matrix.FLINK
        (jar,) = re.findall(r"^COPY (\S+) /opt/flink/lib/beam-job-server.jar$", text, re.M)
        assert jar == os.path.basename(options.flink_jar(""))
        assert f"dpbeam-flink:{dpbeam.__version__} " in text
        assert resource("FlinkDeployment")["spec"][
            "flinkVersion"
        ] == f"v{matrix.minor(matrix.FLINK)}".replace(".", "_")
        assert {c["command"][-1] for c in job_servers()} == {"/opt/flink/lib/beam-job-server.jar"}


def job_servers():
    return [containers(pods()[name])["job-server"] for name in ("select", "nightly")]


class TestSettings:
    """What the launcher is told."""

    @pytest.mark.parametrize("folder", ["select", "nightly"])
    def test_every_flag_exists(self, folder):
        assert {f"--{name}" for name in settings(folder)} <= known_flags()

    def test_the_command_takes_the_file(self):
        """As it would in the pod, but for what needs the cluster and the store."""
        own, beam = select.make_parser().parse([f"--config={FOLDER}/select/select.yaml"])
        assert own.epsilon == 1 and own.output == "s3://BUCKET/team/out/items"
        flags = options.read(beam)
        assert flags.runner == "FlinkRunner" and flags.environment_type == "EXTERNAL"
        assert flags.remote_workers and flags.cluster_host == "dpbeam-flink-rest"

    def test_the_nights_differ_in_what_is_released_alone(self):
        one, every = settings("select"), settings("nightly")
        ours = {"input", "output", "epsilon", "budget", "dataset"}
        assert {k: v for k, v in one.items() if k not in ours} == {
            k: v for k, v in every.items() if k not in ours
        }

    @pytest.mark.parametrize("folder", ["select", "nightly"])
    def test_no_credentials(self, folder):
        text = "".join(path.read_text() for path in (FOLDER / folder).iterdir())
        assert not re.search(r"(?i)aws_|_key_id|password:|s3_access|s3_secret|s3_session", text)
        assert (
            "@" not in settings(folder).get("input", "")
            and ":" not in settings(folder).get("budget", "")[13:]
        )

    def test_every_slot_is_used(self):
        flink = resource("FlinkDeployment")["spec"]
        slots = flink["taskManager"]["replicas"] * int(
            flink["flinkConfiguration"]["taskmanager.numberOfTaskSlots"]
        )
        assert {settings(folder)["parallelism"] for folder in ("select", "nightly")} == {slots}

    def test_nothing_is_staged(self):
        """A staged file lies on the disk of the job server, which no task manager sees."""
        from apache_beam.options.pipeline_options import PipelineOptions
        from apache_beam.transforms.environments import python_sdk_dependencies

        engine_settings = {
            name: settings("select")[name] for name in ("runner", "environment_type", "environment_config")
        }
        flags = [f"--{name}={value}" for name, value in engine_settings.items()]
        experiments = [f"--experiments={name}" for name in settings("select")["experiments"]]
        assert python_sdk_dependencies(PipelineOptions([*flags, *experiments])) == []


class TestNames:
    def test_ports_agree(self):
        config = resource("FlinkDeployment")["spec"]["flinkConfiguration"]
        opened = [
            (int(port), meaning)
            for port, meaning in re.findall(
                r"port: (\d+) } +# (\S+)", (FOLDER / "cluster" / "network.yaml").read_text()
            )
        ]
        assert len(opened) == 12
        assert all(config[meaning] == str(port) for port, meaning in opened)
        ports = {name for name in config if name.endswith(".port")}
        assert ports == {meaning for _, meaning in opened}, "a port that nobody may reach"
        for folder in ("select", "nightly"):
            values = settings(folder)
            name = resource("FlinkDeployment")["metadata"]["name"]
            assert values["flink_master"] == f"{name}-rest:{config['rest.port']}"
            workers = containers(pods()["taskmanager"])["workers"]
            assert workers["args"] == [f"--pool_port={values['environment_config'].rpartition(':')[2]}"]
            server = containers(pods()[folder])["job-server"]
            assert f"--job-port={values['job_endpoint'].rpartition(':')[2]}" in server["args"]
            assert f"--flink-master={values['flink_master']}" in server["args"]
            assert values["job_endpoint"].rpartition(":")[2] in server["startupProbe"]["exec"]["command"][-1]

    def test_the_pools_port_is_open_to_nobody(self):
        port = int(settings("select")["environment_config"].rpartition(":")[2])
        for _, document in resources():
            if document["kind"] == "NetworkPolicy":
                rules = [*document["spec"].get("ingress", ()), *document["spec"].get("egress", ())]
                assert all(p["port"] != port for rule in rules for p in rule["ports"])

    def test_what_is_not_named_does_not_pass(self):
        nothing = resource("NetworkPolicy", "nothing")["spec"]
        assert nothing == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
        for _, document in resources():
            if document["kind"] == "NetworkPolicy":
                spec = document["spec"]
                for rule in spec.get("ingress", ()):
                    assert rule["from"] and rule["ports"]
                for rule in spec.get("egress", ()):
                    assert rule["to"] and rule["ports"]

    def test_policies_speak_of_pods_that_are_there(self):
        labels = [set(pod["metadata"]["labels"].items()) for pod in pods().values()]
        parts = {dict(labels_of)["dpbeam/part"] for labels_of in labels}
        assert parts == {"jobmanager", "taskmanager", "launcher"}
        policies = (FOLDER / "cluster" / "network.yaml").read_text()
        assert set(re.findall(r"dpbeam/part: (\w+)", policies)) == parts
        assert set(re.search(r"values: \[(.*)\]", policies)[1].split(", ")) == {"taskmanager", "launcher"}

    def test_both_flows_of_a_port(self):
        """What one may send another may take: (from, to, port) of both directions are the same set."""
        sent, taken = set(), set()
        for part in ("jobmanager", "taskmanager", "launcher"):
            spec = resource("NetworkPolicy", part)["spec"]
            for rule in spec.get("egress", ()):
                for peer in rule["to"]:
                    for port in rule["ports"]:
                        sent.add((part, peer["podSelector"]["matchLabels"]["dpbeam/part"], port["port"]))
            for rule in spec.get("ingress", ()):
                for peer in rule["from"]:
                    for port in rule["ports"]:
                        if "podSelector" in peer:
                            taken.add((peer["podSelector"]["matchLabels"]["dpbeam/part"], part, port["port"]))
        assert sent == taken and len(sent) == 6

    def test_one_account_that_may_do_nothing_here(self):
        account = resource("ServiceAccount")
        assert account["automountServiceAccountToken"] is False
        name = account["metadata"]["name"]
        assert resource("FlinkDeployment")["spec"]["serviceAccount"] == name
        for part in ("select", "nightly"):
            assert pods()[part]["spec"]["serviceAccountName"] == name
        assert not [r for _, r in resources() if "Role" in r["kind"]]

    def test_settings_are_mounted_where_the_command_looks(self):
        for folder in ("select", "nightly"):
            (made,) = kustomization(folder)["configMapGenerator"]
            spec = pods()[folder]["spec"]
            (volume,) = (v for v in spec["volumes"] if v["name"] == "settings")
            assert volume["configMap"]["name"] == made["name"]
            launcher = containers(pods()[folder])["launcher"]
            (mount,) = (m for m in launcher["volumeMounts"] if m["name"] == "settings")
            assert f"--config={mount['mountPath']}/{made['files'][0]}" in " ".join(launcher["args"])

    @pytest.mark.parametrize("part", sorted(pods()))
    def test_every_mount_is_a_volume(self, part):
        pod = pods()[part]
        mounted = {m["name"] for c in containers(pod).values() for m in c.get("volumeMounts", ())}
        assert mounted == {volume["name"] for volume in pod["spec"]["volumes"]}


class TestSafety:
    @pytest.mark.parametrize("part", sorted(pods()))
    def test_containers_are_closed(self, part):
        """What the level `restricted` of the namespace asks, and a root that cannot be written."""
        pod = pods()[part]
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in containers(pod).values():
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert context.get("runAsUser") != 0
            assert "/tmp" in {mount["mountPath"] for mount in container["volumeMounts"]}
        assert all(set(v) <= {"name", "emptyDir", "configMap"} for v in pod["spec"]["volumes"])

    def test_users_are_those_of_the_images(self):
        image = re.search(r"^USER (\d+)$", (ROOT / "Dockerfile").read_text(), re.M)[1]
        flink = re.search(r"^USER (\d+)$", (FOLDER / "flink.Dockerfile").read_text(), re.M)[1]
        for pod in pods().values():
            for container in containers(pod).values():
                wanted = {"dpbeam": image, "dpbeam-flink": flink, None: flink}[container.get("image")]
                assert container["securityContext"].get("runAsUser", int(flink)) == int(wanted)

    def test_credentials_go_to_python_alone(self):
        for pod in pods().values():
            for name, container in containers(pod).items():
                assert ("envFrom" in container) == (name in ("workers", "launcher"))
                assert all(set(source) == {"secretRef"} for source in container.get("envFrom", ()))

    def test_resources_follow_docs_scaling(self):
        """One core and 2 GB for Python; 500 MB of heap and 400 MB of direct memory are held against Flink itself in
        tests/engines/test_kubernetes.py.
        """
        said = " ".join((ROOT / "docs/reference/scaling.md").read_text().split())
        assert "A worker needs one core, 2 GB for Python" in said
        assert containers(pods()["taskmanager"])["workers"]["resources"]["requests"] == {
            "cpu": "1",
            "memory": "2Gi",
        }
        for pod in pods().values():
            for name, container in containers(pod).items():
                if name != "flink-main-container":  # the operator's, from `resource`
                    assert {"requests", "limits"} == set(container["resources"])

    def test_flink_is_set_up_as_on_loopback(self):
        """But for addresses and times, as scripts/flink, with which the engines are tested."""
        script = (ROOT / "scripts/flink").read_text()
        heredoc = script.split('config.yaml" <<CONF\n')[1].split("\nCONF")[0]
        there = dict(line.split(": ", 1) for line in heredoc.splitlines())
        here = resource("FlinkDeployment")["spec"]["flinkConfiguration"]
        own = {"rest.port", "jobmanager.rpc.port", "taskmanager.numberOfTaskSlots", "io.tmp.dirs"}
        own |= {"slot.request.timeout", "restart-strategy.fixed-delay.delay"}
        same = {name for name in there if name in here} - own
        assert len(same) == 9
        assert {name: here[name] for name in same} == {name: there[name] for name in same}
        opens = re.findall(r"java\.base/\S+", script.split("OPENS=(")[1].split(")")[0])
        assert here["env.java.opts.all"].split() == [f"--add-opens={module}=ALL-UNNAMED" for module in opens]
        assert here["env.java.opts.taskmanager"] in re.findall(r"-XX:\S+", script)
        task = resource("FlinkDeployment")["spec"]["taskManager"]["resource"]["memory"]
        assert task == re.search(r"FLINK_WORKER_MEMORY:-(\w+)}", script)[1]


class TestNights:
    def test_the_pods_are_alike(self):
        one, every = (pods()[name]["spec"] for name in ("select", "nightly"))
        for spec in (one, every):
            launcher = spec["containers"][0]
            for name in ("command", "args", "env", "envFrom"):
                launcher.pop(name, None)
            spec["volumes"] = [v for v in spec["volumes"] if v["name"] != "settings"]
        assert one == every

    def test_exit_code_2_is_not_retried(self):
        spec = resource("CronJob")["spec"]["jobTemplate"]["spec"]
        (rule,) = spec["podFailurePolicy"]["rules"]
        assert rule["action"] == "FailJob" and rule["onExitCodes"]["values"] == [2]
        assert rule["onExitCodes"]["containerName"] in containers(pods()["nightly"])
        assert spec["backoffLimit"] > 0
        assert pods()["nightly"]["spec"]["restartPolicy"] == "Never"
        assert resource("Job")["spec"]["backoffLimit"] == 0, "without an account a retry may spend twice"

    def test_it_waits_for_an_account(self):
        assert resource("CronJob")["spec"]["suspend"] is True
        assert settings("nightly")["budget"] and settings("nightly")["dataset"]

    @pytest.mark.parametrize("day", ["yesterday", "2026-10-31"])
    def test_the_command_of_a_night(self, day, tmp_path):
        """Its shell, with a dpbeam that tells its arguments."""
        launcher = containers(pods()["nightly"])["launcher"]
        assert launcher["env"] == [{"name": "DPBEAM_DAY", "value": "yesterday"}]
        fake = tmp_path / "dpbeam"
        fake.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
        fake.chmod(0o755)
        environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "DPBEAM_DAY": day}
        argv = [*launcher["command"], *launcher["args"]]
        run = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=20, check=True)
        now = datetime.datetime.fromtimestamp(time.time(), datetime.timezone.utc)
        days = [now.date() - datetime.timedelta(days=n) for n in (1, 2)] if day == "yesterday" else [day]
        lines = run.stdout.splitlines()
        assert lines in [
            [
                "select",
                "--config=/etc/dpbeam/select.yaml",
                f"--input=s3://BUCKET/pairs/{day}/*.parquet",
                f"--output=s3://BUCKET/team/out/{day}/items",
                f"--release_id=select.{day}",
                f"--budget_period={day}",
            ]
            for day in days
        ]
        assert {flag.partition("=")[0] for flag in lines[1:]} <= known_flags()
        assert shlex.join(lines)
