"""Age, size and number of a job's checkpoints, as a collector."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from lens_core import Collector, Measurement, Origin, Record, hookimpl


class CheckpointsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the checkpoints collector."""

    folder: Annotated[str, Meta(min_length=1, description="the folder that the job writes its checkpoints into")]
    pattern: Annotated[str, Meta(min_length=1, description="which entries of it are checkpoints")] = "*"
    workload_uid: Annotated[str, Meta(description="the workload that they belong to")] = ""


class Checkpoints(Collector):
    """How many checkpoints there are, how old the newest is, and how large; no checkpoint is no data, not zero."""

    name = "checkpoints"
    Settings = CheckpointsSettings
    interval_seconds = 60.0

    async def collect(self) -> Sequence[Record]:
        # Folders of checkpoints lie on network disks: looking takes its time, and must not stop the daemon.
        count, newest_at, newest_bytes = await asyncio.to_thread(
            look, Path(self.settings.folder), self.settings.pattern
        )
        now = time.time()
        age = None if newest_at is None else max(0.0, now - newest_at)
        origin = Origin(workload_uid=self.settings.workload_uid)
        return [
            Measurement(origin=origin, name="checkpoints.count", value=float(count), event_time=now),
            Measurement(origin=origin, name="checkpoints.newest.age", value=age, unit="seconds", event_time=now),
            Measurement(
                origin=origin, name="checkpoints.newest.size", value=newest_bytes, unit="bytes", event_time=now
            ),
        ]


def look(folder: Path, pattern: str) -> tuple[int, float | None, float | None]:
    """The number of checkpoints, when the newest was changed (seconds since the epoch) and its bytes.

    Raises OSError when the folder cannot be read. A checkpoint is a file, or a folder with files.
    """
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is no folder")
    found = sorted(((path.stat().st_mtime, path) for path in folder.glob(pattern)), reverse=True)
    if not found:
        return 0, None, None
    changed, newest = found[0]
    files = [newest] if newest.is_file() else [path for path in newest.rglob("*") if path.is_file()]
    return len(found), changed, float(sum(path.stat().st_size for path in files))


@hookimpl
def lens_collectors() -> list[type[Collector]]:
    """What this distribution brings."""
    return [Checkpoints]
