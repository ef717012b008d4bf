"""Records that dead training processes left in the hook's spool directory on this node, adopted and sent on.

With PRIMUS_LENS_SPOOL_PATH on a volume that all jobs of a node share, the node's daemon needs no other job to start
there: it takes the lock of every file whose process is gone, sends what was not delivered, and removes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
from lens_hook.spool import SpoolFile, file_batch, lock_stale_spools

from lens_core import Collector, Context, LensError, Partial, Record, hookimpl
from lens_core.plugin_api.encoding import decode_json_envelope

UNREADABLE = "unreadable"


class HookSpoolSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the hook_spool collector.

    `path`: the directory that the jobs have as PRIMUS_LENS_SPOOL_PATH. `max_records_per_run`: how many lines are
    read at one time; more are read at once after those are safe.
    """

    path: str
    max_records_per_run: int = 5000


class HookSpool(Collector):
    """Sends on what dead training processes left in the hook's spool directory."""

    name = "hook_spool"
    interval_seconds = 10.0
    Settings = HookSpoolSettings

    settings: HookSpoolSettings

    def __init__(self, settings: HookSpoolSettings, context: Context) -> None:
        super().__init__(settings, context)
        self._files: list[SpoolFile] = []
        self._done: list[tuple[SpoolFile, int]] = []

    async def check(self) -> None:
        """The directory must be there."""
        if not Path(self.settings.path).is_dir():
            raise LensError(f"there is no directory {self.settings.path}")

    async def stop(self) -> None:
        """Let go of the files: what was not sent stays for whoever looks next."""
        for file in self._files:
            file.close(remove=False)
        self._files = []

    async def collect(self) -> Partial:
        """The next records of files whose process is gone; those that are not stored come again."""
        records, refused = await asyncio.to_thread(self._read_records)
        if refused:
            self.context.logger.warning("Lines of the hook's spool could not be read. lines=%d", refused)
        return Partial(records=records, rejected={UNREADABLE: refused})

    async def stored(self) -> None:
        """Move the positions of the files after what is safe, and remove those that are empty."""
        await asyncio.to_thread(self._advance)

    def _read_records(self) -> tuple[list[Record], int]:
        if not self._files:
            self._files = lock_stale_spools(self.settings.path, None)
        self._done = []
        records: list[Record] = []
        refused = 0
        for file in self._files:
            left = self.settings.max_records_per_run - len(records)
            if left <= 0:
                break
            batch = file_batch(file, left, check=True)
            lines = b",".join(line.text for line in batch.lines)
            decoded = decode_json_envelope(b'{"version":1,"origin":%b,"records":[%b]}' % (batch.origin, lines))
            origin = decoded.origin
            records += [
                record if record.origin.is_known else msgspec.structs.replace(record, origin=origin)
                for record in decoded.records
            ]
            refused += len(decoded.rejected)
            self._done.append((file, batch.end))
        self.more = bool(self._files)
        return records, refused

    def _advance(self) -> None:
        for file, end in self._done:
            file.advance(end)
            if not file.waiting():
                file.close(remove=True)
                self._files.remove(file)
        self._done = []
        self.more = bool(self._files)


@hookimpl
def lens_collectors() -> Sequence[type[Collector]]:
    """Announce the collector."""
    return [HookSpool]
