"""The other files of deploy/: the hook without a change of images, the systemd unit, the Dockerfile."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import tomllib
import yaml

from tests.end_to_end.running_lens import RunningLens, wait_for
from tests.forked import run_lens

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PATCH = yaml.safe_load((DEPLOY / "kubernetes/hook-patch.yaml").read_text())
JOB = yaml.safe_load((DEPLOY / "kubernetes/job.yaml").read_text())
UNIT = (DEPLOY / "systemd/lens.service").read_text()
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()


def merged(target: Any, patch: Any) -> Any:
    """A strategic merge as Kubernetes does it for pods: lists of named things are merged by name."""
    if isinstance(target, dict) and isinstance(patch, dict):
        return {**target, **{key: merged(target.get(key), value) for key, value in patch.items()}}
    if isinstance(target, list) and isinstance(patch, list) and all("name" in item for item in [*target, *patch]):
        old = {item["name"]: item for item in target}
        new = {item["name"]: merged(old.get(item["name"]), item) for item in patch}
        return list({**old, **new}.values())
    return patch


def test_the_patched_job_is_valid_and_keeps_its_container() -> None:
    job = merged(JOB, PATCH)
    kubernetes_validate.validate(job, "1.33", strict=True)
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == "my-training:1"
    assert container["command"] == ["python", "train.py"]
    mounts = {mount["name"] for part in (*pod["containers"], *pod["initContainers"]) for mount in part["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["volumes"]}


@pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="does not apply: no kubectl; the merge is checked without it"
)
def test_kubectl_merges_the_same() -> None:
    command = ["kubectl", "patch", "--local", "-f", str(DEPLOY / "kubernetes/job.yaml"), "-o", "json"]
    command += ["--patch-file", str(DEPLOY / "kubernetes/hook-patch.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["spec"]["template"]["spec"]
    wanted = merged(JOB, PATCH)["spec"]["template"]["spec"]
    (container,) = found["containers"]
    assert container["env"] == wanted["containers"][0]["env"]
    assert found["initContainers"] == wanted["initContainers"]


def test_the_hook_is_armed_by_the_variables_of_the_patch(hook_folder: Path, tmp_path: Path) -> None:
    """Copied as the init container does, with PYTHONPATH as the patch sets it, in a Python that has no lens-hook."""
    shared = tmp_path / "lens-hook"
    shutil.copytree(hook_folder, shared)
    (container,) = PATCH["spec"]["template"]["spec"]["containers"]
    variables = {entry["name"]: entry.get("value", "x") for entry in container["env"]}
    variables["PYTHONPATH"] = variables["PYTHONPATH"].replace("/lens-hook", str(shared), 1)
    code = "import sys, json; print(json.dumps([sys.modules['lens_hook'].__file__, 'http.client' in sys.modules]))"
    environment = {"PATH": os.environ["PATH"], **variables}
    base = getattr(sys, "_base_executable", sys.executable)
    done = subprocess.run([base, "-c", code], env=environment, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    file, sends_already = json.loads(done.stdout)
    assert Path(file).is_relative_to(shared)
    assert sends_already is False


def test_what_the_dockerfile_names_is_there() -> None:
    extras = re.findall(r"\$\{agent\}\[([a-z,]+)\]", DOCKERFILE)[0].split(",")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras) <= set(project["optional-dependencies"])
    version = project["version"]
    chart = yaml.safe_load((DEPLOY / "helm/lens/Chart.yaml").read_text())
    assert chart["appVersion"] == version
    (init,) = PATCH["spec"]["template"]["spec"]["initContainers"]
    assert init["image"] == f"lens-hook:{version}"
    assert "lens_hook/bootstrap" in str(PATCH)
    assert (ROOT / "plugins/sources/wandb_hook/lens_hook/bootstrap/sitecustomize.py").is_file()


def test_hadolint_has_nothing_to_say_about_the_dockerfile() -> None:
    command = [str(Path(sys.executable).with_name("hadolint")), "--no-color", str(DEPLOY / "Dockerfile")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert (done.returncode, done.stdout) == (0, "")


def unit_lines(key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", UNIT, flags=re.M)


def test_the_unit_validates_before_it_starts_and_before_it_reloads() -> None:
    assert "lens validate " in unit_lines("ExecStartPre")[0]
    check, reload = unit_lines("ExecReload")
    assert "lens validate " in check
    assert reload == "/bin/kill -HUP $MAINPID"
    assert unit_lines("RestartPreventExitStatus") == ["78"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="does not apply: no systemd on this machine")
def test_systemd_understands_the_unit() -> None:
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(DEPLOY / "systemd/lens.service")],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert "lens.service" not in done.stderr, done.stderr


def test_the_units_commands_do_what_the_unit_says(make_lens: Callable[..., RunningLens], tmp_path: Path) -> None:
    """A wrong file: `validate` ends with 78, so nothing is sent; and a daemon that gets SIGHUP anyway goes on."""
    good = f"sinks: {{out: {{type: jsonl, path: {tmp_path / 'out.jsonl'}}}}}\n"
    lens = make_lens(good + "pipelines: {first: {}}\n").start()
    file = lens.data_dir.with_suffix(".yaml")
    assert run_lens("validate", str(file)).returncode == 0
    lens.configure(good + "pipelines: {second: {form: [logs]}}\n")
    assert run_lens("validate", str(file)).returncode == 78
    assert lens.process is not None
    lens.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "Reload refused" in lens.log.read_text() or None, what="the refusal in the log")
    assert [pipeline["name"] for pipeline in lens.get("/status")["pipelines"]] == ["first"]
    lens.configure(good + "pipelines: {second: {}}\n")
    lens.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "Reloaded." in lens.log.read_text() or None, what="the reload in the log")
    assert [pipeline["name"] for pipeline in lens.get("/status")["pipelines"]] == ["second"]
    assert lens.stop() == 0
