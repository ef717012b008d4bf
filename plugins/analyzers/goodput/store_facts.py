"""Makes the ledger's facts of what a store holds about a workload: one set for each of its runs."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from lens_core import EventRow, PodLife, PointQuery, RunSummary, Store

from .drafts import PHASED, Draft, Said, name_device_errors, name_preemptions
from .facts import Facts, Floats, Ints, Rows
from .holding import begin_with_pods, gpus_of_pods, held_spans, spans_of_pods
from .metric_facts import MetricNames, choose_metrics, read_metrics
from .node_errors import errors_on, nodes_of_attempt, read_node_errors
from .row_cache import RowCache

_MOST_EVENTS = 100_000
_TIES = ("log", "wandb", "dlrover", "tensorflow")
_WHOLE = 0.9
# A job without an end is believed to run for so long after its newest row, or after a stall that is not over.
RUNNING_SECONDS = 3600.0
STALLED_SECONDS = 7 * 86400.0


class Life(msgspec.Struct, frozen=True):
    """One attempt of one run as the store counts it: the stream of the rank that is looked at.

    `gpus` are its ranks, as far as its streams say how many there are, `nodes` the nodes that they name.
    """

    stream: RunSummary
    rows: int
    gpus: int | None = None
    nodes: frozenset[str] = frozenset()

    @property
    def begins(self) -> float:
        """Return its first time in seconds since the epoch."""
        return self.stream.first_seen / 1000

    @property
    def ends(self) -> float:
        """Return its newest time in seconds since the epoch."""
        return self.stream.last_seen / 1000


async def facts_of(store: Store, uid: str, now: float | None = None, cache: RowCache | None = None) -> list[Facts]:
    """The facts of each run of a workload, that with most GPUs and rows first; none for one that nobody knows."""
    cache = RowCache(0) if cache is None else cache
    now = time.time() if now is None else now
    detail = await store.workload(uid)
    if detail is None or not detail.runs:
        return []
    events = sorted(await store.events(uid, limit=_MOST_EVENTS), key=lambda event: event.timestamp)
    source = main_source(detail.runs)
    lives = lives_of_runs(run for run in detail.runs if run.data_source == source)
    streams = [run for run in detail.runs if run.data_source == source]
    metrics = choose_metrics(await store.available_metrics(uid, source), streams)
    has_phases = any(one.framework in PHASED for one in await store.detections(uid))
    pods = await store.pods(uid)
    spans = spans_of_pods(pods, now)
    named = frozenset(event.node for event in events if event.node)
    found = []
    for chain in chains_of(lives, events):
        drafts = [await _draft(store, uid, life, metrics, cache) for life in chain]
        _read_events(drafts, chain, events)
        name_preemptions(drafts)
        await _read_node_errors(store, chain, drafts, pods, named)
        name_device_errors(drafts)
        ends = [draft.end or life.ends for draft, life in zip(drafts, chain, strict=True)]
        _count_gpus(drafts, chain, ends, pods, ranks_of(detail.runs) if _is_one_size(detail.runs) else None)
        others = [life.ends for life in lives if life not in chain and life.ends < chain[0].begins]
        starts = begin_with_pods(drafts, [life.begins for life in chain], [max(others, default=0.0), *ends], spans)
        newest = _newest(chain, events)
        is_running = drafts[-1].end is None and now - newest <= _patience(chain[-1], events)
        found.append(
            Facts(
                attempts=[draft.finish(draft.gpus) for draft in drafts],
                run=chain[-1].stream.run_id or uid,
                now=now if is_running else None,
                held=held_spans(starts, ends, spans),
                has_phases=has_phases,
            )
        )
    return sorted(found, key=lambda facts: (-(facts.attempts[-1].gpus or 0), -_count(facts)))


def _count(facts: Facts) -> int:
    return sum(len(columns.steps) for attempt in facts.attempts for columns in attempt.columns)


def main_source(runs: Sequence[RunSummary]) -> str:
    """The data source with most rows of one rank; of those with nearly as many the first of a fixed order."""
    most: dict[str, int] = {}
    for (source, _), group in itertools.groupby(
        sorted(runs, key=lambda run: (run.data_source, -1 if run.rank is None else run.rank)),
        lambda run: (run.data_source, run.rank),
    ):
        most[source] = max(most.get(source, 0), sum(run.rows for run in group))
    near = [source for source, rows in most.items() if rows >= _WHOLE * max(most.values())]
    return min(near, key=lambda source: (_TIES.index(source) if source in _TIES else len(_TIES), source))


def lives_of_runs(runs: Iterable[RunSummary]) -> list[Life]:
    """The attempts by their begin, each with the lowest rank that has nearly all of its rows."""
    groups: dict[tuple[str, int], list[RunSummary]] = {}
    for run in runs:
        groups.setdefault((run.run_id, run.attempt), []).append(run)
    found = []
    for group in groups.values():
        most = max(run.rows for run in group)
        whole = [run for run in group if run.rows >= _WHOLE * most]
        nodes = frozenset(run.node for run in group if run.node)
        lowest = min(whole, key=lambda run: -1 if run.rank is None else run.rank)
        found.append(Life(lowest, most, ranks_of(group), nodes))
    return sorted(found, key=lambda life: life.begins)


def ranks_of(streams: Sequence[RunSummary]) -> int | None:
    """The ranks of an attempt: its world size, else those that log if all from 0 on do; None where nobody can tell."""
    told = max((stream.world_size or 0 for stream in streams), default=0)
    if told > 1:
        return told
    seen = {stream.rank for stream in streams if stream.rank is not None}
    return len(seen) if len(seen) > 1 and seen == set(range(len(seen))) else None


def chains_of(lives: Sequence[Life], events: Sequence[EventRow]) -> list[list[Life]]:
    """Group attempts into runs: a new run id goes on with a run that ended before it, and not cleanly.

    Runs that overlap (the roles of reinforcement learning, a sweep) are runs of their own.
    """
    clean = {(event.run_id, event.attempt) for event in events if event.type == "training_ended"}
    chains: list[list[Life]] = []
    for life in lives:
        same = next((chain for chain in chains if chain[-1].stream.run_id == life.stream.run_id), None)
        before = same or next(
            (
                chain
                for chain in chains
                if chain[-1].ends <= life.begins
                and not {(chain[-1].stream.run_id, chain[-1].stream.attempt), (chain[-1].stream.run_id, None)} & clean
            ),
            None,
        )
        if before is None:
            chains.append([life])
        else:
            before.append(life)
    return chains


async def _draft(store: Store, uid: str, life: Life, metrics: MetricNames, cache: RowCache) -> Draft:
    stream = life.stream
    rank = -1 if stream.rank is None else stream.rank
    query = PointQuery(
        workload_uid=uid, data_source=stream.data_source, run_id=stream.run_id, attempt=stream.attempt, rank=rank
    )
    draft = Draft()

    async def read_rows(start_ms: int | None) -> tuple[Ints, Floats]:
        wanted = store.iteration_columns(msgspec.structs.replace(query, start_ms=start_ms))
        parts = [
            _columns(piece.iterations, piece.timestamps) async for piece in wanted if piece.metric_name == "iteration"
        ]
        if not parts:
            return np.empty(0, dtype=np.int64), np.empty(0)
        return np.concatenate([steps for steps, _ in parts]), np.concatenate([times for _, times in parts])

    steps, times = await cache.read_rows(uid, stream, read_rows)
    if len(steps):
        draft.columns.append(Rows(steps, times, stream.rank, stream.data_source))
    await read_metrics(store, query, stream, metrics, draft)
    return draft


def _columns(iterations: Sequence[int], timestamps: Sequence[int]) -> tuple[Ints, Floats]:
    return np.array(iterations, dtype=np.int64), np.array(timestamps, dtype=np.float64) / 1000.0


def _read_events(drafts: Sequence[Draft], chain: Sequence[Life], events: Sequence[EventRow]) -> None:
    """Give each event to its attempt: the one that it names, else the one in whose time it lies."""
    by_name = {(life.stream.run_id, life.stream.attempt): draft for life, draft in zip(chain, drafts, strict=True)}
    starts = [life.begins for life in chain]
    runs = {life.stream.run_id for life in chain}
    for event in events:
        moment = event.timestamp / 1000
        if event.run_id and event.run_id not in runs:
            continue
        draft = by_name.get((event.run_id, event.attempt or 0)) if event.attempt is not None else None
        if draft is None:
            index = int(np.searchsorted(starts, moment, side="right")) - 1
            ends_before = event.type in ("training_started", "checkpoint_loaded")
            if ends_before and index + 1 < len(starts) and (index < 0 or chain[index].ends < moment):
                index += 1  # the event that announces an attempt comes before its first row
            draft = drafts[max(0, index)]
        if event.type == "training_started":
            _read_start(draft, event, moment)
        else:
            draft.read_event(Said(event.type, moment, event.iteration, event.details, event.node, event.rank))
    for draft, life in zip(drafts, chain, strict=True):
        # Whatever looked like an end, rows that came after it say that training went on.
        if draft.end is not None and draft.end < life.ends - 1.0:
            draft.end, draft.cause, draft.ended_cleanly = None, "", False


def _read_start(draft: Draft, event: EventRow, moment: float) -> None:
    """The start of the process, and the number of GPUs: one for each rank, or all that its only process sees."""
    process = event.details.get("process")
    process = process if isinstance(process, dict) else {}
    started = process.get("started_at")
    begun = float(started) if isinstance(started, int | float) and 0 < started <= moment else moment
    draft.start = begun if draft.start is None else min(draft.start, begun)
    world, visible = process.get("world_size"), process.get("visible_gpus")
    if isinstance(world, int) and world > 1:
        draft.gpus = max(draft.gpus or 0, world)
    elif isinstance(visible, int) and visible > 0:
        draft.gpus = max(draft.gpus or 0, visible)
    restarts = process.get("restart_count")
    if isinstance(restarts, int) and restarts >= 0:
        draft.restarts = max(draft.restarts or 0, restarts)


def _count_gpus(
    drafts: Sequence[Draft], chain: Sequence[Life], ends: Sequence[float], pods: Sequence[PodLife], told: int | None
) -> None:
    """Give the GPUs to attempts of which no process told them: the ranks of the rows, else the pods' devices.

    `told` is the world size where all that is stored of the job, from whatever source, says the same.
    """
    for draft, life, end in zip(drafts, chain, ends, strict=True):
        draft.gpus = draft.gpus or life.gpus or told or gpus_of_pods(pods, life.begins, end)


async def _read_node_errors(
    store: Store, chain: Sequence[Life], drafts: Sequence[Draft], pods: Sequence[PodLife], named: frozenset[str]
) -> None:
    """Give attempts the errors of devices on their nodes; `named` are those that events of the job name."""
    if len(drafts) == 1 and not drafts[0].cause:
        return  # nothing to explain
    nodes = [
        nodes_of_attempt(life.nodes | named, pods, life.begins, draft.end or life.ends)
        for life, draft in zip(chain, drafts, strict=True)
    ]
    errors = await read_node_errors(store, frozenset[str]().union(*nodes))
    for draft, own in zip(drafts, nodes, strict=True):
        draft.errors += errors_on(errors, own)


def _is_one_size(runs: Sequence[RunSummary]) -> bool:
    return len({run.world_size for run in runs if run.world_size}) == 1


def _newest(chain: Sequence[Life], events: Sequence[EventRow]) -> float:
    return max([chain[-1].ends, *(event.timestamp / 1000 for event in events[-1:])])


def _patience(life: Life, events: Sequence[EventRow]) -> float:
    """The seconds of silence after which a job without an end is believed to be over."""
    states = [event.type for event in events if event.type in ("stalled", "resumed")]
    if states and states[-1] == "stalled":
        return STALLED_SECONDS
    usual = (life.ends - life.begins) / max(1, life.rows - 1)
    return max(RUNNING_SECONDS, 20 * usual)
