"""docs/instrument_a_cluster.md by the real helm and kubectl, against an API server that runs what is installed.

The daemon's pod is the daemon of the chart, on its configuration; the job's pod has the hook as its init container
copied it. That the chart's DaemonSet and CronJob are valid is seen; they are not run.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.deploy.cluster.api_server import ApiServer, served
from tests.deploy.cluster.containers import Container, Mount, may_run
from tests.deploy.cluster.kubelet import Image, Kubelet
from tests.deploy.cluster.objects import RESOURCES, Objects
from tests.deploy.conftest import hook_folder
from tests.docs.pages import ROOT, blocks, run_console
from tests.end_to_end.running_lens import wait_for

__all__ = ["hook_folder"]

PAGE = "instrument_a_cluster.md"
TOOLS = Path(sys.executable).parent
TRAIN = """
import pathlib, sys, time
assert "lens_hook" in sys.modules, "the hook is not armed"
pathlib.Path("/tmp/armed").touch()
time.sleep(600)
"""


def what_is_missing() -> str:
    """Why no cluster can be played here; '' where it can."""
    if not (TOOLS / "helm").exists():
        return "needs helm and kubectl, which scripts/test installs"
    return "" if may_run() else "does not apply: nobody may make containers on this machine"


MISSING = what_is_missing()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING or "nothing is missing")


class Cluster(NamedTuple):
    """A reader's folder with what the page needs, the variables of the shell, and what runs in the cluster."""

    folder: Path
    environ: dict[str, str]
    server: ApiServer

    def give(self, number: int, **values: str) -> list[str]:
        """Give the commands of a console block of the page."""
        return run_console(blocks(PAGE, "console")[number], self.folder, self.environ, values=values)

    def container(self, namespace: str, name: str) -> Container:
        return self.server.containers[namespace, name]


def images(folder: Path, hook: Path) -> dict[str, Image]:
    """The page's images: Lens as it is installed here, the hook's files, and somebody's training."""
    (folder / "training").mkdir()
    (folder / "training" / "train.py").write_text(TRAIN)
    training = Path(getattr(sys, "_base_executable", sys.executable)).parent
    return {
        "REGISTRY/lens-agent:0.1.0": Image((str(TOOLS / "lens"),), f"{TOOLS}:/usr/bin:/bin"),
        "lens-hook:0.1.0": Image(folders=[Mount(hook, "/lens-hook")]),
        "my-training:1": Image(
            path=f"{training}:/usr/bin:/bin", folders=[Mount(folder / "training", "/app")], workdir="/app"
        ),
    }


@pytest.fixture
def cluster(tmp_path: Path, hook_folder: Path, postgres_dsn: str) -> Iterator[Cluster]:
    folder = tmp_path / "reader"
    folder.mkdir()
    (folder / "deploy").symlink_to(ROOT / "deploy")
    shutil.copy(ROOT / "deploy/kubernetes/job.yaml", folder)
    (folder / "values.yaml").write_text(blocks(PAGE, "yaml")[0])
    server = ApiServer(Objects())
    # The way to the database, which is a socket in a folder here.
    sockets = Path(str(conninfo_to_dict(postgres_dsn)["host"]))
    # Wherever these are on this machine: a volume of a pod may lie over it.
    shared = [Mount(folder, str(folder)) for folder in (sockets, ROOT, Path(sys.prefix))]
    kubelet = Kubelet(server, images(tmp_path, hook_folder), tmp_path, shared)
    with served(server, tmp_path) as kubeconfig:
        try:
            yield Cluster(folder, {"KUBECONFIG": str(kubeconfig)}, server)
        finally:
            kubelet.stop()


def test_a_cluster_is_instrumented_as_the_page_says(cluster: Cluster, postgres_dsn: str) -> None:
    _, secrets, install, patch, look = range(5)  # blocks of the page
    cluster.give(secrets, **{"postgresql://…": f"'{postgres_dsn}'", "…": "k"})
    (said,) = cluster.give(install)
    assert "STATUS: deployed" in said
    kept = {one.kind for one in RESOURCES if cluster.server.objects.list(one)}
    assert kept >= {"StatefulSet", "DaemonSet", "CronJob", "Service", "ConfigMap", "ServiceAccount", "ClusterRole"}
    daemon = cluster.container("lens", "lens-0")
    ready = ["/usr/bin/curl", "-sf", "http://127.0.0.1:8080/readyz"]
    wait_for(lambda: daemon.run(ready).returncode == 0, what="the daemon of the chart")
    (said,) = cluster.give(patch)
    assert "job.batch/train created" in said
    training = cluster.container("default", "train-x7k2p")
    wait_for(lambda: training.run(["/usr/bin/test", "-e", "/tmp/armed"]).returncode == 0, what="the armed hook")
    status, token, variables = cluster.give(look, **{"TRAINING-POD": "train-x7k2p"})
    assert "wandb_api" in status
    assert token.startswith("lens_")
    assert "PYTHONPATH=/lens-hook/lens_hook/bootstrap" in variables
    assert "PRIMUS_LENS_API_BASE_URL=http://lens.lens:8080/api/v1" in variables


def test_what_kubernetes_would_refuse_is_refused(cluster: Cluster) -> None:
    job = (cluster.folder / "job.yaml").read_text()
    for name, right, wrong in (
        ("value.yaml", "restartPolicy: Never", "restartPolicy: 5"),
        ("field.yaml", "image:", "img:"),
    ):
        assert right in job
        (cluster.folder / name).write_text(job.replace(right, wrong))
        command = [str(TOOLS / "kubectl"), "apply", "-f", name]
        done = subprocess.run(
            command, cwd=cluster.folder, env=cluster.environ, capture_output=True, text=True, timeout=240, check=False
        )
        assert (done.returncode, "is invalid" in done.stderr) == (1, True), done.stderr
