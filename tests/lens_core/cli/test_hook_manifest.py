"""`lens hook inject`: the hook comes into a job and nothing that the job has is lost."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from lens_core.base.errors import LensError
from lens_core.cli import cli
from lens_core.cli.hook_manifest import BOOTSTRAP, Injection, inject, inject_text, pod_specs

ROOT = Path(__file__).parents[3]
INJECTION = Injection("lens-hook:1", "http://lens.lens:8080/api/v1", "lens-ingest")
names = st.sampled_from(["PYTHONPATH", "PATH", "POD_NAME", "A", "B"])
values = st.one_of(
    st.builds(lambda text: {"value": text}, st.sampled_from(["", "/app", "/app/src:/lib", BOOTSTRAP])),
    st.just({"valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}),
)
variables = st.dictionaries(names, values, max_size=5).map(
    lambda found: [{"name": name, **value} for name, value in found.items()]
)


def job(env: list[dict[str, Any]]) -> dict[str, Any]:
    container = {"name": "trainer", "image": "i", "env": copy.deepcopy(env)}
    return {"kind": "Job", "spec": {"template": {"spec": {"containers": [container]}}}}


def resolved(env: list[dict[str, Any]]) -> dict[str, str]:
    """The variables as the kubelet makes them: $(NAME) is one that stands before."""
    found: dict[str, str] = {}
    for entry in env:
        text = entry.get("value", f"<{entry['name']}>" if "valueFrom" in entry else "")
        for name, value in found.items():
            text = text.replace(f"$({name})", value)
        found[entry["name"]] = text
    return found


@given(variables)
def test_what_a_job_sets_is_kept(env: list[dict[str, Any]]) -> None:
    document = job(env)
    assert inject(document, INJECTION) == 1
    (container,) = document["spec"]["template"]["spec"]["containers"]
    before, after = resolved(env), resolved(container["env"])
    path = after.pop("PYTHONPATH").split(":")
    assert path[0] == BOOTSTRAP
    assert path.count(BOOTSTRAP) == 1
    given_path = next((entry for entry in env if entry["name"] == "PYTHONPATH"), {"value": ""})
    if "valueFrom" in given_path:
        assert path[1:] == ["<LENS_JOB_PYTHONPATH>"]
    else:
        assert path[1:] == [part for part in given_path["value"].split(":") if part not in ("", BOOTSTRAP)]
    assert {name: value for name, value in before.items() if name != "PYTHONPATH"}.items() <= after.items()
    again = copy.deepcopy(document)
    inject(again, INJECTION)
    assert again == document


def test_every_template_of_a_file_gets_it_and_the_job_of_the_patch_is_the_same() -> None:
    training = {"replicas": 2, "template": {"spec": {"containers": [{"name": "pytorch"}, {"name": "side"}]}}}
    operator = {"kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": {"Master": training, "Worker": training}}}
    text = inject_text(yaml.safe_dump_all([operator, {"kind": "Service"}]), INJECTION._replace(containers=("pytorch",)))
    found, service = yaml.safe_load_all(text)
    assert service == {"kind": "Service"}
    for pod in pod_specs(found):
        assert [one["name"] for one in pod["containers"] if "env" in one] == ["pytorch"]
        assert [one["name"] for one in pod["initContainers"]] == ["lens-hook"]
    patch = yaml.safe_load((ROOT / "deploy/kubernetes/hook-patch.yaml").read_text())["spec"]["template"]["spec"]
    document = job([])
    inject(document, Injection(patch["initContainers"][0]["image"], INJECTION.url, "lens-ingest"))
    ours = document["spec"]["template"]["spec"]
    assert ours["initContainers"] == patch["initContainers"]
    assert ours["volumes"] == patch["volumes"]
    by_name = {entry["name"]: entry for entry in ours["containers"][0]["env"]}
    assert by_name == {entry["name"]: entry for entry in patch["containers"][0]["env"]}


def test_what_has_no_container_is_refused() -> None:
    with pytest.raises(LensError, match="it has no pod template"):
        inject_text("kind: Service", INJECTION)
    with pytest.raises(LensError, match="there are: trainer"):
        inject_text(yaml.safe_dump(job([])), INJECTION._replace(containers=("other",)))
    with pytest.raises(LensError, match="is not YAML"):
        inject_text("a: [", INJECTION)


def test_the_command_prints_what_kubectl_takes() -> None:
    file = str(ROOT / "deploy/kubernetes/job.yaml")
    done = CliRunner().invoke(cli, ["hook", "inject", file, "--image", "r/lens-hook:2", "--python-path", "/app"])
    assert done.exit_code == 0, done.output
    (pod,) = pod_specs(yaml.safe_load(done.output))
    assert pod["initContainers"][0]["image"] == "r/lens-hook:2"
    assert resolved(pod["containers"][0]["env"])["PYTHONPATH"] == f"{BOOTSTRAP}:/app"
