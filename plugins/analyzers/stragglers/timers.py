"""Times of all ranks in the rows of one log: Megatron's timers (`--timing-log-option`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from lens_core import PointQuery, RunSummary, Store

from ..goodput.facts import Floats, Ints
from .job import INTERVALS, MOST_RANKS, RankTimes, choose_times, start_of_reading, windows_of
from .verdict import WINDOWS

_OF_RANK = re.compile(r"(?P<name>.+)/rank_(?P<rank>\d{1,4})")
_COMPUTE = ("forward_compute_ms", "forward_backward_ms")
_LEAST_RATIO = 1.10


async def read_timers(store: Store, uid: str, runs: Sequence[RunSummary]) -> RankTimes | None:
    """The windows of a job whose log has the timers of all its ranks in its rows; None for any other job."""
    stream = max((run for run in runs if run.data_source == "log"), key=lambda run: run.last_seen, default=None)
    if stream is None:
        return None
    available = [info.name for info in await store.available_metrics(uid, stream.data_source)]
    names = _names_by_rank(available)
    chosen = choose_times(list(names))
    if not {"compute", "waiting"} & set(chosen):
        return None
    wanted = {metric: (role, rank) for role, name in chosen.items() for rank, metric in names[name].items()}
    query = PointQuery(
        workload_uid=uid,
        metrics=tuple(sorted(wanted)),
        data_source=stream.data_source,
        run_id=stream.run_id,
        attempt=stream.attempt,
        start_ms=start_of_reading([stream]),
    )
    columns: dict[str, dict[int, tuple[Ints, Floats]]] = {role: {} for role in chosen}
    async for piece in store.metric_columns(query):
        role, rank = wanted[piece.metric_name]
        steps, values = np.array(piece.iterations, dtype=np.int64), np.array(piece.values, dtype=np.float64)
        before = columns[role].get(rank)
        if before is not None:
            steps, values = np.concatenate([before[0], steps]), np.concatenate([before[1], values])
        columns[role][rank] = (steps, values)
    windows, iteration = windows_of(columns)
    ranks = {rank for known in columns.values() for rank in known}
    return RankTimes(
        windows=windows,
        metrics=chosen,
        run_id=stream.run_id,
        attempt=stream.attempt,
        iteration=iteration,
        time=stream.last_seen / 1000,
        world_size=len(ranks),
    )


def _names_by_rank(available: Iterable[str]) -> dict[str, dict[int, str]]:
    """The metrics of each rank by the name of what was timed."""
    found: dict[str, dict[int, str]] = {}
    for metric in available:
        matched = _OF_RANK.fullmatch(metric)
        if matched is not None and int(matched["rank"]) < MOST_RANKS:
            found.setdefault(matched["name"], {})[int(matched["rank"])] = metric
    return {name: ranks for name, ranks in found.items() if len(ranks) > 1}


async def read_spread(store: Store, uid: str, runs: Sequence[RunSummary]) -> str:
    """The sentence on the fastest and the slowest rank of a log that does not say which they are; '' if it has none."""
    stream = max((run for run in runs if run.data_source == "log"), key=lambda run: run.last_seen, default=None)
    if stream is None:
        return ""
    available = {info.name for info in await store.available_metrics(uid, stream.data_source)}
    name = next((name for name in _COMPUTE if {name, f"{name}_min"} <= available), None)
    if name is None:
        return ""
    query = PointQuery(
        workload_uid=uid,
        metrics=(name, f"{name}_min"),
        data_source=stream.data_source,
        run_id=stream.run_id,
        attempt=stream.attempt,
        start_ms=start_of_reading([stream]),
    )
    values: dict[str, list[float]] = {}
    async for piece in store.metric_columns(query):
        values.setdefault(piece.metric_name, []).extend(piece.values)
    return describe_spread(name, {key: each[-WINDOWS * INTERVALS :] for key, each in values.items()})


def describe_spread(name: str, values: Mapping[str, Sequence[float]]) -> str:
    """The sentence on the largest and the smallest times of all ranks."""
    highest, lowest = values.get(name, ()), values.get(f"{name}_min", ())
    if not highest or not lowest:
        return ""
    slow, fast = float(np.median(highest)), float(np.median(lowest))
    if not (np.isfinite(slow) and fast > 0 and slow >= _LEAST_RATIO * fast):
        return ""
    return (
        f"the slowest rank takes {slow / fast:.2f} times the fastest ({name.removesuffix('_ms')} {slow:.1f} and"
        f" {fast:.1f} ms); which ranks these are is printed with --timing-log-option all or --log-straggler"
    )
