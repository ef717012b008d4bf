"""Follows training logs: files by pattern, and the output of a command."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import Sequence
from glob import iglob
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from lens_core import Collector, ConfigurationError, Context, LogLine, Origin, Record, hookimpl
from lens_core.logs import PARTIAL, split_container_prefix

from .log_sources import CommandTail, FileTail, Piece, Position

_KUBELET = re.compile(r"/var/log/pods/(?P<ns>[^/_]+)_(?P<pod>[^/_]+)_(?P<uid>[^/_]+)/(?P<container>[^/]+)/\d+\.log")
# The default names of sbatch for the output of a job: slurm-%j.out, slurm-%A_%a.out.
_SLURM = re.compile(r"(?:^|/)(?P<job>slurm-\d+(?:_\d+)?)\.(?:out|err|log)$")
_RANK = re.compile(r"(?:^|[/_.-])rank[_-]?(\d+)(?=[/_.-]|$)")
_TORCHRUN = re.compile(r"/(\d+)/(?:stdout|stderr)\.log$")
_POSITIONS = "positions.json"


class TrainingLogSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the training_log collector; one of `paths` and `command` is needed."""

    paths: Annotated[tuple[str, ...], Meta(description="files to follow; *, ? and ** match")] = ()
    command: Annotated[tuple[str, ...], Meta(description="a command whose output is followed")] = ()
    workload_uid: Annotated[str, Meta(description="whose lines these are")] = ""
    pod_name: Annotated[str, Meta(description="the pod that wrote them, where the path does not say it")] = ""
    pod_uid: Annotated[str, Meta(description="its uid")] = ""
    namespace: Annotated[str, Meta(description="its namespace")] = ""
    node: Annotated[str, Meta(description="the machine on which they were written")] = ""
    from_end: Annotated[bool, Meta(description="pass over what stands in files that are seen first")] = False
    max_bytes_per_run: Annotated[int, Meta(ge=4096, description="read at most so much at once")] = 8 << 20


class TrainingLog(Collector):
    """Follows log files (rotated, truncated, with progress bars) or a command's output."""

    name = "training_log"
    also_called = ("tail", "file", "filelog", "files", "exec", "kubernetes_logs")
    interval_seconds = 1.0
    Settings = TrainingLogSettings

    def __init__(self, settings: TrainingLogSettings, context: Context) -> None:
        super().__init__(settings, context)
        self._tails: dict[str, FileTail] = {}
        self._origins: dict[str, Origin] = {}
        self._command = CommandTail(settings.command) if settings.command else None
        self._positions: dict[str, Position] = {}
        self._first_look = True

    async def start(self) -> None:
        """Read the stored positions. Raises ConfigurationError when nothing is to be followed."""
        if not self.settings.paths and self._command is None:
            raise ConfigurationError(f"collector {self.context.name}: give paths or a command to follow")
        await asyncio.to_thread(self._load_state)

    async def stop(self) -> None:
        """Store the positions; end the command."""
        await asyncio.to_thread(self._save_state)
        if self._command is not None:
            await self._command.stop()

    async def collect(self) -> Sequence[Record]:
        """The lines since the last run; those that were not taken then come again."""
        self.more = False
        records: list[Record] = await asyncio.to_thread(self._read_files, time.time())
        if self._command is not None:
            origin = self._origin_of_file("")
            lines = await self._command.read_lines(self.settings.max_bytes_per_run)
            records += [LogLine(origin=origin, text=text, event_time=moment) for moment, text in lines]
        return records

    async def stored(self) -> None:
        """The lines are safe: move the positions after them."""
        if self._command is not None:
            self._command.commit()
        if self._tails:
            await asyncio.to_thread(self._commit)

    def _read_files(self, now: float) -> list[Record]:
        left = self.settings.max_bytes_per_run
        records: list[Record] = []
        for path in self._paths():
            tail = self._tails.get(path)
            if tail is None:
                tail = self._tails[path] = FileTail(
                    Path(path), self._positions.get(path) or self._under_other_name(path)
                )
                if self._first_look and self.settings.from_end and tail.position is None:
                    self._skip(tail, now)
            if left <= 0:
                self.more = True
                break
            try:
                found = tail.read_lines(left, now)
            except OSError as error:
                self.context.logger.warning("A log file cannot be read. file=%s error=%s", path, error)
                continue
            if found is not None:
                position, pieces = found
                left -= sum(len(piece.text) + 1 for piece in pieces)
                records += [self._make_line(path, position, piece) for piece in pieces]
        self._first_look = False
        return records

    def _under_other_name(self, path: str) -> Position | None:
        """Return the progress in a file from before rotation renamed it."""
        try:
            status = Path(path).stat()
        except OSError:
            return None
        known = [tail.furthest for tail in self._tails.values() if tail.furthest is not None]
        same = (found for found in known if (found.device, found.inode) == (status.st_dev, status.st_ino))
        return next(same, None)

    def _paths(self) -> list[str]:
        found = {path for pattern in self.settings.paths for path in iglob(pattern, recursive=True)}
        return sorted(found | self._tails.keys())

    def _skip(self, tail: FileTail, now: float) -> None:
        while tail.read_lines(1 << 20, now) is not None:
            tail.commit()

    def _make_line(self, path: str, position: Position, piece: Piece) -> LogLine:
        text, moment, partial = split_container_prefix(piece.text)
        return LogLine(
            origin=self._origin_of_file(path),
            text=text,
            event_time=moment,
            stream=position.name,
            source=PARTIAL if partial else "log",
            position=piece.end,
        )

    def _origin_of_file(self, path: str) -> Origin:
        origin = self._origins.get(path)
        if origin is None:
            origin = self._origins[path] = _find_origin(path, self.settings)
        return origin

    def _commit(self) -> None:
        moved = False
        for path, tail in list(self._tails.items()):
            before = tail.position
            tail.commit()
            moved = moved or tail.position is not before
            if tail.position is not None:
                self._positions[path] = tail.position
            if not tail.path.exists() and not moved:
                del self._tails[path]
        if moved:
            self._save_state()

    def _load_state(self) -> None:
        path = self.context.data_dir / _POSITIONS
        try:
            self._positions = msgspec.json.decode(path.read_bytes(), type=dict[str, Position])
        except FileNotFoundError:
            return
        except msgspec.DecodeError as error:
            self.context.logger.warning(
                "Could not read positions; reading files from the start. file=%s error=%s", path, error
            )

    def _save_state(self) -> None:
        folder = self.context.data_dir
        folder.mkdir(parents=True, exist_ok=True)
        new = folder / f"{_POSITIONS}.new"
        new.write_bytes(msgspec.json.encode(self._positions))
        new.replace(folder / _POSITIONS)


def _find_origin(path: str, settings: TrainingLogSettings) -> Origin:
    """Return the origin of a file: by the settings, the kubelet's folder names, sbatch's file names; else this
    machine's.

    A rank in the path is the lines' rank.
    """
    pod = _KUBELET.search(path)
    job = _SLURM.search(path)
    workload_uid = settings.workload_uid or (job["job"] if job else "")
    rank = _RANK.search(path)
    local_rank = _TORCHRUN.search(path)
    is_named = workload_uid or settings.pod_uid or settings.pod_name
    return Origin(
        workload_uid=workload_uid,
        # As with the hook: where nothing says which pod this is, the machine is the pod.
        pod_name=pod.group("pod") if pod else settings.pod_name or ("" if is_named else socket.gethostname()),
        pod_uid=pod.group("uid") if pod else settings.pod_uid,
        namespace=pod.group("ns") if pod else settings.namespace,
        container=pod.group("container") if pod else "",
        node=settings.node,
        rank=int(rank.group(1)) if rank else None,
        local_rank=int(local_rank.group(1)) if local_rank else None,
    )


@hookimpl
def lens_collectors() -> Sequence[type[Collector]]:
    """Announce the collector."""
    return [TrainingLog]
