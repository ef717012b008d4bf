"""Reads the newest attempts of a job from the store, and applies all rules to them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from lens_core import EventRow, PointQuery, Store

from ..goodput.metric_facts import OF_EVALUATIONS
from ..goodput.store_facts import Life, chains_of, lives_of_runs, main_source
from .finding import Finding, Points
from .loss import find_divergence, find_spikes
from .memory import find_memory_creep, find_slower_checkpoints
from .pace import find_slower, find_slower_after_restart, find_step_time_creep
from .precursors import find_falling_scale, find_odd_learning_rate, find_skipped_steps
from .replay import (
    Replay,
    compare_losses,
    find_other_learning_rate,
    find_other_samples,
    find_repeated_data,
    find_wrong_restore,
)

MOST_POINTS = 5_000
_MOST_RUNS = 5
_MOST_EVENTS = 10_000
# The names of metrics in logs and in what people log, the likeliest first; a name may stand behind a prefix.
_NAMES: Mapping[str, tuple[str, ...]] = {
    "loss": ("lm_loss", "loss", "train_loss", "training_loss", "total_loss"),
    "grad_norm": ("grad_norm", "gradient_norm", "global_grad_norm", "total_grad_norm"),
    "learning_rate": ("learning_rate", "lr"),
    "loss_scale": ("loss_scale",),
    "skipped": ("skipped_iterations_number", "skipped_iterations"),
    "samples": ("consumed_samples",),
    "batch": ("global_batch_size",),
    "memory": ("mem_usage",),
    "memory_limit": ("mem_total",),
}


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt: when which step was reached, and the metrics that rules are about."""

    life: Life
    progress: Points
    metrics: Mapping[str, Points]

    def points(self, role: str) -> Points:
        """Return the points of a metric; empty without it."""
        return self.metrics.get(role, _NOTHING)


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """All that was found in the newest attempt of a run; `replay` compares it with the one before."""

    run_id: str
    attempt: int
    findings: list[Finding]
    replay: Replay | None = None


_NOTHING = Points(np.empty(0, dtype=np.int64), np.empty(0), np.empty(0))


async def read_attempts(store: Store, uid: str) -> tuple[list[list[Attempt]], list[EventRow]]:
    """The newest two attempts of each of the newest runs, the older first, and the events of the workload."""
    detail = await store.workload(uid)
    if detail is None or not detail.runs:
        return [], []
    events = sorted(await store.events(uid, limit=_MOST_EVENTS), key=lambda event: event.timestamp)
    source = main_source(detail.runs)
    lives = lives_of_runs(run for run in detail.runs if run.data_source == source)
    names = choose_metrics([info.name for info in await store.available_metrics(uid, source)])
    newest = sorted(chains_of(lives, events), key=lambda chain: chain[-1].ends)[-_MOST_RUNS:]
    return [[await _read_attempt(store, uid, life, names) for life in chain[-2:]] for chain in newest], events


async def read_newest(store: Store, uid: str) -> Attempt | None:
    """The newest attempt of a workload; None without rows."""
    detail = await store.workload(uid)
    if detail is None or not detail.runs:
        return None
    source = main_source(detail.runs)
    lives = lives_of_runs(run for run in detail.runs if run.data_source == source)
    names = choose_metrics([info.name for info in await store.available_metrics(uid, source)])
    wanted = {role: name for role, name in names.items() if role in ("loss", "batch")}
    return await _read_attempt(store, uid, max(lives, key=lambda life: life.ends), wanted)


def choose_metrics(available: Sequence[str]) -> dict[str, str]:
    """For each role the metric that plays it; those of evaluations play none."""
    chosen = {}
    own = [name for name in available if not OF_EVALUATIONS.search(name)]
    for role, wanted in _NAMES.items():
        for word in wanted:
            found = [name for name in own if re.split(r"[/.]", name.lower())[-1].replace(" ", "_") == word]
            if found:
                chosen[role] = min(found, key=lambda name: (len(name), name))
                break
    return chosen


async def _read_attempt(store: Store, uid: str, life: Life, names: Mapping[str, str]) -> Attempt:
    stream = life.stream
    start_ms = None
    if stream.rows > MOST_POINTS:
        start_ms = round(stream.last_seen - (stream.last_seen - stream.first_seen) * MOST_POINTS / stream.rows)
    query = PointQuery(
        workload_uid=uid,
        data_source=stream.data_source,
        run_id=stream.run_id,
        attempt=stream.attempt,
        rank=-1 if stream.rank is None else stream.rank,
        start_ms=start_ms,
    )
    times = [piece async for piece in store.iteration_columns(query) if piece.metric_name == "iteration"]
    metrics: dict[str, Points] = {}
    if names:
        pieces = [
            piece
            async for piece in store.metric_columns(
                msgspec.structs.replace(query, metrics=tuple(sorted(names.values())))
            )
        ]
        for role, name in names.items():
            metrics[role] = _join_pieces([piece for piece in pieces if piece.metric_name == name])
    return Attempt(life=life, progress=_join_pieces(times), metrics=metrics)


def _join_pieces(pieces: Sequence[object]) -> Points:
    """Points by rising iteration, each iteration once, as it was logged first."""
    if not pieces:
        return _NOTHING
    iterations = np.concatenate([np.array(piece.iterations, dtype=np.int64) for piece in pieces])  # type: ignore[attr-defined]
    times = np.concatenate([np.array(piece.timestamps, dtype=np.float64) for piece in pieces]) / 1000.0  # type: ignore[attr-defined]
    values = np.concatenate([np.array(piece.values, dtype=np.float64) for piece in pieces])  # type: ignore[attr-defined]
    order = np.lexsort((times, iterations))
    first = np.unique(iterations[order], return_index=True)[1]
    chosen = order[first]
    return Points(iterations[chosen], times[chosen], values[chosen])


def find_all(attempts: Sequence[Attempt], events: Sequence[EventRow]) -> Findings:
    """Apply every rule to the newest attempt, beside the one before it."""
    newest, before = attempts[-1], attempts[-2] if len(attempts) > 1 else None
    stream = newest.life.stream
    loss = newest.points("loss")
    limit = newest.points("memory_limit").finite()
    found = [
        *find_spikes(loss, newest.points("grad_norm")),
        *find_divergence(loss),
        *find_slower(newest.progress),
        *find_memory_creep(newest.points("memory"), float(limit.values[-1]) if len(limit) else None),
        *find_slower_checkpoints(_saves(newest.life, events)),
        *find_step_time_creep(newest.progress),
        *find_falling_scale(newest.points("loss_scale")),
        *find_skipped_steps(newest.points("skipped") if "skipped" in newest.metrics else _skipped(newest.life, events)),
        *find_odd_learning_rate(newest.points("learning_rate")),
    ]
    replay = None
    if before is not None:
        replay = compare_losses(before.points("loss"), loss)
        if not (before.life.gpus and newest.life.gpus) or before.life.gpus == newest.life.gpus:
            new_nodes = sorted(newest.life.nodes - before.life.nodes) if before.life.nodes else []
            found += find_slower_after_restart(before.progress, newest.progress, new_nodes)
        found += find_other_samples(before.points("samples"), newest.points("samples"))
        found += find_wrong_restore(before.points("loss"), loss)
        found += find_other_learning_rate(before.points("learning_rate"), newest.points("learning_rate"))
        found += find_repeated_data(before.points("loss"), loss)
    ordered = sorted(found, key=lambda one: (one.time, one.type))
    return Findings(run_id=stream.run_id, attempt=stream.attempt, findings=ordered, replay=replay)


def _skipped(life: Life, events: Sequence[EventRow]) -> Points:
    """The steps of an attempt that a log says were skipped, one by one."""
    found = [
        (event.iteration, event.timestamp / 1000)
        for event in events
        if event.type == "step_skipped" and event.iteration is not None and life.stream.first_seen <= event.timestamp
    ]
    iterations = np.array([iteration for iteration, _ in found], dtype=np.int64)
    return Points(iterations, np.array([time for _, time in found], dtype=np.float64), np.ones(len(found)))


def _saves(life: Life, events: Sequence[EventRow]) -> list[tuple[int, float, float]]:
    """The saves of an attempt with how long they took."""
    found = []
    for event in events:
        seconds = event.details.get("duration_seconds")
        is_own = event.type == "checkpoint_saved" and life.stream.first_seen <= event.timestamp
        if is_own and isinstance(seconds, int | float) and seconds > 0:
            found.append((event.iteration or 0, event.timestamp / 1000, float(seconds)))
    return found
