"""The unchanged upstream exporter, from the package index: what it puts on the wire is stored, all of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.running_lens import RunningLens, http_post
from tests.plugins.sources.wandb_hook.environments import EXPORTER, environment, write_script

TRAIN = """
import primus_lens_wandb_exporter.wandb_hook as hook
hook.install_wandb_hook()
import time, wandb
run = wandb.init(project="primus-demo", config={"framework": "primus"})
for step in range(30):
    wandb.log({"loss": step / 2, "accuracy": step / 100}, step=step)
time.sleep(6)
"""


class Wire:
    """A proxy in front of a daemon that counts what reaches the socket."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.points: list[dict[str, Any]] = []
        self.detections = 0
        self.statuses: list[int] = []

    def note(self, path: str, body: Any) -> None:
        """Count one request."""
        if path.endswith("/wandb/metrics"):
            self.points += body["metrics"]
        elif path.endswith("/wandb/detection"):
            self.detections += 1


@contextmanager
def proxy(target: str) -> Iterator[tuple[str, Wire]]:
    wire = Wire(target)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {"Content-Type": self.headers.get("Content-Type", "")}
            answer = http_post(f"{target}{self.path}", content=body, headers=headers)
            wire.note(self.path, json.loads(body))
            wire.statuses.append(answer.status_code)
            self.send_response(answer.status_code)
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", wire
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.slow("waits for intervals that the exporter fixes")
@pytest.mark.parametrize("prefix", ["/v1", "/api/v1"])
def test_all_that_it_sends_is_stored(lens: RunningLens, tmp_path: Path, prefix: str) -> None:
    exporter = environment("upstream-exporter", EXPORTER)
    with proxy(lens.url) as (address, wire):
        variables = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
            "WANDB_MODE": "offline",
            "WANDB_DIR": str(tmp_path),
            "WANDB_SILENT": "true",
            "POD_NAME": "training-pod-0",
            "WORKLOAD_UID": "abc-123",
            "PRIMUS_LENS_API_BASE_URL": f"{address}{prefix}",
            # The environments of these tests hold no Lens hook, so that only the exporter speaks.
        }
        exporter_run(exporter.python, write_script(TRAIN, tmp_path), variables)
    assert wire.statuses
    assert set(wire.statuses) == {200}
    assert wire.points
    sent = {(point["name"], point["step"]): point["value"] for point in wire.points}
    lens.drained()
    stored = {(point["metric_name"], point["iteration"]): point["value"] for point in lens.points("abc-123")}
    assert stored == sent
    assert wire.detections == 1
    evidence = lens.get("/status")["sources"]
    assert sum(source["accepted"] for source in evidence) == len(wire.points) + wire.detections


def exporter_run(python: str, script: Path, variables: dict[str, str]) -> None:
    """Run the training script with the exporter to its end."""
    import subprocess

    done = subprocess.run(
        [python, str(script)],
        env=variables,
        capture_output=True,
        text=True,
        timeout=240,
        cwd=script.parent,
        check=False,
    )
    assert done.returncode == 0, done.stderr
