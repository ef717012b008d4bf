"""Echoes: the rows of one framework that several trackers repeat. An answer without a data source has each once.

The streams that echo one framework at the same time are chosen among: first come those with about as many rows as the
longest, among them the tracker that stands first in `PREFERENCE`. Of the others the repeated metrics are left out, and
so are rows of the framework itself that come from ranks without a tracker.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from lens_core import PointQuery
from lens_core.plugin_api.store import SourceChoice, metric_name

from .grouping import StreamKey
from .identity import Connection, StreamId

# Data sources of trackers; among equals the first. TensorBoard has the values as float32.
PREFERENCE = ("wandb", "mlflow", "trackio", "swanlab", "comet", "clearml", "aim", "tensorflow")
_MOST_MISSING = 0.1  # a source with so much less than the longest is as long: its rows may be on their way
_FEW_ROWS = 5
_SUBJECTS = "(select subject_id from lens_name where uid = any(%(uids)s))"
_ASKED = (
    " and (%(run)s::text is null or s.run_id = %(run)s) and (%(attempt)s::bigint is null or s.attempt = %(attempt)s)"
    " and (%(rank)s::bigint is null or s.rank = %(rank)s)"
)


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
    """The parts of streams that an answer leaves out, whole streams among them, and why."""

    metrics: Mapping[int, frozenset[str]]
    streams: frozenset[int]
    choices: tuple[SourceChoice, ...]

    def holds(self, stream_id: int, metric: str) -> bool:
        """Whether a metric of a stream is left out."""
        return stream_id in self.streams or metric in self.metrics.get(stream_id, ())


NOTHING = LeftOut({}, frozenset(), ())


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


async def left_out(connection: Connection, query: PointQuery) -> LeftOut:
    """The echoes that the answer to a query leaves out: none where it names its data sources."""
    if query.sources:
        return NOTHING
    asked = {
        "uids": [query.workload_uid, *query.others],
        "run": query.run_id,
        "attempt": query.attempt,
        "rank": query.rank,
    }
    cursor = await connection.execute(
        f"select distinct echo_of from lens_stream s where s.subject_id in {_SUBJECTS} and s.echo_of <> ''".encode(),
        asked,
    )
    frameworks = [row[0] for row in await cursor.fetchall()]
    if not frameworks:
        return NOTHING
    cursor = await connection.execute(
        "select s.id, s.subject_id, case when s.echo_of = '' then s.data_source else s.echo_of end, s.data_source,"
        " s.run_id, s.attempt, s.rank, coalesce(s.first_seen_us, 0), coalesce(s.last_seen_us, 0),"
        " coalesce(c.points, s.rows), coalesce(c.metrics, '{}'), coalesce(c.has_others, false) from lens_stream s"
        " left join lateral (select max(points) filter (where is_echo) as points,"
        "  array_agg(metric) filter (where is_echo) as metrics, bool_or(not is_echo) as has_others"
        "  from lens_catalogue where stream_id = s.id) c on true"
        f" where s.subject_id in {_SUBJECTS} and s.rows > 0"
        f" and (s.echo_of <> '' or s.data_source = any(%(frameworks)s)) {_ASKED}".encode(),
        {**asked, "frameworks": frameworks},
    )
    rows = await cursor.fetchall()
    return choose(Member._make((*row[:10], frozenset(row[10]), row[11])) for row in rows)


def choose(members: Iterable[Member]) -> LeftOut:
    """The echoes to leave out, for each framework and each time."""
    groups: dict[tuple[int, str], list[Member]] = defaultdict(list)
    for member in members:
        groups[member.subject_id, member.framework].append(member)
    metrics: dict[int, frozenset[str]] = {}
    streams: set[int] = set()
    choices: dict[SourceChoice, None] = {}
    for group in groups.values():
        for cluster in _at_one_time(group):
            if all(member.is_own for member in cluster):
                continue
            chosen = _best(cluster)
            others = [member for member in cluster if member.data_source != chosen and not _is_kept(member, cluster)]
            metrics.update({member.id: member.metrics for member in others if member.has_others and not member.is_own})
            streams.update(member.id for member in others if not member.has_others or member.is_own)
            names = tuple(sorted({member.data_source for member in others}))
            if names:
                choices[SourceChoice(cluster[0].framework, chosen, names)] = None
    return LeftOut(metrics, frozenset(streams), tuple(choices))


def _is_kept(member: Member, cluster: Sequence[Member]) -> bool:
    """Whether these are a framework's own rows that no tracker of its rank has: they are no repetition."""
    return member.is_own and member.rank in {other.rank for other in cluster if not other.is_own}


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
    enough = (1 - _MOST_MISSING) * max(rows.values()) - _FEW_ROWS
    known = {name: place for place, name in enumerate(PREFERENCE)}
    fit = [source for source, count in rows.items() if count >= enough]
    return min(fit, key=lambda source: (known.get(source, len(known)), -rows[source], source))
