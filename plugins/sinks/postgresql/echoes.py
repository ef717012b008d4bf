"""Echoes: the rows of one framework that several trackers repeat. An answer without a data source has each once.

The streams of one rank that echo one framework at the same time are chosen among: first come those with about as many
rows as the longest, among them the tracker that stands first in `PREFERENCE`. Of the others the repeated metrics are
left out. The framework's own rows are of ranks, or of steps, that no tracker has, so they stay.
"""

from __future__ import annotations

from bisect import bisect
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lens_core.plugin_api.store import SourceChoice, metric_name

from .grouping import StreamKey
from .identity import Connection, StreamId

# Data sources of trackers; among equals the first. TensorBoard has the values as float32.
PREFERENCE = ("wandb", "mlflow", "trackio", "swanlab", "comet", "clearml", "aim", "tensorflow")
_MOST_MISSING = 0.1  # a source with so much less than the longest is as long: its rows may be on their way
_FEW_ROWS = 5
_SAME_TRAINING_US = 5_000_000  # the most between the rows of two ranks of one training, which may have logged only once
OUTSIDE = ("log", "otlp")  # data sources that see from outside what the job logs


class Member(NamedTuple):
    """A stream that repeats a framework's rows, or is the framework's own (`metrics` is then empty)."""

    id: int
    subject_id: int
    framework: str
    data_source: str
    run_id: str
    attempt: int
    rank: int
    first_us: int
    last_us: int
    rows: int
    metrics: frozenset[str]
    has_others: bool

    @property
    def is_own(self) -> bool:
        """Whether these are the framework's own rows."""
        return self.data_source == self.framework


class LeftOut(NamedTuple):
    """The parts of streams that an answer leaves out, whole streams among them, and why.

    `of_ranks`: a stream of a known rank is among them. `told_by`: streams of a training of which another stream is
    answered, each with that one. `ranks`: those of them that are ranks without a tracker, under the framework's names.
    """

    metrics: Mapping[int, frozenset[str]]
    streams: frozenset[int]
    choices: tuple[SourceChoice, ...]
    of_ranks: bool = False
    told_by: Mapping[int, int] = {}
    ranks: frozenset[int] = frozenset()

    def holds(self, stream_id: int, metric: str) -> bool:
        """Whether a metric of a stream is left out."""
        return stream_id in self.streams or metric in self.metrics.get(stream_id, ())

    def parameters(self) -> dict[str, list[Any]]:
        """The same for a statement: `hidden` streams, and metrics (`metrics`) `of` streams, side by side."""
        pairs = [(stream_id, metric) for stream_id, metrics in self.metrics.items() for metric in metrics]
        return {
            "hidden": list(self.streams),
            "of": [stream_id for stream_id, _ in pairs],
            "metrics": [metric for _, metric in pairs],
        }


NOTHING = LeftOut({}, frozenset(), ())


def is_about_as_long(rows: int, longest: int) -> bool:
    """Whether a source with so many rows counts as long as the longest one."""
    return rows >= (1 - _MOST_MISSING) * longest - _FEW_ROWS


def preference_of(data_source: str) -> tuple[int, str]:
    """The order among sources that have the same rows."""
    return (PREFERENCE.index(data_source) if data_source in PREFERENCE else len(PREFERENCE)), data_source


async def mark_echoes(
    connection: Connection, echoes: Mapping[StreamKey, Mapping[str, str]], ids: Mapping[StreamKey, StreamId]
) -> None:
    """Note which metrics of which streams are echoes, in the transaction of their rows."""
    found = [
        (ids[key].stream_id, metric, framework)
        for key, metrics in echoes.items()
        for metric, framework in metrics.items()
    ]
    if not found:
        return
    streams, metrics, frameworks = map(list, zip(*found, strict=True))
    await connection.execute(
        "update lens_catalogue c set is_echo = true from unnest(%s::bigint[], %s::text[]) e (stream_id, metric)"
        " where c.stream_id = e.stream_id and c.metric = e.metric and not c.is_echo",
        [streams, metrics],
    )
    await connection.execute(
        "update lens_stream s set echo_of = e.framework from unnest(%s::bigint[], %s::text[]) e (id, framework)"
        " where s.id = e.id and s.echo_of = ''",
        [streams, frameworks],
    )


async def echoes_of(connection: Connection, stream_id: int) -> dict[str, str]:
    """The metrics of a stream that are echoes, and of what."""
    cursor = await connection.execute(
        "select c.metric, s.echo_of from lens_stream s join lens_catalogue c on c.stream_id = s.id and c.is_echo"
        " where s.id = %s and s.echo_of <> ''",
        [stream_id],
    )
    return {metric_name(stored): framework for stored, framework in await cursor.fetchall()}


def choose(members: Iterable[Member]) -> LeftOut:
    """The echoes to leave out, for each framework, each rank and each time."""
    metrics: dict[int, frozenset[str]] = {}
    streams: set[int] = set()
    choices: dict[tuple[str, str], set[str]] = defaultdict(set)
    told_by: dict[int, int] = {}
    known = list(members)
    alone: list[Member] = []
    answered: list[Member] = []
    for cluster in (cluster for group in _by_rank(known) for cluster in _at_one_time(group)):
        if all(member.is_own for member in cluster):
            alone += cluster
            continue
        chosen = _best(cluster)
        answered += (member for member in cluster if member.data_source == chosen)
        told_by.update(_tellers(cluster, chosen))
        for member in cluster:
            if member.is_own or member.data_source == chosen:
                continue
            choices[member.framework, chosen].add(member.data_source)
            if member.has_others:
                metrics[member.id] = member.metrics
            else:
                streams.add(member.id)
    found = [
        SourceChoice(framework, chosen, tuple(sorted(choices[framework, chosen])))
        for framework, chosen in sorted(choices)
    ]
    of_other_ranks = dict(_tellers_of_ranks(alone, answered))
    told_by.update(of_other_ranks)
    of_ranks = any(member.rank >= 0 for member in known if member.id in metrics or member.id in streams)
    return LeftOut(metrics, frozenset(streams), tuple(found), of_ranks, told_by, frozenset(of_other_ranks))


def _tellers(cluster: Sequence[Member], chosen: str) -> Iterator[tuple[int, int]]:
    """Yield each stream that the chosen source stands for, with that of its streams which began nearest to it."""
    tellers = [member for member in cluster if member.data_source == chosen]
    for member in cluster if tellers else ():
        if member.data_source != chosen:
            nearest = min(tellers, key=lambda one: (one.attempt != member.attempt, abs(one.first_us - member.first_us)))
            yield member.id, nearest.id


def _tellers_of_ranks(alone: Iterable[Member], answered: Iterable[Member]) -> Iterator[tuple[int, int]]:
    """Yield each stream of a rank without a tracker, with that of another rank which tells of the same training.

    That is the one which began nearest to it: a job of many ranks and restarts has thousands of both.
    """
    of_framework: dict[tuple[int, str], list[Member]] = defaultdict(list)
    for member in sorted(answered, key=lambda one: one.first_us):
        if not member.is_own:
            of_framework[member.subject_id, member.framework].append(member)
    begins = {which: [one.first_us for one in tellers] for which, tellers in of_framework.items()}
    for member in alone:
        tellers = of_framework.get((member.subject_id, member.framework), [])
        place = bisect(begins[member.subject_id, member.framework], member.first_us) if tellers else 0
        near = [one for one in tellers[max(0, place - 1) : place + 1] if _gap_us(one, member) <= _SAME_TRAINING_US]
        if near:
            yield member.id, min(near, key=lambda one: (_gap_us(one, member), abs(one.first_us - member.first_us))).id


def _gap_us(one: Member, other: Member) -> int:
    """The time between two streams; 0 if they overlap."""
    return max(0, one.first_us - other.last_us, other.first_us - one.last_us)


def _by_rank(members: Iterable[Member]) -> Iterator[list[Member]]:
    """Yield the members of each framework and rank; those without a rank go with the first rank that has a tracker."""
    of_framework: dict[tuple[int, str], list[Member]] = defaultdict(list)
    for member in members:
        of_framework[member.subject_id, member.framework].append(member)
    for group in of_framework.values():
        first = min(((member.is_own, member.rank) for member in group if member.rank >= 0), default=(False, -1))[1]
        of_rank: dict[int, list[Member]] = defaultdict(list)
        for member in group:
            of_rank[member.rank if member.rank >= 0 else first].append(member)
        yield from of_rank.values()


def _at_one_time(group: Sequence[Member]) -> Iterator[list[Member]]:
    """Yield the streams whose times overlap, one after another."""
    cluster: list[Member] = []
    end = 0
    for member in sorted(group, key=lambda one: (one.first_us, one.id)):
        if cluster and member.first_us > end:
            yield cluster
            cluster = []
        cluster.append(member)
        end = max(end, member.last_us) if len(cluster) > 1 else member.last_us
    if cluster:
        yield cluster


def _best(cluster: Sequence[Member]) -> str:
    """The data source of a cluster to answer with."""
    framework = cluster[0].framework
    if framework in PREFERENCE and any(member.is_own for member in cluster):
        return framework  # a tracker that others copy from
    longest: dict[str, dict[tuple[str, int], int]] = defaultdict(dict)
    for member in cluster:
        if not member.is_own:
            of_run = longest[member.data_source]
            run = member.run_id, member.attempt
            of_run[run] = max(of_run.get(run, 0), member.rows)
    rows = {source: sum(runs.values()) for source, runs in longest.items()}
    fit = [source for source, count in rows.items() if is_about_as_long(count, max(rows.values()))]
    return min(fit, key=lambda source: (preference_of(source)[0], -rows[source], source))
