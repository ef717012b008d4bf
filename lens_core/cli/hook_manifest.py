"""Puts the hook into the manifests of Kubernetes jobs: init container, volume, mount and variables.

A patch file can only replace a job's PYTHONPATH; here it is kept, after the hook's folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ..base.errors import LensError

VOLUME = "lens-hook"
BOOTSTRAP = "/lens-hook/lens_hook/bootstrap"
# The variable for a PYTHONPATH from a ConfigMap or a Secret, so that ours can refer to it.
JOBS_PATH = "LENS_JOB_PYTHONPATH"
_FIELDS = {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace", "POD_UID": "metadata.uid"}


class Injection(NamedTuple):
    """The parts to inject: the hook's image, its target, the Secret of its token, and the containers concerned.

    `containers` are names, all where there is none; `python_path` is what the image itself sets.
    """

    image: str
    url: str
    token_secret: str = ""
    containers: tuple[str, ...] = ()
    python_path: str = ""


def inject(document: Any, injection: Injection) -> int:
    """Put the hook into every pod template of a manifest, in place; the number of containers. Twice is as once."""
    return sum(_inject_pod(pod, injection) for pod in pod_specs(document))


def pod_specs(document: Any) -> Iterator[dict[str, Any]]:
    """The pod specifications of a manifest, at any depth: Jobs, PyTorchJobs, JobSets, lists of them, single pods."""
    if isinstance(document, dict):
        containers = document.get("containers")
        if isinstance(containers, list) and all(isinstance(one, dict) and "name" in one for one in containers):
            yield document
        for child in document.values():
            yield from pod_specs(child)
    elif isinstance(document, list):
        for child in document:
            yield from pod_specs(child)


def _inject_pod(pod: dict[str, Any], injection: Injection) -> int:
    wanted = [one for one in pod["containers"] if not injection.containers or one["name"] in injection.containers]
    if not wanted:
        return 0
    init = {
        "name": VOLUME,
        "image": injection.image,
        "command": ["cp", "-r", "/lens-hook/.", "/shared/"],
        "volumeMounts": [{"name": VOLUME, "mountPath": "/shared"}],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65534,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    _set_entry(pod, "initContainers", init)
    _set_entry(pod, "volumes", {"name": VOLUME, "emptyDir": {"sizeLimit": "16Mi"}})
    for container in wanted:
        _inject_container(container, injection)
    return len(wanted)


def _set_entry(parent: dict[str, Any], key: str, entry: dict[str, Any]) -> None:
    """Add an entry to a list by its name, in place of one that is there."""
    parent[key] = [*(one for one in parent.get(key) or [] if one.get("name") != entry["name"]), entry]


def _inject_container(container: dict[str, Any], injection: Injection) -> None:
    _set_entry(container, "volumeMounts", {"name": VOLUME, "mountPath": "/lens-hook", "readOnly": True})
    env: list[dict[str, Any]] = list(container.get("env") or [])
    container["env"] = env
    _prepend_path(env, injection.python_path)
    added: list[dict[str, Any]] = [{"name": "PRIMUS_LENS_API_BASE_URL", "value": injection.url}]
    added += [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in _FIELDS.items()]
    if injection.token_secret:
        reference = {"name": injection.token_secret, "key": "token", "optional": True}
        added.append({"name": "PRIMUS_LENS_API_TOKEN", "valueFrom": {"secretKeyRef": reference}})
    known = {entry.get("name") for entry in env}
    env += [entry for entry in added if entry["name"] not in known]


def _prepend_path(env: list[dict[str, Any]], image_path: str) -> None:
    """Put the hook's folder before what a container has in PYTHONPATH, at the place where it has it."""
    for place, entry in enumerate(env):
        if entry.get("name") != "PYTHONPATH":
            continue
        if "valueFrom" in entry:
            env[place : place + 1] = [
                {"name": JOBS_PATH, "valueFrom": entry["valueFrom"]},
                {"name": "PYTHONPATH", "value": f"{BOOTSTRAP}:$({JOBS_PATH})"},
            ]
        elif BOOTSTRAP not in str(entry.get("value", "")).split(":"):
            entry["value"] = ":".join(filter(None, [BOOTSTRAP, str(entry.get("value") or "")]))
        return
    env.append({"name": "PYTHONPATH", "value": ":".join(filter(None, [BOOTSTRAP, image_path]))})


def inject_text(text: str, injection: Injection) -> str:
    """The manifests of a file with the hook in them. Raises LensError where there is nothing to put it into."""
    import yaml

    try:
        documents = [document for document in yaml.safe_load_all(text) if document is not None]
    except yaml.YAMLError as error:
        raise LensError(f"the manifest is not YAML: {' '.join(str(error).split())}") from None
    if not sum([inject(document, injection) for document in documents]):
        names = [one["name"] for document in documents for pod in pod_specs(document) for one in pod["containers"]]
        there = f"there are: {', '.join(names)}" if names else "it has no pod template"
        raise LensError(f"no container to put the hook into; {there}; see --container")
    return yaml.safe_dump_all(documents, sort_keys=False)
