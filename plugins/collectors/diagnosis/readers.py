"""Collectors of the agent: the training log, XPU timer's metrics, stacks."""

from __future__ import annotations

import http.client
import logging
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

from lens_core.plugin_api.diagnosis import RankStack, StackReport, encode_report, own_frames, samples_only

from ..log_sources import FileTail, Position
from . import processes
from .base import MAX_CONTENT_BYTES, DataCollector, DiagnosisDataType
from .processes import RankProcess, by_pids, find_ranks

logger = logging.getLogger("lens.diagnosis")

TAIL_BYTES = 256 * 1024


class LogCollector(DataCollector):
    """Reports the training log: first its end, then what is added. The file is TRAINING_LOG_FILE unless it is given."""

    data_type = DiagnosisDataType.TRAINING_LOG
    what = "log"
    interval_seconds: ClassVar[float] = 30.0

    def __init__(self, log_file_path: str | os.PathLike[str] | None = None) -> None:
        super().__init__()
        path = log_file_path or os.environ.get("TRAINING_LOG_FILE")
        self.path = Path(path) if path else None
        self._tail: FileTail | None = None
        self._is_torn = False

    def is_enabled(self) -> bool:
        """Whether there is a log file."""
        return self.path is not None and self.path.is_file()

    def collect_data(self) -> str:
        """The lines since the last call, at the first call those at the file's end; '' without any."""
        if self.path is None:
            return ""
        try:
            if self._tail is None:
                self._tail = self._at_end(self.path)
            found = self._tail.read_lines(MAX_CONTENT_BYTES, time.time())
        except OSError as error:
            logger.warning("The training log cannot be read. file=%s error=%s", self.path, error)
            return ""
        if found is None:
            return ""
        self._tail.commit()
        lines = [piece.text for piece in found[1]]
        if self._is_torn:
            # The end of a file begins somewhere in a line.
            lines, self._is_torn = lines[1:], False
        return "\n".join(lines)

    def _at_end(self, path: Path) -> FileTail:
        status = path.stat()
        start = max(0, status.st_size - TAIL_BYTES)
        self._is_torn = start > 0
        return FileTail(path, Position(status.st_dev, status.st_ino, offset=start) if start else None)


def last_lines(path: Path, max_bytes: int = TAIL_BYTES) -> str:
    """The end of a log file, whole lines; '' when it cannot be read."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - max_bytes))
            data = file.read(max_bytes)
    except OSError as error:
        logger.warning("The training log cannot be read. file=%s error=%s", path, error)
        return ""
    if size > max_bytes:
        data = data.partition(b"\n")[2]
    return data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")


PORT_VARIABLE = "XPU_TIMER_PORT"
TIMEOUT_SECONDS = 3.0
MAX_ANSWER_BYTES = 4 * 1024 * 1024


class MetricCollector(DataCollector):
    """Reports XPU timer's samples from `http://127.0.0.1:XPU_TIMER_PORT/metrics`, without comments."""

    data_type = DiagnosisDataType.XPU_TIMER_METRIC
    what = "XPU metric"
    interval_seconds: ClassVar[float] = 30.0

    def __init__(self, port: int | None = None, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        super().__init__()
        self._port = port
        self._timeout_seconds = timeout_seconds
        self._is_failing = False

    @property
    def port(self) -> int | None:
        """The port that was given, or XPU_TIMER_PORT; None without a usable one."""
        if self._port is not None:
            return self._port
        value = os.environ.get(PORT_VARIABLE, "").strip()
        return int(value) if value.isdigit() and 0 < int(value) < 65536 else None

    def is_enabled(self) -> bool:
        """Whether XPU timer's port is known."""
        return self.port is not None

    def collect_data(self) -> str:
        """The samples of one scrape; '' when XPU timer does not answer, with a warning the first time."""
        port = self.port
        if port is None:
            return ""
        try:
            text = self.scrape(port)
        except (OSError, http.client.HTTPException) as error:
            level = logging.DEBUG if self._is_failing else logging.WARNING
            logger.log(level, "XPU timer does not answer. port=%d error=%s", port, error or type(error).__name__)
            self._is_failing = True
            return ""
        self._is_failing = False
        return samples_only(text)

    def scrape(self, port: int) -> str:
        """The exporter's text. Raises OSError or HTTPException."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=self._timeout_seconds)
        try:
            connection.request("GET", "/metrics")
            response = connection.getresponse()
            body = response.read(MAX_ANSWER_BYTES)
        finally:
            connection.close()
        if response.status != 200:
            raise http.client.HTTPException(f"status {response.status}")
        return body.decode("utf-8", "replace")


INTERVAL_SECONDS = 15.0
_AT_ONCE = 2
_NATIVE_AFTER = 4
_LOOK_FOR_RANKS_EVERY = 8


class StackCollector(DataCollector):
    """Reports stacks of the local ranks: of one while it moves, of all while it stands still, native ones then once.

    With `all_ranks` it looks at all of them every other time. `pids` names processes; else those with a RANK in their
    environment, of this process's own job if it has one.
    """

    data_type = DiagnosisDataType.STACK_TRACE
    what = "stack"
    interval_seconds: ClassVar[float] = INTERVAL_SECONDS

    def __init__(
        self,
        local_world_size: int | None = None,
        pids: Sequence[int] = (),
        *,
        may_pause: bool = True,
        all_ranks: bool = False,
    ) -> None:
        super().__init__()
        self._local_world_size = local_world_size
        self._pids = list(pids)
        self._may_pause = may_pause
        self._all_ranks = all_ranks
        self._ranks: list[RankProcess] = []
        self._runs = 0
        self._still = 0
        self._still_since: float | None = None
        self._watched: tuple[int, Any] | None = None
        self._watched_since = 0.0
        # Every rank that was seen, by its number: one that is gone while others are not is news.
        self._seen: dict[int, RankProcess] = {}

    @property
    def pids(self) -> list[int]:
        """The processes that are named."""
        return self._pids

    def set_pids(self, pids: Sequence[int]) -> None:
        """Name other processes: some have ended, some have begun."""
        self._pids = list(pids)
        self._ranks = []

    def is_enabled(self) -> bool:
        """Whether py-spy is installed."""
        return processes.executable() is not None

    def collect_data(self) -> dict[str, RankStack]:
        """The stacks by the ranks' names; empty when there are no ranks. All ranks are looked at in the first run."""
        is_due = self._runs % _LOOK_FOR_RANKS_EVERY == 0
        is_first = not self._runs
        self._runs += 1
        if is_due or not self._ranks:
            self._find_ranks()
        watched = self._read_first_stack()
        if watched is None:
            return {}
        at_once = self._all_ranks and self._runs % 2 == 0
        if not (self._still or is_first or at_once):
            return {watched.name: watched}
        if not is_due:
            self._find_ranks()  # a rank that died is why others stand still
        return {stack.name: stack for stack in [*self._read_all_stacks(watched), *self._missing_ranks()]}

    def _read_first_stack(self) -> RankStack | None:
        """The stack of the first rank that can be read; None without any rank."""
        for rank in list(self._ranks):
            stack = processes.stack_of(rank, may_pause=self._may_pause)
            if not stack.error or rank is self._ranks[-1]:
                self._follow(stack)
                return stack
        return None

    def _read_all_stacks(self, watched: RankStack) -> list[RankStack]:
        # Native frames once, when it has stood still so long that a pause of milliseconds disturbs nobody.
        native = self._still == _NATIVE_AFTER
        rest = [rank for rank in self._ranks if native or rank.pid != watched.pid]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            found = list(
                pool.map(lambda rank: processes.stack_of(rank, native=native, may_pause=self._may_pause), rest)
            )
        return found if native else [watched, *found]

    def to_text(self, data: Any) -> str:
        """The report as text."""
        return self._format_stacks(data)

    def _format_stacks(self, data: Mapping[str, RankStack]) -> str:
        """The report; raises TypeError or AttributeError for anything but what `collect_data` gives."""
        stacks = tuple(data.values())
        if not all(isinstance(stack, RankStack) for stack in stacks):
            raise TypeError("stacks are given as RankStack")
        return encode_report(
            StackReport(ranks=stacks, local_world_size=self._local_world_size, still_since=self._still_since)
        )

    def _find_ranks(self) -> None:
        if self._pids:
            self._ranks = by_pids(self._pids)
        else:
            self._ranks = find_ranks(os.environ, self._local_world_size)
        self._seen.update({rank.rank: rank for rank in self._ranks if rank.rank is not None})

    def _missing_ranks(self) -> list[RankStack]:
        """The ranks that are not there any more, while others are."""
        here = {rank.rank for rank in self._ranks}
        world = max((rank.world_size or 0 for rank in self._ranks), default=0)
        lost = [rank for number, rank in sorted(self._seen.items()) if number not in here and number < world]
        return [
            RankStack(
                rank=rank.rank,
                local_rank=rank.local_rank,
                world_size=rank.world_size,
                pid=rank.pid,
                has_ended=True,
                error="the process has ended",
            )
            for rank in lost
        ]

    def _follow(self, watched: RankStack) -> None:
        place = (watched.pid, watched.mark or own_frames(watched.frames))
        if place == self._watched and watched.frames:
            self._still += 1
            self._still_since = self._watched_since
        else:
            self._still, self._still_since, self._watched_since = 0, None, time.time()
        self._watched = place
