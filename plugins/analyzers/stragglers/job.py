"""Reads the times of each rank of a job from the store, and makes windows of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from lens_core import PointColumns, PointQuery, RunSummary, Store

from ..goodput.facts import Floats, Ints
from ..goodput.store_facts import ranks_of
from .verdict import WINDOWS, Window

INTERVALS = 50
MOST_RANKS = 1024
# The meaning of each metric of a rank's row, by the last part of its name.
_ROLES: Mapping[str, str] = {
    "forward": "compute",
    "forward_time": "compute",
    "time_forward": "compute",
    "forward_backward": "compute",
    "forward_backward_time": "compute",
    "forward_compute": "compute",
    "forward_compute_ms": "compute",
    "forward_backward_ms": "compute",
    "forward_ms": "compute",
    "fwd_bwd": "compute",
    "fwd_bwd_time": "compute",
    "compute": "compute",
    "compute_time": "compute",
    "optimizer_time": "compute",
    "backward": "waiting",
    "backward_time": "waiting",
    "time_backward": "waiting",
    "backward_ms": "waiting",
    "allreduce": "waiting",
    "all_reduce_time": "waiting",
    "collective_time": "waiting",
    "comm_time": "waiting",
    "grads_sync_ms": "waiting",
    "data": "data",
    "data_time": "data",
    "data_loading": "data",
    "data_loading_time_ms": "data",
    "data_loading_s": "data",
    "dataloader_time": "data",
    "batch_generator": "data",
    "elapsed_time_per_iteration_ms": "step",
    "step_time": "step",
    "iteration_time": "step",
}


class RankTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The times that a job logs by rank: windows, the oldest first; the metric of each role; the node of each rank."""

    windows: list[Window]
    metrics: dict[str, str]
    run_id: str = ""
    attempt: int = 0
    iteration: int = 0
    time: float = 0.0
    nodes: dict[int, str] = {}
    world_size: int | None = None


async def read_ranks(store: Store, uid: str) -> RankTimes | None:
    """The newest windows of the newest attempt that several ranks log; None where there is none."""
    detail = await store.workload(uid)
    if detail is None:
        return None
    streams = _newest_with_ranks(detail.runs)
    if len(streams) < 2:
        return None
    first = streams[0]
    available = [info.name for info in await store.available_metrics(uid, first.data_source)]
    metrics = choose_times(available)
    nodes = {stream.rank: stream.node for stream in streams if stream.rank is not None and stream.node}
    if not {"compute", "waiting"} & set(metrics):  # nothing else tells a slow rank, so nothing else is read
        return RankTimes(windows=[], metrics=metrics, run_id=first.run_id, attempt=first.attempt, nodes=nodes)
    streams = streams[:MOST_RANKS]
    columns = await _read_columns(store, uid, streams, metrics)
    newest = max(stream.last_seen for stream in streams) / 1000
    windows, iteration = windows_of(columns)
    return RankTimes(
        windows=windows,
        metrics=metrics,
        run_id=first.run_id,
        attempt=first.attempt,
        iteration=iteration,
        time=newest,
        nodes=nodes,
        world_size=ranks_of(streams),
    )


def choose_times(available: Sequence[str]) -> dict[str, str]:
    """For each role the metric that plays it: the first of the order in which roles are known."""
    found: dict[str, str] = {}
    words = {
        re.sub(r"[^a-z0-9]+", "_", re.split(r"[/.]", name.lower())[-1]).strip("_"): name for name in sorted(available)
    }
    for word, role in _ROLES.items():
        if word in words:
            found.setdefault(role, words[word])
    return found


def windows_of(columns: Mapping[str, Mapping[int, tuple[Ints, Floats]]]) -> tuple[list[Window], int]:
    """The medians of each rank over the newest windows of 50 logged iterations, and the newest iteration of all."""
    iterations = [steps for ranks in columns.values() for steps, _ in ranks.values() if len(steps)]
    if not iterations:
        return [], 0
    every = np.unique(np.concatenate(iterations))
    count = min(WINDOWS + 1, len(every) // INTERVALS)
    shown = every[len(every) - count * INTERVALS :]
    tables = {role: _as_table(ranks, shown) for role, ranks in columns.items()}
    windows = []
    for begin in range(0, len(shown), INTERVALS):
        medians: dict[str, dict[int, float]] = {}
        for role, ranks in columns.items():
            found = _medians(tables[role][:, begin : begin + INTERVALS])
            known = {rank: value for rank, value in zip(ranks, found, strict=True) if value is not None}
            if known:
                medians[role] = known
        windows.append(Window(**medians))
    return windows, int(every[-1])


def _as_table(ranks: Mapping[int, tuple[Ints, Floats]], shown: Ints) -> Floats:
    """A line for each rank with a value for each of the steps; NaN where it has none, or none that is finite."""
    table = np.full((len(ranks), len(shown)), np.nan)
    for line, (steps, values) in zip(table, ranks.values(), strict=True):
        place = np.minimum(np.searchsorted(shown, steps), max(0, len(shown) - 1))
        is_shown = np.isfinite(values) & (shown[place] == steps) if len(shown) else np.zeros(len(steps), dtype=bool)
        line[place[is_shown]] = values[is_shown]
    return table


def _medians(table: Floats) -> list[float | None]:
    """The median of each line; None where it has fewer values than half a window."""
    ordered = np.sort(table, axis=1)  # NaN comes last
    counts = np.isfinite(table).sum(axis=1)
    lines = np.arange(len(table))
    middle = (
        ordered[lines, np.maximum(counts - 1, 0) // 2] + ordered[lines, np.minimum(counts // 2, INTERVALS - 1)]
    ) / 2
    return [float(value) if number >= INTERVALS // 2 else None for value, number in zip(middle, counts, strict=True)]


def _newest_with_ranks(runs: Sequence[RunSummary]) -> list[RunSummary]:
    """The streams of the newest attempt that has several ranks, by rank."""
    groups: dict[tuple[str, int, str], list[RunSummary]] = {}
    for run in runs:
        if run.rank is not None:
            groups.setdefault((run.run_id, run.attempt, run.data_source), []).append(run)
    several = [group for group in groups.values() if len(group) > 1]
    if not several:
        return []
    newest = max(several, key=lambda group: max(run.last_seen for run in group))
    return sorted(newest, key=lambda run: run.rank or 0)


async def _read_columns(
    store: Store, uid: str, streams: Sequence[RunSummary], metrics: Mapping[str, str]
) -> dict[str, dict[int, tuple[Ints, Floats]]]:
    """For each role the newest points of each rank; by one question for all ranks where the store can say the rank."""
    first = streams[0]
    query = PointQuery(
        workload_uid=uid,
        metrics=tuple(sorted(metrics.values())),
        data_source=first.data_source,
        run_id=first.run_id,
        attempt=first.attempt,
    )
    if "fields" in store.point_options:
        start_ms = start_of_reading(streams)
        pieces = [
            piece
            async for piece in store.metric_columns(replace(query, start_ms=start_ms, fields=("rank",)))
            if len(piece)
        ]
        return {
            role: _split_by_rank([one for one in pieces if one.metric_name == name]) for role, name in metrics.items()
        }
    columns: dict[str, dict[int, tuple[Ints, Floats]]] = {role: {} for role in metrics}
    for stream in streams:
        assert stream.rank is not None
        own = replace(query, rank=stream.rank, start_ms=_start_of_windows(stream))
        pieces = [piece async for piece in store.metric_columns(own)]
        for role, name in metrics.items():
            points = _join_pieces([piece for piece in pieces if piece.metric_name == name])
            if points is not None:
                columns[role][stream.rank] = points
    return columns


def _split_by_rank(pieces: Sequence[PointColumns]) -> dict[int, tuple[Ints, Floats]]:
    """The points of each rank; those of no rank belong to none."""
    points = _join_pieces(pieces)
    if points is None:
        return {}
    steps, values = points
    told = np.concatenate([np.array(piece.extras["rank"], dtype=np.float64) for piece in pieces])  # None becomes NaN
    ranks = np.where(np.isnan(told), -1, told).astype(np.int64)
    order = np.argsort(ranks, kind="stable")
    cuts = np.flatnonzero(np.diff(ranks[order])) + 1
    parts = np.split(order, cuts)
    return {int(ranks[part[0]]): (steps[part], values[part]) for part in parts if ranks[part[0]] >= 0}


def _start_of_windows(stream: RunSummary) -> int:
    """The time (ms) since which there are about as many rows as the windows need."""
    needed = (WINDOWS + 2) * INTERVALS
    share = min(1.0, needed / max(1, stream.rows))
    return round(stream.last_seen - (stream.last_seen - stream.first_seen) * share)


def start_of_reading(streams: Sequence[RunSummary]) -> int:
    """The time (ms) since which the windows of all ranks reach: ranks that fell silent before the others' have none."""
    starts = [_start_of_windows(stream) for stream in streams]
    latest = max(starts)
    return min(start for start, stream in zip(starts, streams, strict=True) if stream.last_seen >= latest)


def _join_pieces(pieces: Sequence[PointColumns]) -> tuple[Ints, Floats] | None:
    if not pieces:
        return None
    steps = np.concatenate([np.array(piece.iterations, dtype=np.int64) for piece in pieces])
    values = np.concatenate([np.array(piece.values, dtype=np.float64) for piece in pieces])
    return steps, values
