"""The facts that the ledger is made of: attempts, rows, saves, evaluations, ends. Times are seconds since the epoch."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Row(msgspec.Struct, frozen=True):
    """One logged step; `rank` and `source` say who logged it, because differences are never taken across clocks."""

    step: int
    time: float
    rank: int | None = None
    source: str = "log"


class Rows(msgspec.Struct, frozen=True, eq=False):
    """The rows of one rank and source as columns, in any order: a store answers a run of a million steps so."""

    steps: Ints
    times: Floats
    rank: int | None = None
    source: str = "log"


class Span(msgspec.Struct, frozen=True):
    """Something that took from `start` to `end`; `step` is the iteration after which it was done, where known.

    A `marker` says only that it happened at `start`, not how long it took.
    """

    start: float
    end: float
    step: int | None = None
    marker: bool = False


class DataWait(msgspec.Struct, frozen=True):
    """The seconds for which the loop waited for data up to the row at this step."""

    step: int
    seconds: float


class DataWaits(msgspec.Struct, frozen=True, eq=False):
    """The same of many rows, as columns."""

    steps: Ints
    seconds: Floats


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One life of the training process.

    `start` is the start of the process, `end` its end (None: the next attempt's start, or the last row); `cause` is
    why it ended, '' for a clean or an unknown end; `ended_cleanly` is for an end that said so. `resumed_from` is the
    iteration that a loaded checkpoint had. `gpus` is None where nobody said how many there are. `configuration`
    changes with whatever changes the work of a step (batch size, sequence length); where it changes within the attempt,
    `configurations` has each with the step from which on it holds. `restarts` are those that the launcher counted
    before it. `columns` and `waits` are further rows and waits for data, for facts that come as columns.
    """

    rows: Sequence[Row] = ()
    columns: Sequence[Rows] = ()
    start: float | None = None
    end: float | None = None
    resumed_from: int | None = None
    restore_seconds: float = 0.0
    cause: str = ""
    ended_cleanly: bool = False
    node: str = ""
    rank: int | None = None
    gpus: int | None = None
    configuration: str = ""
    configurations: Sequence[tuple[int, str]] = ()
    restarts: int | None = None
    saves: Sequence[Span] = ()
    evaluations: Sequence[Span] = ()
    data: Sequence[DataWait] = ()
    waits: DataWaits | None = None
    stalls: Sequence[float] = ()


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of one run.

    `now` is set while the job runs. `held` are the spans in which pods or a Slurm job held the GPUs, None where
    nobody asked the directory. `has_phases` is for reinforcement learning, whose steps differ in kind.
    `is_approximate` says that times are those of the arrival, not of the event.
    """

    attempts: Sequence[Attempt]
    run: str = ""
    now: float | None = None
    held: Sequence[tuple[float, float]] | None = None
    has_phases: bool = False
    is_approximate: bool = False


class Interruption(msgspec.Struct, frozen=True, kw_only=True):
    """One end that was not clean, at `time`, and the cost of it until the job made progress again."""

    cause: str
    node: str | None
    rank: int | None
    seconds: float
    gpu_hours: float | None
    time: float


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """The wall time of a run, divided among the buckets; `gpu_seconds` is None unless all GPU counts are known.

    `typical_seconds` and `best_seconds` are of a step; `at_risk_seconds` is what a failure now would cost;
    `open_seconds` is the time since the last row of a running job, which no bucket has yet.
    """

    run: str
    wall_seconds: float
    goodput: float | None
    ettr: float | None
    buckets: dict[str, float]
    gpu_seconds: dict[str, float] | None
    gpu_goodput: float | None
    interruptions: list[Interruption]
    resolution: str
    notes: list[str]
    typical_seconds: float | None = None
    best_seconds: float | None = None
    at_risk_seconds: float | None = None
    open_seconds: float = 0.0


BUCKETS = (
    "productive",
    "startup",
    "restore",
    "checkpoint",
    "evaluation",
    "data",
    "slow",
    "stalled",
    "lost",
    "down",
    "queued",
    "periodic",
)
