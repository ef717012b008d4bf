"""Stacks of the ranks of a node, as one report: JSON text, so that a master that does not know it can still store it.

`{"version": 1, "ranks": [{"rank", "pid", "threads": [{"name", "frames": ["function (file:line)", …]}], "mark", …}]}`,
innermost frame first, the main thread first. `mark` is a hash over the local variables of the training's own frames: it
changes while the loop goes round and shows none of the values; it is empty where there are none.
"""

from __future__ import annotations

import re

import msgspec

from ..base.errors import LensError

MAX_REPORT_BYTES = 256 * 1024
_KEPT_THREADS = (16, 4, 1)
_KEPT_FRAMES = (64, 24, 8)

# Code that waits for others by polling: how deep it is in there says nothing about the training's progress.
_WAITING_FILES = re.compile(
    r"(?:^|/)(?:queue|threading|selectors|socket|ssl|subprocess|popen_fork|connection|synchronize|_base|thread)\.py$"
    r"|(?:^|/)(?:multiprocessing|concurrent/futures|asyncio|torch/utils/data|torch/distributed|torch/cuda|tqdm)/"
)
_FRAME = re.compile(r"^(?P<function>.*) \((?P<file>.*?)(?::(?P<line>\d+))?\)$")


class ThreadStack(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thread: `frames` innermost first, each `function (file:line)`."""

    name: str = ""
    frames: tuple[str, ...] = ()


class RankStack(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The activity of one rank's process; `error` says why its stacks could not be read.

    `has_ended`: the process is gone while others of its job are not. `cpu_seconds` and `io_bytes` are what the process
    has used and moved in all its life.
    """

    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    pid: int = 0
    command: str = ""
    threads: tuple[ThreadStack, ...] = ()
    mark: str = ""
    is_native: bool = False
    has_ended: bool = False
    cpu_seconds: float = 0.0
    io_bytes: int = 0
    error: str = ""

    @property
    def frames(self) -> tuple[str, ...]:
        """The main thread's frames, innermost first."""
        return self.threads[0].frames if self.threads else ()

    @property
    def name(self) -> str:
        """Return the name of the rank in reports."""
        if self.rank is not None:
            return str(self.rank)
        return f"pid {self.pid}"


class StackReport(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The ranks of one node at one time; `cut` counts the threads and frames that the size limit took away.

    `still_since`: the time (s) since which the rank that is watched has not moved; None while it moves.
    """

    version: int = 1
    ranks: tuple[RankStack, ...] = ()
    local_world_size: int | None = None
    still_since: float | None = None
    cut: int = 0


def encode_report(report: StackReport, max_bytes: int = MAX_REPORT_BYTES) -> str:
    """A report as text of at most so many bytes: other threads go first, then outer frames, each counted in `cut`."""
    text = msgspec.json.encode(report)
    for threads, frames in zip(_KEPT_THREADS, _KEPT_FRAMES, strict=True):
        if len(text) <= max_bytes:
            break
        text = msgspec.json.encode(_shortened(report, threads, frames))
    while len(text) > max_bytes and report.ranks:
        left = report.ranks[: len(report.ranks) // 2]
        report = msgspec.structs.replace(report, ranks=left, cut=report.cut + len(report.ranks) - len(left))
        text = msgspec.json.encode(_shortened(report, _KEPT_THREADS[-1], _KEPT_FRAMES[-1]))
    return text.decode()


def decode_report(text: str) -> StackReport:
    """The report of a text. Raises LensError when it is none of ours."""
    try:
        return msgspec.json.decode(text, type=StackReport)
    except (msgspec.DecodeError, RecursionError) as error:
        raise LensError(f"not a stack report: {error}") from None


def split_frame(frame: str) -> tuple[str, str, int]:
    """Function, file and line (0 if there is none) of a frame."""
    matched = _FRAME.match(frame)
    if matched is None:
        return frame, "", 0
    return matched["function"], matched["file"], int(matched["line"] or 0)


def waits(file: str) -> bool:
    """Whether a file is library code in which the training only waits."""
    return _WAITING_FILES.search(file) is not None


def is_python(file: str) -> bool:
    """Whether a frame's file is Python's, not a library's or C's."""
    return file.endswith((".py", ".pyx")) or file.startswith("<")


def own_frames(frames: tuple[str, ...]) -> tuple[str, ...]:
    """Python's frames down to the call by which the training began to wait; polling inside a library is one place."""
    frames = tuple(frame for frame in frames if is_python(split_frame(frame)[1])) or frames
    files = [split_frame(frame)[1] for frame in frames]
    inner = next((index for index, file in enumerate(files) if not waits(file)), len(frames))
    if inner == 0:
        return frames
    function, file, _ = split_frame(frames[inner - 1])
    return (f"{function} ({file})", *frames[inner:])


def _shortened(report: StackReport, threads: int, frames: int) -> StackReport:
    cut = report.cut
    ranks = []
    for rank in report.ranks:
        kept = rank.threads[:threads]
        cut += len(rank.threads) - len(kept) + sum(max(0, len(thread.frames) - frames) for thread in kept)
        short = tuple(ThreadStack(thread.name, thread.frames[:frames]) for thread in kept)
        ranks.append(msgspec.structs.replace(rank, threads=short))
    return msgspec.structs.replace(report, ranks=tuple(ranks), cut=cut)
