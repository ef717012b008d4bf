"""StatsD datagrams as measurements: a source with a socket and a task of its own instead of HTTP routes."""

from __future__ import annotations

import asyncio
import math
import socket
from typing import Annotated

import msgspec
from msgspec import Meta

from lens_core import Measurement, Origin, Overloaded, Source, hookimpl

_KINDS = {"g": "gauge", "c": "count", "ms": "gauge"}
_UNITS = {"ms": "milliseconds"}


class StatsdSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the statsd source."""

    listen: Annotated[str, Meta(description="HOST:PORT for datagrams; port 0 takes a free one")] = "127.0.0.1:8125"
    queue_datagrams: Annotated[int, Meta(ge=1, description="how many may wait; more are counted and dropped")] = 10_000

    def __post_init__(self) -> None:
        host, _, port = self.listen.rpartition(":")
        if not host or not port.isdigit() or int(port) > 65535:
            raise ValueError("listen: must be HOST:PORT, such as 127.0.0.1:8125")


class Statsd(Source):
    """Gauges, counters and timers of StatsD, as measurements of this machine."""

    name = "statsd"
    Settings = StatsdSettings
    brings = (Measurement,)
    port = 0

    async def start(self) -> None:
        host, _, port = self.settings.listen.rpartition(":")
        self._queue: asyncio.Queue[bytes] = asyncio.Queue(self.settings.queue_datagrams)
        self._too_many = 0
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(lambda: _Receiver(self), local_addr=(host, int(port)))
        self.port = self._transport.get_extra_info("sockname")[1]

    async def stop(self) -> None:
        if hasattr(self, "_transport"):
            self._transport.close()

    async def run(self) -> None:
        """Hand on what came; waits for a gate that refuses, while the queue fills."""
        while True:
            lines = [line for line in (await self._queue.get()).split(b"\n") if line.strip()]
            found = [measured for line in lines if (measured := parse(line)) is not None]
            too_many, self._too_many = self._too_many, 0
            bad = {"malformed": len(lines) - len(found), "too_many": too_many}
            await self._submit(found, {reason: count for reason, count in bad.items() if count})

    async def _submit(self, found: list[Measurement], rejected: dict[str, int]) -> None:
        while True:
            try:
                await self.gate.submit(found, rejected=rejected)
            except Overloaded as error:
                await asyncio.sleep(error.retry_after_seconds or 1.0)
            else:
                return

    def take(self, datagram: bytes) -> None:
        """One datagram; UDP has nobody to tell, so what does not fit is counted."""
        try:
            self._queue.put_nowait(datagram)
        except asyncio.QueueFull:
            self._too_many += 1


class _Receiver(asyncio.DatagramProtocol):
    def __init__(self, source: Statsd) -> None:
        self._source = source

    def datagram_received(self, data: bytes, addr: object) -> None:
        self._source.take(data)


def parse(line: bytes) -> Measurement | None:
    """One line `name:value|type|@rate|#tag:value,…`; None for what is none. A sampled counter is scaled up."""
    name, colon, rest = line.decode("utf-8", "replace").strip().partition(":")
    value_text, _, more = rest.partition("|")
    kind, *extras = more.split("|")
    try:
        value = float(value_text)
        rates = [float(extra[1:]) for extra in extras if extra.startswith("@")]
    except ValueError:
        return None
    if not (name and colon and kind in _KINDS and math.isfinite(value)) or any(not 0 < rate <= 1 for rate in rates):
        return None
    if kind == "c" and rates:
        value /= rates[0]
    pairs = [item.partition(":") for extra in extras if extra.startswith("#") for item in extra[1:].split(",")]
    return Measurement(
        origin=Origin(pod_name=socket.gethostname()),
        name=name[:200],
        value=value,
        kind=_KINDS[kind],
        unit=_UNITS.get(kind, ""),
        tags={key: tag for key, _, tag in pairs[:20] if key},
    )


@hookimpl
def lens_sources() -> list[type[Source]]:
    """What this distribution brings."""
    return [Statsd]
