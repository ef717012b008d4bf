"""The runs that `benchmarks/hook.py` compares: a process each, with real wandb, in turn, and what they send to."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import peer_environment
from tests.stub_server import Answer, StubServer

ROOT = Path(__file__).resolve().parents[1]
JOB = ROOT / "benchmarks" / "hook_job.py"
WANDB = ("wandb-0.31.0", ("wandb==0.31.0", "numpy", "psutil"))
EXPORTER = ("exporter-0.2.0", ("primus-lens-wandb-exporter==0.2.0", "wandb==0.31.0", "numpy"))
SWANLAB = ("swanlab-0.10.3", ("swanlab==0.10.3", "wandb==0.31.0", "numpy"))
VARIANTS = ("none", "lens up", "lens down", "lens slow", "exporter", "swanlab")
RECEIVERS = ("lens up", "lens down", "lens slow")
Results = dict[str, list[dict[str, Any]]]


class Receiver:
    """Answers every route of Lens and of upstream, counts the points that arrive."""

    def __init__(self, delay_seconds: float = 0.0) -> None:
        self.points = 0
        self._delay_seconds = delay_seconds
        self._server = StubServer(self._answer)
        self.url = f"{self._server.url}/api/v1"
        self.close = self._server.close

    def _answer(self, path: str, headers: dict[str, str], body: bytes) -> Answer:
        time.sleep(self._delay_seconds)
        self.points += points_in(json.loads(body))
        return 200, b'{"success": true, "accepted": 0, "rejected": []}', {}


def points_in(body: Mapping[str, Any]) -> int:
    """The points in one request, in Lens' envelope or upstream's list of metrics."""
    rows = sum(len(record.get("values", ())) for record in body.get("records", ()))
    return rows + len(body.get("metrics", ()))


@contextlib.contextmanager
def receivers() -> Iterator[dict[str, str]]:
    """A base URL for each variant."""
    up, slow = Receiver(), Receiver(0.5)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        down = f"http://127.0.0.1:{nobody.getsockname()[1]}/api/v1"
        try:
            yield {"lens up": up.url, "lens down": down, "lens slow": slow.url, "exporter": up.url}
        finally:
            up.close()
            slow.close()


def python_of(variant: str) -> str:
    """The interpreter of the variant's environment."""
    name, packages = {"exporter": EXPORTER, "swanlab": SWANLAB}.get(variant, WANDB)
    return str(peer_environment(name, packages) / "python")


def run_job(
    variant: str, what: str, count: int, url: str = "", more: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """One measured process."""
    with tempfile.TemporaryDirectory(prefix="lens-hook-benchmark-") as work:
        variables = {
            "PATH": os.environ["PATH"],
            "HOME": work,
            "WANDB_DIR": work,
            "WANDB_SILENT": "true",
            "WANDB_ERROR_REPORTING": "false",
            "SWANLAB_LOG_DIR": work,
            "POD_NAME": "benchmark",
            "PRIMUS_LENS_EXIT_DEADLINE_SECONDS": "1",
            **({"PRIMUS_LENS_API_BASE_URL": url} if url else {}),
            **(more or {}),
        }
        done = subprocess.run(
            [python_of(variant), str(JOB), variant.split()[0], what, str(count)],
            env=variables,
            cwd=work,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise RuntimeError(f"{variant} {what}: {done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(lines[-1])
    return result


def alternate(what: str, count: int, repeats: int, variants: Sequence[str], urls: Mapping[str, str]) -> Results:
    """`repeats` runs of each variant, in turn."""
    results: Results = {variant: [] for variant in variants}
    for number in range(repeats):
        for variant in variants if number % 2 == 0 else reversed(variants):
            results[variant].append(run_job(variant, what, count, urls.get(variant, "")))
    return results


class Size:
    """The size of a measurement: quick or whole, and how often."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self._quick: bool = chosen.quick
        self._repeats: int | None = chosen.repeats
        self._receiver: str | None = chosen.receiver

    def of(self, quick: int, whole: int) -> int:
        """A size."""
        return quick if self._quick else whole

    def runs(self, quick: int, whole: int) -> int:
        """A number of runs."""
        return self._repeats or self.of(quick, whole)

    def receivers(self) -> tuple[str, ...]:
        """The receivers of measurements within one process."""
        return (f"lens {self._receiver}",) if self._receiver else RECEIVERS

    def variants(self) -> tuple[str, ...]:
        """The variants that whole runs compare."""
        return ("none", "lens up", "exporter") if self._quick else VARIANTS


def middle(results: Results, variant: str, key: str) -> float:
    """The median over a variant's runs."""
    return float(statistics.median(result[key] for result in results[variant]))
