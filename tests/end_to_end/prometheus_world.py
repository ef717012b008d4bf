"""Real parts around Lens: Debian's Prometheus, node exporter, vmagent and VictoriaMetrics, each on a free port."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.end_to_end.running_lens import PLAIN, wait_for
from tests.ports import free_port

PROGRAMS = ("prometheus", "prometheus-node-exporter", "victoria-metrics", "vmagent")


class Program:
    """One of the real programs, running; `url` is where it listens."""

    def __init__(self, command: Sequence[str], port: int, ready: str, log: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        # A test run that is killed takes its programs along, where util-linux can arrange that.
        setpriv = shutil.which("setpriv")
        self._command = [*([setpriv, "--pdeathsig", "TERM", "--"] if setpriv else []), *command]
        self._ready = ready
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Program:
        """Start it and wait until it says that it is ready."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        wait_for(self._is_ready, what=f"{self._command} to be ready")
        return self

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()[-2000:]
        try:
            return httpx.get(self.url + self._ready, verify=PLAIN).is_success
        except httpx.TransportError:
            return False

    def stop(self) -> None:
        """SIGTERM, and wait; killed where that takes too long; harmless when it has ended."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(240)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the answer of a PromQL query at this moment."""
        answer = httpx.get(f"{self.url}/api/v1/query", params={"query": expression}, timeout=240, verify=PLAIN).json()
        assert answer["status"] == "success", answer
        return list(answer["data"]["result"])


class World:
    """Makes programs in one folder; all of them are ended with it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[Program] = []

    def _add(self, name: str, command: Sequence[str], port: int, ready: str) -> Program:
        program = Program(command, port, ready, self._folder / f"{name}-{len(self._running)}.log")
        self._running.append(program)
        return program

    def node_exporter(self) -> Program:
        """A node exporter of this machine."""
        port = free_port()
        return self._add("exporter", ["prometheus-node-exporter", f"--web.listen-address=127.0.0.1:{port}"], port, "/")

    def prometheus(self, name: str, config: str) -> Program:
        """A Prometheus that scrapes and stores, and takes remote write."""
        port = free_port()
        file = self._folder / f"{name}.yml"
        file.write_text(config)
        command = [
            "prometheus",
            f"--config.file={file}",
            f"--storage.tsdb.path={self._folder / name}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--web.enable-remote-write-receiver",
            "--storage.remote.flush-deadline=1s",
            "--enable-feature=exemplar-storage,native-histograms",
        ]
        return self._add(name, command, port, "/-/ready")

    def victoria_metrics(self) -> Program:
        """A VictoriaMetrics whose newest data is not hidden."""
        port = free_port()
        command = [
            "victoria-metrics",
            f"-storageDataPath={self._folder / 'victoria'}",
            f"-httpListenAddr=127.0.0.1:{port}",
            "-retentionPeriod=1",
            "-search.latencyOffset=0s",
            "-search.disableCache",
        ]
        return self._add("victoria", command, port, "/health")

    def vmagent(self, target: str, labels: Mapping[str, str], write_to: str) -> Program:
        """A vmagent that scrapes one target."""
        port = free_port()
        file = self._folder / "vmagent.yml"
        file.write_text(scraping(target, labels))
        command = [
            "vmagent",
            f"-promscrape.config={file}",
            f"-remoteWrite.url={write_to}",
            f"-remoteWrite.tmpDataPath={self._folder / 'vmagent'}",
            "-remoteWrite.flushInterval=200ms",
            f"-httpListenAddr=127.0.0.1:{port}",
        ]
        return self._add("vmagent", command, port, "/health")

    def stop(self) -> None:
        """End everything."""
        for program in reversed(self._running):
            program.stop()


def scraping(
    target: str, labels: Mapping[str, str], remote_write: str = "", *, jobs: int = 1, samples_per_request: int = 500
) -> str:
    """A configuration that scrapes one target every second, as several jobs, and sends it on to `remote_write`."""
    shown = ", ".join(f'{name}: "{value}"' for name, value in labels.items())
    targets = f"static_configs: [{{targets: ['{target.removeprefix('http://')}'], labels: {{{shown}}}}}]"
    text = "global: {scrape_interval: 1s}\nscrape_configs:\n"
    for number in range(jobs):
        text += f"  - {{job_name: node{number or ''}, {targets}}}\n"
    if remote_write:
        text += (
            "remote_write:\n"
            f"  - url: {remote_write}\n"
            "    metadata_config: {send: true, send_interval: 1s}\n"
            "    queue_config: {batch_send_deadline: 200ms, max_backoff: 200ms, "
            f"max_samples_per_send: {samples_per_request}, capacity: {5 * samples_per_request}}}\n"
        )
    return text


@contextmanager
def world_in(folder: Path) -> Iterator[World]:
    """A world that ends."""
    world = World(folder)
    try:
        yield world
    finally:
        world.stop()
