"""A real daemon as a child process, for tests of whole roads: started, asked, killed, started again."""

from __future__ import annotations

import functools
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import httpx

from tests.forked import ForkedLens
from tests.side_by_side import made_once

T = TypeVar("T")
_ROOT = Path(__file__).parents[2]
# For `verify`: what httpx makes for TLS takes 20 ms of CPU with every client, and http:// needs none of it.
PLAIN = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
# Of httpx, with the patience that a busy machine needs.
http_get = functools.partial(httpx.get, timeout=240, verify=PLAIN)
http_post = functools.partial(httpx.post, timeout=240, verify=PLAIN)
http_put = functools.partial(httpx.put, timeout=240, verify=PLAIN)


def wait_for(condition: Callable[[], T | None], seconds: float = 240.0, what: str = "the condition") -> T:
    """The first true answer of a condition that other processes make true; fails after so many seconds."""
    ends = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        assert time.monotonic() < ends, f"{what} did not come within {seconds} s"
        time.sleep(0.04)


def copy_database(what: str, place: Path) -> None:
    """Copy a data directory of PostgreSQL, `empty` or a `store`: `initdb` costs as much as the rest of a start."""
    made = made_once(
        "embedded",
        lambda folder: subprocess.run([sys.executable, "-m", "tests.databases", folder], cwd=_ROOT, check=True),
    )
    place.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-a", "--sparse=always", made / what, place], check=True)


class RunningLens:
    """A daemon on one data directory. `config` is the text of its configuration file, None for no file."""

    def __init__(self, data_dir: Path, config: str | None = None) -> None:
        self.data_dir = data_dir
        self.log = data_dir.with_suffix(".log")
        self.url = ""
        self.parent = os.getpid()
        self._config = data_dir.with_suffix(".yaml") if config is not None else None
        if self._config is not None and config is not None:
            self._config.write_text(config)
        self.process: ForkedLens | None = None

    def configure(self, config: str) -> None:
        """Write another configuration; SIGHUP or a restart takes it up."""
        assert self._config is not None
        self._config.write_text(config)

    def start(self, listen: str = "127.0.0.1:0", **environment: str) -> RunningLens:
        """Start it and wait until it answers."""
        command = ["up", "--announce-json", "--data-dir", str(self.data_dir), "--listen", listen]
        command += ["--exit-with-parent", str(self.parent)]
        if self._config is not None:
            command += ["--config", str(self._config)]
        elif not self.data_dir.exists():
            copy_database("store", self.data_dir / "plugins" / "store" / "postgresql")
        self.process = ForkedLens(command, self.log, {**os.environ, **environment})
        line = self.process.stdout.readline()
        assert line, f"the daemon did not start:\n{self.log.read_text()[-3000:]}"
        self.url = json.loads(line)["listening"]
        return self

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        assert self.process is not None
        self.process.kill()
        self._gone()

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self._gone()

    def end(self) -> None:
        """Leave nothing running."""
        if self.process is not None and self.process.poll() is None:
            try:
                self.stop()
            except subprocess.TimeoutExpired:
                self.kill()

    def _gone(self) -> int:
        assert self.process is not None
        code = self.process.wait(timeout=240)
        self.process.stdout.close()
        return code

    def get(self, path: str, **parameters: Any) -> Any:
        """The JSON of a GET below /api/v1."""
        response = http_get(f"{self.url}/api/v1{path}", params=parameters)
        assert response.status_code == 200, response.text
        return response.json()

    def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        """The response of a POST of JSON below /api/v1."""
        return http_post(f"{self.url}/api/v1{path}", json=body, headers=headers)

    def points(self, workload: str, **parameters: Any) -> list[dict[str, Any]]:
        """The points of a workload; an unready store is asked again."""

        def answer() -> tuple[list[dict[str, Any]]] | None:
            url = f"{self.url}/api/v1/workloads/{workload}/metrics/data"
            response = http_get(url, params=parameters)
            return (response.json()["data"],) if response.status_code == 200 else None

        return wait_for(answer, 240, "an answer of the store")[0]

    def drained(self, seconds: float = 240.0) -> dict[str, Any]:
        """The status, once no sink has anything pending and every source has counted what it received.

        A collector that is in the middle of a round has received what is not accepted yet.
        """

        def status() -> dict[str, Any] | None:
            found: dict[str, Any] = self.get("/status")
            sinks = [sink for pipeline in found["pipelines"] for sink in pipeline["sinks"]]
            counted = all(source["received"] == _counted(source) for source in found["sources"])
            return found if counted and all(sink["pending_records"] == 0 for sink in sinks) else None

        return wait_for(status, seconds, "an empty spool and sources between two rounds")


def _counted(source: Mapping[str, Any]) -> int:
    """The records whose fate a source knows."""
    return int(source["filtered"] + sum(source["rejected"].values()) + source["accepted"])


def ledgers_add_up(status: Mapping[str, Any]) -> None:
    """Both ledgers of the architecture, in every component of a status."""
    for source in status["sources"]:
        assert source["received"] == _counted(source), source
    for pipeline in status["pipelines"]:
        for sink in pipeline["sinks"]:
            ledger = sink["ledger"]
            came = ledger["accepted"] + ledger["recovered"]
            went = ledger["delivered"] + ledger["filtered"] + sum(ledger["rejected"].values())
            assert came == went + sum(ledger["dropped"].values()) + sink["pending_records"], sink


def metrics_body(workload: str, steps: Iterable[int], *, names: int = 5, run_id: str = "r") -> dict[str, Any]:
    """A body of /wandb/metrics; the value of metric m0 at a step is the step."""
    metrics = [
        {
            "name": f"m{number}",
            "value": step + number / 100,
            "step": step,
            "timestamp": 1_700_000_000 + step,
            "tags": {},
        }
        for step in steps
        for number in range(names)
    ]
    return {"source": "wandb", "workload_uid": workload, "pod_name": "p", "run_id": run_id, "metrics": metrics}
