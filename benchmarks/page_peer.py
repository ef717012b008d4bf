"""TensorBoard for page.py: a run as its writer would write it, without the minutes that takes, and its server."""

from __future__ import annotations

import math
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from benchmarks.harness import peer_environment
from lens_core.plugin_api.protobuf import delimited, varint

_METRICS = 20
_FIRST_SECOND = 1.7e9


def write_events(path: Path, steps: int) -> None:
    """An event file with twenty scalars in the event of each step."""
    path.parent.mkdir(parents=True)
    tags = [delimited(1, f"metrics/m{number}".encode()) + b"\x15" for number in range(_METRICS)]
    with path.open("wb", buffering=1 << 20) as file:
        file.write(_record(_time(0) + delimited(3, b"brain.Event:2")))
        for step in range(steps):
            values = [
                delimited(1, tag + struct.pack("<f", math.sin(step / 1e4 + number))) for number, tag in enumerate(tags)
            ]
            number = b"\x10" + varint(step) if step else b""  # zero is left out
            file.write(_record(_time(step) + number + delimited(5, b"".join(values))))


def _time(step: int) -> bytes:
    return b"\x09" + struct.pack("<d", _FIRST_SECOND + step)


def _record(event: bytes) -> bytes:
    from lens_plugins.collectors.tensorboard.events import crc32c, masked

    length = struct.pack("<Q", len(event))
    checks = [struct.pack("<I", masked(crc32c(part))) for part in (length, event)]
    return length + checks[0] + event + checks[1]


@contextmanager
def tensorboard(folder: Path) -> Iterator[str]:
    """The address of a TensorBoard that has loaded the runs in a folder."""
    binaries = peer_environment("tensorboard", ["tensorboard==2.21.0", "setuptools<81"])
    command = [str(binaries / "tensorboard"), "--logdir", str(folder), "--host", "127.0.0.1", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as server:
        try:
            url = _announced(server)
            while not _is_loaded(url):
                time.sleep(0.5)
            yield url
        finally:
            server.terminate()


def _announced(server: subprocess.Popen[str]) -> str:
    assert server.stderr is not None
    for line in server.stderr:
        if "http://" in line:
            return "http://" + line.split("http://")[1].split("/")[0]
    raise RuntimeError("TensorBoard did not start")


def _is_loaded(url: str) -> bool:
    answer = httpx.get(f"{url}/data/plugin/timeseries/tags", timeout=60)
    tags = answer.json().get("scalars", {}).get("tagDescriptions", {}) if answer.is_success else {}
    runs = answer.json().get("scalars", {}).get("runTagInfo", {}) if answer.is_success else {}
    return bool(tags or runs)
