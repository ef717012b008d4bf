"""Reads the newest attempts of a job from the store, and applies all rules to them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from lens_core import EventRow, Origin, PointColumns, PointQuery, Store
from lens_core.plugin_api.store import measured_uid

from ..goodput.metric_facts import OF_EVALUATIONS
from ..goodput.store_facts import Life, chains_of, lives_of_runs, main_source
from .finding import Finding, Points
from .loss import find_divergence, find_spikes
from .memory import find_host_memory_creep, find_memory_creep, find_slower_checkpoints
from .pace import find_slower, find_slower_after_restart, find_step_time_creep, split_by_batch
from .precursors import find_clipping, find_falling_scale, find_odd_learning_rate, find_skipped_steps
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
_MOST_NODES, _HOST_POINTS, _LEAST_INTERVAL_MS = 16, 400, 15_000
_HOST_MEMORY = "host.memory.used_pct"
# The names of metrics in logs and in what people log, the likeliest first; a name may stand after a prefix.
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
    "host_memory": ("_primus_sys_memory_percent", "host_memory_percent"),
}


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt: when which step was reached, and the metrics that rules are about."""

    life: Life
    progress: Points
    metrics: Mapping[str, Points]
    # The memory in use on each node, in per cent, as the host collector measured it.
    memory_of_nodes: Mapping[str, Points] = {}

    def points(self, role: str) -> Points:
        """Return the points of a metric; empty without it."""
        return self.metrics.get(role, _NOTHING)


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """All that was found in the newest attempt of a run; `replay` compares it with the one before."""

    run_id: str
    attempt: int
    findings: list[Finding]
    replay: Replay | None = None


# The names of the value that gradient norms are clipped at, in configurations.
CLIP_VALUES = (
    "max_grad_norm",
    "clip_grad",
    "clip_grad_norm",
    "grad_clip",
    "gradient_clip_val",
    "gradient_clipping",
    "max_norm",
)
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
    chains = [[await _read_attempt(store, uid, life, names) for life in chain[-2:]] for chain in newest]
    for chain in chains[-1:]:  # the machines of earlier runs have other work now
        memory = await _read_memory_of_nodes(store, chain[-1].life)
        chain[-1] = msgspec.structs.replace(chain[-1], memory_of_nodes=memory)
    return chains, events


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


async def _read_memory_of_nodes(store: Store, life: Life) -> dict[str, Points]:
    """Read the memory of the first nodes of an attempt while it ran, in means of equal spans of time.

    One question for all nodes where the store can tell them apart.
    """
    stream = life.stream
    nodes = {measured_uid(Origin(node=node)): node for node in sorted(life.nodes)[:_MOST_NODES]}
    if not nodes:
        return {}
    first, *others = nodes
    query = PointQuery(
        workload_uid=first,
        metrics=(_HOST_MEMORY,),
        start_ms=stream.first_seen,
        end_ms=stream.last_seen,
        aggregate="mean",
        interval_ms=max(_LEAST_INTERVAL_MS, (stream.last_seen - stream.first_seen) // _HOST_POINTS),
    )
    pieces: dict[str, list[PointColumns]] = {}
    if "by workload" in store.point_options:
        together = msgspec.structs.replace(query, others=tuple(others), is_by_workload=True)
        async for piece in store.metric_columns(together):
            pieces.setdefault(piece.run_id, []).append(piece)
    else:
        for uid in nodes:
            own = msgspec.structs.replace(query, workload_uid=uid, is_across_runs=True)
            pieces[uid] = [piece async for piece in store.metric_columns(own)]
    iteration = stream.last_iteration or 0
    return {nodes[uid]: _points_over_time(found, iteration) for uid, found in pieces.items() if found}


def _points_over_time(pieces: Sequence[PointColumns], iteration: int) -> Points:
    """Points by their time, all of one iteration."""
    times = np.concatenate([np.array(piece.timestamps, dtype=np.float64) for piece in pieces]) / 1000.0
    values = np.concatenate([np.array(piece.values, dtype=np.float64) for piece in pieces])
    order = np.argsort(times)
    return Points(np.full(len(times), iteration, dtype=np.int64), times[order], values[order])


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


def find_all(attempts: Sequence[Attempt], events: Sequence[EventRow], clip: float | None = None) -> Findings:
    """Apply every rule to the newest attempt, beside the one before it; gradient norms are clipped at `clip`."""
    newest, before = attempts[-1], attempts[-2] if len(attempts) > 1 else None
    stream = newest.life.stream
    loss = newest.points("loss")
    limit = newest.points("memory_limit").finite()
    stretches = split_by_batch(newest.progress, newest.points("batch"))
    found = [
        *find_spikes(loss, newest.points("grad_norm")),
        *find_divergence(loss),
        *(one for _, part in stretches for one in find_slower(part)),
        *find_memory_creep(newest.points("memory"), float(limit.values[-1]) if len(limit) else None),
        *_find_host_memory(newest),
        *find_slower_checkpoints(_saves(newest.life, events)),
        *find_step_time_creep(stretches[-1][1]),
        *find_falling_scale(newest.points("loss_scale")),
        *find_skipped_steps(newest.points("skipped") if "skipped" in newest.metrics else _skipped(newest.life, events)),
        *find_odd_learning_rate(newest.points("learning_rate")),
        *find_clipping(newest.points("grad_norm"), clip),
    ]
    replay = None
    if before is not None:
        replay = compare_losses(before.points("loss"), loss)
        batch, old = split_by_batch(before.progress, before.points("batch"))[-1]
        same_gpus = not (before.life.gpus and newest.life.gpus) or before.life.gpus == newest.life.gpus
        if same_gpus and batch == stretches[0][0]:
            new_nodes = sorted(newest.life.nodes - before.life.nodes) if before.life.nodes else []
            found += find_slower_after_restart(old, stretches[0][1], new_nodes)
        found += find_other_samples(before.points("samples"), newest.points("samples"))
        found += find_wrong_restore(before.points("loss"), loss)
        found += find_other_learning_rate(before.points("learning_rate"), newest.points("learning_rate"))
        found += find_repeated_data(before.points("loss"), loss)
    ordered = sorted(found, key=lambda one: (one.time, one.type))
    return Findings(run_id=stream.run_id, attempt=stream.attempt, findings=ordered, replay=replay)


def _find_host_memory(attempt: Attempt) -> list[Finding]:
    """Find the host that runs out of memory first, by the collector's measurements, else by what the job logs."""
    found = [
        msgspec.structs.replace(one, details={**one.details, "node": node})
        for node, points in attempt.memory_of_nodes.items()
        for one in find_host_memory_creep(points)
    ] or find_host_memory_creep(attempt.points("host_memory"))
    return sorted(found, key=lambda one: float(one.details["hours_left"]))[:1]


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
