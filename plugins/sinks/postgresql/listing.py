"""Lists of sources and metrics from the catalogue, of workloads, runs, events, evidence."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any

import msgspec

from lens_core import (
    BadRequest,
    Detection,
    EventRow,
    MetricInfo,
    PodLife,
    PodSpan,
    PointQuery,
    RunSummary,
    SourceCount,
    WorkloadDetail,
    WorkloadPage,
    WorkloadSummary,
)
from lens_core.plugin_api.store import PROBE_WORKLOAD, merge_ends, metric_name

from .identity import Connection
from .left_out import left_out
from .rank_charts import count_rank_points, rank_curves, streams_beside
from .shown import (
    LINES,
    OWN_NAME,
    SUBJECTS_OF_NAMES,
    WITHOUT_MEASURED,
    Line,
    Name,
    newest_lines,
    of_names,
    search_names,
    shown,
)
from .text import bigint

EVENT = "type, event_time_us / 1000, iteration, run_id, attempt, data_source, details, rank, pod_name, node"
_SUBJECTS = "(select subject_id from lens_name where uid = %(uid)s)"
_MOST_EVIDENCE = 100
# The number of events to read beyond the limit, because several may be one.
_MOST_MERGED = 64
_CHANGED = f"(select * from lens_subject where changed_us >= %(since)s and {WITHOUT_MEASURED})"
_OVERLAP_US = 60_000_000


async def metric_sources(connection: Connection, uid: str) -> list[SourceCount]:
    """Rows of each source."""
    cursor = await connection.execute(
        "select data_source, sum(rows)::bigint from lens_stream"
        f" where subject_id in {_SUBJECTS} and rows > 0 group by 1 order by 1",
        {"uid": uid},
    )
    return [SourceCount(name, int(count)) for name, count in await cursor.fetchall()]


async def available_metrics(connection: Connection, uid: str, data_source: str) -> list[MetricInfo]:
    """Points of each metric and its sources; of attempts with very many ranks out of their summaries."""
    query = PointQuery(workload_uid=uid, data_source=data_source, over_ranks=1)
    hidden = await left_out(connection, query)
    curves = await rank_curves(connection, query, hidden)
    among = await streams_beside(connection, query) if curves else None
    cursor = await connection.execute(
        "select c.metric, s.data_source, sum(c.points)::bigint"
        " from lens_stream s join lens_catalogue c on c.stream_id = s.id"
        f" where s.subject_id in {_SUBJECTS}"
        " and (cardinality(%(sources)s::text[]) = 0 or s.data_source = any(%(sources)s))"
        f"{' and s.id = any(%(among)s)' if curves else ''} and s.id <> all(%(hidden)s::bigint[])"
        " and (s.id, c.metric) not in (select * from unnest(%(of)s::bigint[], %(metrics)s::text[]))"
        " group by 1, 2".encode(),
        {"uid": uid, "sources": query.sources, "among": among, **hidden.parameters()},
    )
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for stored, source, count in [*await cursor.fetchall(), *await count_rank_points(connection, curves)]:
        of_metric = found[metric_name(stored)]
        of_metric[source] = of_metric.get(source, 0) + int(count)
    return [MetricInfo(name, sorted(found[name]), sum(found[name].values())) for name in sorted(found)]


async def list_workloads(connection: Connection, text: str, limit: int, cursor: str) -> WorkloadPage:
    """A page of workloads, those seen last first. Raises BadRequest."""

    async def look_up(names: list[Name]) -> list[Line]:
        found = await connection.execute(LINES.encode(), of_names(names))
        return await found.fetchall()

    names = await search_names(connection, text)
    lines = await newest_lines(connection, names, _read_cursor(cursor), limit + 1, look_up)
    following = f"{lines[limit - 1][7]}:{lines[limit - 1][1]}" if len(lines) > limit else ""
    is_all = not cursor and not following
    total = len(lines) if is_all else await names.count_names(connection)
    return WorkloadPage([_summary(line[:8]) for line in lines[:limit]], following, total)


def _read_cursor(cursor: str) -> tuple[int, str] | None:
    if not cursor:
        return None
    seen, _, uid = cursor.partition(":")
    try:
        return bigint(seen), uid
    except ValueError:
        raise BadRequest("cursor is none that this server gave") from None


def _summary(row: tuple[Any, ...]) -> WorkloadSummary:
    cluster, uid, name, namespace, rows, last_iteration, first_seen_us, last_seen_us = row
    return WorkloadSummary(
        workload_uid=uid,
        name=name or uid,
        namespace=namespace or "",
        cluster=cluster,
        rows=int(rows),
        last_iteration=last_iteration,
        first_seen=(first_seen_us or 0) // 1000,
        last_seen=(last_seen_us or 0) // 1000,
    )


async def changed_workloads(connection: Connection, cursor: str) -> tuple[list[str], str]:
    """Workloads that were written about since a moment (the cursor, in us), and the moment of now.

    A transaction writes its moment before it is committed, and a replica is late: the last minute comes again.
    """
    try:
        since = bigint(cursor) if cursor else 0
    except ValueError:
        raise BadRequest("cursor is none that this store gave") from None
    found = await connection.execute("select (extract(epoch from clock_timestamp()) * 1000000)::bigint")
    ((now,),) = await found.fetchall()
    found = await connection.execute(
        f"select distinct uid from ({shown(_CHANGED)}) shown where uid <> %(probe)s".encode(),
        {"since": since - _OVERLAP_US if since else 0, "probe": PROBE_WORKLOAD},
    )
    return [uid for (uid,) in await found.fetchall()], str(now)


async def workloads_of(connection: Connection, uids: Sequence[str]) -> dict[str, WorkloadDetail]:
    """Workloads with their runs; one that only the directory knows has none, one that nobody knows is missing."""
    cursor = await connection.execute(
        f"select min(s.cluster), uid, max({OWN_NAME}), max(s.namespace), coalesce(sum(s.rows), 0),"
        " max(s.last_iteration), min(s.first_seen_us), max(s.last_seen_us)"
        f" from {SUBJECTS_OF_NAMES} join lens_subject s on s.id = subject_id group by uid".encode(),
        {"uids": list(uids)},
    )
    own = {row[1]: row for row in await cursor.fetchall()}
    cursor = await connection.execute(
        "select distinct on (workload_uid) cluster, workload_uid, workload_name,"
        " coalesce(nullif(workload_namespace, ''), namespace), 0, null, first_seen_us, last_seen_us"
        " from lens_membership where workload_uid = any(%(uids)s) order by workload_uid, last_seen_us desc",
        {"uids": list(uids)},
    )
    known = {row[1]: row for row in await cursor.fetchall()}
    runs = await _runs(connection, own)
    found = {}
    for uid in {**own, **known}:
        row, told = own.get(uid), known.get(uid)
        if row is not None and told is not None:
            row = (*row[:2], told[2] or row[2], told[3] or row[3], *row[4:])
        found[uid] = WorkloadDetail(summary=_summary(row or told or ()), runs=runs.get(uid, []))
    return found


async def _runs(connection: Connection, uids: Iterable[str]) -> dict[str, list[RunSummary]]:
    found: dict[str, list[RunSummary]] = defaultdict(list)
    cursor = await connection.execute(
        "select uid, run_id, attempt, data_source, rank, rows, first_iteration, last_iteration, target_iteration,"
        f" first_seen_us, last_seen_us, node, world_size from {SUBJECTS_OF_NAMES} join lens_stream using (subject_id)"
        " where rows > 0 order by run_id, attempt, data_source, rank".encode(),
        {"uids": list(uids)},
    )
    for uid, *row in await cursor.fetchall():
        summary = RunSummary(
            run_id=row[0],
            attempt=row[1],
            data_source=row[2],
            rank=None if row[3] < 0 else row[3],
            rows=row[4],
            first_iteration=row[5],
            last_iteration=row[6],
            target_iteration=row[7],
            first_seen=row[8] // 1000,
            last_seen=row[9] // 1000,
            node=row[10],
            world_size=row[11],
        )
        found[uid].append(summary)
    return found


async def pods(connection: Connection, uid: str) -> list[PodLife]:
    """The pods of a workload with the spans in which they held their GPUs, in the order in which they were seen."""
    cursor = await connection.execute(
        "select m.pod_uid, m.namespace, m.pod_name, m.node, m.first_seen_us / 1000, m.last_seen_us / 1000,"
        " s.from_us / 1000, s.until_us / 1000, s.gpus from lens_membership m"
        " left join lens_pod_span s using (cluster, pod_uid, namespace, pod_name) where m.workload_uid = %s"
        " order by m.first_seen_us, m.pod_uid, m.pod_name, s.from_us",
        [uid],
    )
    found: list[PodLife] = []
    for key, group in itertools.groupby(await cursor.fetchall(), key=itemgetter(slice(6))):
        uid, namespace, name, node, first_seen, last_seen = key
        spans = [PodSpan(begin, until, gpus) for *_, begin, until, gpus in group if begin is not None]
        found.append(PodLife(uid, namespace, name, node, first_seen, last_seen, spans))
    return found


async def list_events(connection: Connection, uids: Sequence[str], limit: int) -> dict[str, list[EventRow]]:
    """The newest events of workloads; a failure that several reporters told of is one of them."""
    cursor = await connection.execute(
        f"select e.*, n.uid from unnest(%(uids)s::text[]) n (uid) cross join lateral (select {EVENT} from lens_event"
        "  where subject_id in (select subject_id from lens_name where uid = n.uid)"
        "  order by event_time_us desc, id desc limit %(limit)s) e".encode(),
        {"uids": list(uids), "limit": limit + _MOST_MERGED},
    )
    found: dict[str, list[EventRow]] = {uid: [] for uid in uids}
    for row in await cursor.fetchall():
        found[row[-1]].append(event_row(row))
    return {uid: merge_ends(events)[:limit] for uid, events in found.items()}


def event_row(row: Sequence[Any]) -> EventRow:
    """An event out of the columns of `EVENT`; more may follow them."""
    kind, timestamp, iteration, run_id, attempt, data_source, details, rank, pod_name, node, *_ = row
    return EventRow(
        type=kind,
        timestamp=timestamp,
        iteration=iteration,
        run_id=run_id,
        attempt=attempt,
        data_source=data_source,
        details=details,
        rank=rank,
        pod_name=pod_name,
        node=node,
    )


async def count_events(connection: Connection, uid: str) -> int:
    """All events of a workload."""
    cursor = await connection.execute(f"select count(*) from lens_event where subject_id in {_SUBJECTS}", {"uid": uid})
    return int((await cursor.fetchall())[0][0])


async def list_evidence(connection: Connection, uids: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """By workload the newest evidence of each source and run: source, run_id, session, timestamp (s) and the facts.

    Of each source the newest hundred: ten thousand ranks of one job say ten thousand times the same.
    """
    cursor = await connection.execute(
        "select uid, source, run_id, session, event_time_us, facts from ("
        " select uid, id, row_number() over (partition by uid, source order by event_time_us desc, id desc) as place"
        f" from {SUBJECTS_OF_NAMES} join lens_evidence using (subject_id)"
        ") places join lens_evidence using (id) where place <= %(most)s"
        " order by event_time_us desc, id desc".encode(),
        {"uids": list(uids), "most": _MOST_EVIDENCE},
    )
    found: dict[str, list[dict[str, Any]]] = {uid: [] for uid in uids}
    for uid, source, run_id, session, time_us, facts in await cursor.fetchall():
        item = {"source": source, "run_id": run_id, "session": session, "timestamp": time_us / 1e6, "facts": facts}
        found[uid].append(item)
    return found


async def list_run_configs(connection: Connection, uids: Sequence[str]) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """By workload and run the configurations in the evidence, newest first: of wandb, else of another tracker.

    Of each source and run the newest hundred, as many runs as there are.
    """
    cursor = await connection.execute(
        "select uid, run_id, config::text from ("
        " select uid, id, row_number() over (partition by uid, source, run_id order by event_time_us desc, id desc)"
        f"  as place from {SUBJECTS_OF_NAMES} join lens_evidence using (subject_id)"
        ") places join lens_evidence using (id) cross join lateral (select coalesce("
        "  nullif(nullif(facts #> '{wandb,config}', 'null'), '{}'), facts -> 'config') as config) configs"
        " where place <= %(most)s and jsonb_typeof(config) = 'object' order by event_time_us desc, id desc".encode(),
        {"uids": list(uids), "most": _MOST_EVIDENCE},
    )
    found: dict[str, dict[str, list[dict[str, Any]]]] = {uid: {} for uid in uids}
    for uid, run_id, config in await cursor.fetchall():
        found[uid].setdefault(run_id, []).append(msgspec.json.decode(config))
    return found


async def detections(connection: Connection, uids: Sequence[str]) -> dict[str, list[Detection]]:
    """By workload the newest opinion of each source, layer, framework and method."""
    cursor = await connection.execute(
        "select uid, source, layer, framework, method, confidence, event_time_us, facts"
        f" from {SUBJECTS_OF_NAMES} join lens_detection using (subject_id)"
        " order by source, layer, framework, method, event_time_us".encode(),
        {"uids": list(uids)},
    )
    found: dict[str, list[Detection]] = {uid: [] for uid in uids}
    for uid, source, layer, framework, method, confidence, time_us, facts in await cursor.fetchall():
        found[uid].append(
            Detection(
                workload_uid=uid,
                source=source,
                layer=layer,
                framework=framework,
                method=method,
                confidence=confidence,
                event_time=time_us / 1e6,
                facts=facts,
            )
        )
    return found


async def versions(connection: Connection, uids: Sequence[str]) -> dict[str, str]:
    """Every write about a subject raises its version; membership changes which subjects there are."""
    cursor = await connection.execute(
        "select uid, md5(string_agg(id || ':' || version, ',' order by id))"
        f" from {SUBJECTS_OF_NAMES} join lens_subject on id = subject_id group by uid".encode(),
        {"uids": list(uids)},
    )
    return {**dict.fromkeys(uids, "none"), **dict(await cursor.fetchall())}
