"""Tracking servers for tests: a real `mlflow server`, and one in memory that sorts and pages as MLflow's store does."""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import math
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
from lens_plugins.collectors.mlflow.api import Pair, Point, PointPage, Refused, Run, RunData, RunInfo, RunPage

from tests.durations import preparing
from tests.plugins.sources.wandb_hook.environments import TRACKERS, Environment, environment
from tests.ports import free_port

_START_SECONDS = 240.0
# Its jobs for evaluations run in processes of their own, each of which imports MLflow; no test asks for one.
_NO_JOBS = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}


def mlflow_environment() -> Environment:
    """The environment with the real package, which the hook's tests use, too."""
    return environment("trackers", TRACKERS)


class RealServer:
    """A `mlflow server` on a free port, with SQLite in a folder; it can be stopped and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = mlflow_environment()
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The address."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def database(self) -> Path:
        """The file of its store."""
        return self.folder / "mlflow.db"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        log = (self.folder / "server.log").open("ab")
        options = ["--backend-store-uri", f"sqlite:///{self.database}", "--workers", "1", "--port", str(self._port)]
        with preparing(), log:
            self._process = subprocess.Popen(
                [self.environment.python, "-m", "mlflow", "server", "--host", "127.0.0.1", *options],
                cwd=self.folder,
                env={**self.environment.variables(self.folder), "PYTHONPATH": "", **_NO_JOBS},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            until = time.monotonic() + _START_SECONDS
            while not self._answers():
                assert self._process.poll() is None, (self.folder / "server.log").read_text()[-3000:]
                assert time.monotonic() < until, (self.folder / "server.log").read_text()[-3000:]
                time.sleep(0.1)

    def _answers(self) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"{self.url}/health", timeout=5).status_code == 200
        return False

    def stop(self) -> None:
        """Stop it with all of its workers."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)
            self._process.wait(60)
            self._process = None

    def run_script(self, script: str, work: Path) -> str:
        """Run a script with the real client and return its output; `MLFLOW_TRACKING_URI` is this server."""
        done = self.environment.run(script, work, {"MLFLOW_TRACKING_URI": self.url, "PYTHONPATH": ""})
        return done.stdout


@contextlib.contextmanager
def real_server(folder: Path) -> Iterator[RealServer]:
    """A running server."""
    server = RealServer(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()


class MemoryServer:
    """A tracking server in memory, with small pages; `knows_places` False for one whose tokens nobody else can make."""

    def __init__(self, points_per_page: int = 3, runs_per_page: int = 2, *, knows_places: bool = True) -> None:
        self.asked = 0
        self.points: dict[str, dict[str, list[Point]]] = {}
        self.status: dict[str, str] = {}
        self.ends: dict[str, int] = {}
        self.deleted: set[str] = set()
        self.tags: dict[str, dict[str, str]] = {}
        self._points_per_page = points_per_page
        self._runs_per_page = runs_per_page
        self._knows_places = knows_places

    def log(self, run_id: str, key: str, value: float, timestamp: int, step: int) -> None:
        """Store a value, once; begins the run."""
        self.status.setdefault(run_id, "RUNNING")
        values = self.points.setdefault(run_id, {}).setdefault(key, [])
        point = Point(key, value, timestamp, step)
        if point.mark not in {one.mark for one in values}:
            values.append(point)
            values.sort(key=_by_time)

    def end(self, run_id: str, status: str, at_ms: int) -> None:
        """End a run."""
        self.status[run_id], self.ends[run_id] = status, at_ms

    async def experiments(self) -> dict[str, str]:
        """As the protocol `Server` says."""
        return {"1": "night"}

    async def search_runs(self, experiment_ids: Sequence[str], condition: str, token: str) -> RunPage:
        """As the protocol `Server` says."""
        if condition.endswith("'RUNNING'"):
            fit = [run_id for run_id, status in self.status.items() if status == "RUNNING"]
        else:
            since = int(condition.rpartition(" ")[2])
            fit = [run_id for run_id in self.status if self.ends.get(run_id, 0) >= since]
        fit = [run_id for run_id in fit if run_id not in self.deleted]
        at = int(token or 0)
        behind = at + self._runs_per_page
        return RunPage([self._run(run_id) for run_id in fit[at:behind]], str(behind) if behind < len(fit) else "")

    async def find_run(self, run_id: str) -> Run | None:
        """As the protocol `Server` says."""
        return self._run(run_id) if run_id in self.status else None

    async def history(self, run_id: str, key: str, token: str) -> PointPage:
        """As the protocol `Server` says."""
        self.asked += 1
        at = self._place_of(token)
        values = self.points[run_id][key]
        behind = at + self._points_per_page
        return PointPage(values[at:behind], self._token_of(behind) if behind < len(values) else "")

    def _token_of(self, place: int) -> str:
        if not self._knows_places:
            return f"secret-{place}"
        return base64.b64encode(json.dumps({"offset": place}).encode()).decode()

    def _place_of(self, token: str) -> int:
        if not token:
            return 0
        if not self._knows_places:
            if not token.startswith("secret-"):
                raise Refused("an unknown token")
            return int(token.removeprefix("secret-"))
        try:
            return int(json.loads(base64.b64decode(token))["offset"])
        except (binascii.Error, ValueError) as error:
            raise Refused(str(error)) from None

    def _run(self, run_id: str) -> Run:
        latest = [max(values, key=_by_step) for values in self.points.get(run_id, {}).values()]
        info = RunInfo(
            run_id,
            "1",
            f"name of {run_id}",
            status=self.status[run_id],
            start_time=1_700_000_000_000,
            end_time=self.ends.get(run_id) if self.status[run_id] != "RUNNING" else None,
            lifecycle_stage="deleted" if run_id in self.deleted else "active",
        )
        tags = [Pair(key, text) for key, text in self.tags.get(run_id, {}).items()]
        return Run(info, RunData(latest, [Pair("lr", "0.1")], tags))


def _by_time(point: Point) -> tuple[int, int, float]:
    return point.timestamp, point.step, 0.0 if math.isnan(point.value) else point.value


def _by_step(point: Point) -> tuple[int, int, float]:
    return point.step, point.timestamp, 0.0 if math.isnan(point.value) else point.value
