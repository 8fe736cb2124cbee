"""The manifests of configs/kubernetes as data."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "configs" / "kubernetes"
#: what kustomize itself reads, and the settings of dpbeam
NOT_RESOURCES = ("kustomization.yaml", "images.yaml", "select.yaml")


def resources() -> Iterator[tuple[Path, dict]]:
    """(file, resource) of every manifest."""
    for path in sorted(FOLDER.rglob("*.yaml")):
        if path.name not in NOT_RESOURCES:
            for document in yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader):
                yield path, document


def resource(kind: str, name: str | None = None) -> dict:
    """The one resource of this kind and name."""
    (matching,) = (r for _, r in resources() if r["kind"] == kind and name in (None, r["metadata"]["name"]))
    return matching


def settings(folder: str) -> dict:
    """The config file of `dpbeam select` in a folder."""
    return yaml.safe_load((FOLDER / folder / "select.yaml").read_text())


def kustomization(folder: str) -> dict:
    return yaml.safe_load((FOLDER / folder / "kustomization.yaml").read_text())


def pods() -> dict[str, dict]:
    """Every template of a pod, (metadata, spec) by the part that it plays in which manifest."""
    flink = resource("FlinkDeployment")["spec"]
    return {
        "jobmanager": flink["jobManager"]["podTemplate"],
        "taskmanager": flink["taskManager"]["podTemplate"],
        "select": resource("Job")["spec"]["template"],
        "nightly": resource("CronJob")["spec"]["jobTemplate"]["spec"]["template"],
    }


def containers(pod: dict) -> dict[str, dict]:
    """All containers of a pod by name, those that start first too."""
    spec = pod["spec"]
    return {c["name"]: c for c in (*spec.get("initContainers", ()), *spec["containers"])}


def closed(schema: Any) -> Any:
    """A schema of a custom resource that refuses unknown fields, which a server would drop without a word."""
    schema = copy.copy(schema)
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.pop("x-kubernetes-int-or-string", False):
        schema = {"type": ["integer", "string"]}
    # A property may be called "properties": only an object has them as a mapping of schemas.
    made = {key: closed(value) for key, value in schema.items()}
    if (
        made.get("type") == "object"
        and "properties" in made
        and "additionalProperties" not in made
        and not made.get("x-kubernetes-preserve-unknown-fields")
    ):
        made["additionalProperties"] = False
    return made
