"""Subjects under the names by which they are shown, and pages of those names, those seen last first.

A cluster makes hundreds of thousands of pods a year. A page of the list therefore reads subjects in the order of the
index, newest first, until it has names enough, and looks up only those names; nothing here goes through all of them
but a search that matches nothing.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import Any, NamedTuple, TypeAlias

from lens_core.plugin_api.store import MEASURED_PREFIX, PROBE_WORKLOAD

from .identity import Connection

# More subjects than this are not counted for the total of a list: counting would cost more than the list itself.
COUNTED_SUBJECTS = 10_000
# Subjects to read at first for each requested line; more with each further query.
_SUBJECTS_PER_LINE = 4
# Measurements are in no list.
WITHOUT_MEASURED = f"not starts_with(workload_uid, '{MEASURED_PREFIX}')"
# The list without a search leaves out the doctor's rows, which are no training.
_LISTED = f"(select * from lens_subject where workload_uid <> '{PROBE_WORKLOAD}' and {WITHOUT_MEASURED})"
# The columns of `LINES`, and those that a list adds.
Line: TypeAlias = tuple[Any, ...]


# A workload without a name of its own is called by its pod, and one of several pods by their name without the number.
OWN_NAME = """case
        when s.workload_uid <> '' and s.name <> '' and s.name = s.pod_name and exists (
            select from lens_stream t where t.subject_id = s.id and t.pod_name not in ('', s.pod_name)
        ) then coalesce(nullif(nullif(regexp_replace(s.pod_name, '[-_.]?[0-9]+$', ''), s.pod_name), ''), s.workload_uid)
        else nullif(s.name, '') end"""


class Name(NamedTuple):
    """Under what a subject is shown."""

    cluster: str
    uid: str


def shown(subjects: str) -> str:
    """A query of the subjects in `subjects` (a table's name or a query in parentheses) with what they are shown as.

    A subject goes by its workload; a pod by the lowest workload that it belongs to, if any is known.
    """
    return f"""
    select s.id as subject_id, s.cluster,
        case when s.workload_uid <> '' then s.workload_uid when m.workload_uid is not null then m.workload_uid
            when s.pod_uid <> '' then s.pod_uid when s.namespace <> '' then s.namespace || '/' || s.pod_name
            else s.pod_name end as uid,
        coalesce(nullif(m.workload_name, ''), {OWN_NAME}, s.workload_uid) as name,
        coalesce(nullif(m.workload_namespace, ''), nullif(m.namespace, ''), s.namespace) as namespace,
        s.pod_uid, s.pod_name, s.rows, s.last_iteration, s.first_seen_us, s.last_seen_us
    from {subjects} s left join lateral (
        (select m.* from lens_membership m
            where s.workload_uid <> '' and m.workload_uid = s.workload_uid and m.cluster = s.cluster
            order by m.workload_name = '', m.pod_uid limit 1)
        union all
        (select m.* from lens_membership m
            where s.workload_uid = '' and s.pod_uid <> '' and m.pod_uid = s.pod_uid and m.cluster = s.cluster
                and not exists (select from lens_membership below where below.pod_uid = m.pod_uid
                    and below.cluster = m.cluster and below.parent_uid = m.workload_uid)
            order by m.last_seen_us desc, m.workload_uid limit 1)
        union all
        (select m.* from lens_membership m
            where s.workload_uid = '' and s.pod_name <> '' and m.pod_name = s.pod_name and m.cluster = s.cluster
                and (s.pod_uid = '' or m.pod_uid = '')
                and (s.namespace = m.namespace or s.namespace = '' or m.namespace = '')
                and not exists (select from lens_membership below where below.pod_name = m.pod_name
                    and below.namespace = m.namespace and below.cluster = m.cluster
                    and below.parent_uid = m.workload_uid)
            order by m.last_seen_us desc, m.workload_uid limit 1)
        limit 1
    ) m on true
    where s.last_seen_us is not null
    """


# All subjects of each of %(uids)s. `distinct` also keeps the planner from reading the view whole: it goes by the
# indexes, name by name.
SUBJECTS_OF_NAMES = """unnest(%(uids)s::text[]) as n(uid) cross join lateral (
    select distinct subject_id from lens_name where uid = n.uid
) named"""
_OF_NAMES = f"(select * from lens_subject where id in (select subject_id from {SUBJECTS_OF_NAMES}))"
LINES = f"""
    select cluster, uid, max(name) as name, max(namespace) as namespace, sum(rows)::bigint as rows,
        max(last_iteration) as last_iteration, min(first_seen_us) as first_seen, max(last_seen_us) as last_seen,
        array_agg(subject_id) as subjects
    from ({shown(_OF_NAMES)}) shown
    where (cluster, uid) in (select * from unnest(%(clusters)s::text[], %(uids)s::text[]))
    group by cluster, uid
"""

_OWN_TEXTS = ("workload_uid", "name", "namespace", "pod_uid", "pod_name", "namespace || '/' || pod_name")
_ANYTHING_LIKE = " or ".join(f"{text} ilike %(pattern)s" for text in _OWN_TEXTS)
_WORKLOAD_LIKE = " or ".join(
    f"{text} ilike %(pattern)s" for text in ("workload_uid", "workload_name", "workload_namespace", "namespace")
)
# Subjects that may be shown as something like it: a net rather too wide than too narrow, cast over plain columns.
_CANDIDATES = f"""
    (select id from lens_subject where ({_ANYTHING_LIKE}) and {WITHOUT_MEASURED} limit %(most)s)
    union
    (select subject_id from (select distinct workload_uid from lens_membership where {_WORKLOAD_LIKE}) m
        cross join lateral (select subject_id from lens_name where uid = m.workload_uid offset 0) named
        limit %(most)s)
"""
_LIKE = f"({' or '.join(f'{text} ilike %(pattern)s' for text in ('uid', 'name', 'namespace', 'pod_uid', 'pod_name'))})"
_CHOSEN = "(select * from lens_subject where id = any(%(ids)s))"


class Search:
    """A search in names, uids, namespaces and pods, and its subjects; made by `search_names`."""

    def __init__(self, parameters: dict[str, Any], subjects: str, condition: str) -> None:
        self._parameters = parameters
        self._subjects = subjects
        self._condition = condition

    async def select_names(self, connection: Connection, subjects: Iterable[int]) -> list[Name]:
        """Under what these subjects are shown, as far as it matches."""
        found = await connection.execute(
            f"select distinct cluster, uid from ({shown(_CHOSEN)}) shown where {self._condition}".encode(),
            {**self._parameters, "ids": list(subjects)},
        )
        return [Name(*row) for row in await found.fetchall()]

    async def count_names(self, connection: Connection) -> int | None:
        """Count the names; None where there are too many subjects to count them for a page."""
        many = await connection.execute(
            f"select count(*) > {COUNTED_SUBJECTS} from"
            f" (select from {self._subjects} s where last_seen_us is not null limit {COUNTED_SUBJECTS + 1}) s".encode(),
            self._parameters,
        )
        if (await many.fetchall())[0][0]:
            return None
        names = f"({shown(self._subjects)}) shown where {self._condition}"
        counted = await connection.execute(
            f"select count(distinct (cluster, uid)) from {names}".encode(), self._parameters
        )
        return int((await counted.fetchall())[0][0])

    async def newest_first(
        self, connection: Connection, until_us: int | None, first_subjects: int
    ) -> AsyncGenerator[list[Name], None]:
        """Names in portions, by their newest subject that was seen at `until_us` or before; each name once."""
        known: set[Name] = set()
        subjects, condition = first_subjects, "last_seen_us <= %(until)s"
        while True:
            found = await connection.execute(
                self._portion(condition if until_us is not None else "true").encode(),
                {**self._parameters, "until": until_us, "subjects": subjects},
            )
            rows = await found.fetchall()
            portion = dict.fromkeys(Name(cluster, uid) for cluster, uid, _, matches in rows if matches)
            yield [name for name in portion if name not in known]
            if len(rows) < subjects:
                return
            known.update(portion)
            until_us, condition = rows[-1][2], "last_seen_us < %(until)s"
            subjects *= 2

    def _portion(self, condition: str) -> str:
        """The next subjects. All that were seen in one microsecond come together, so that none is passed over."""
        newest = f"""(
            select * from {self._subjects} s where last_seen_us is not null and {condition}
            order by last_seen_us desc fetch first %(subjects)s rows with ties
        )"""
        return f"""
            select cluster, uid, last_seen_us, {self._condition} from ({shown(newest)}) shown
            order by last_seen_us desc
        """


async def search_names(connection: Connection, text: str) -> Search:
    """Look for a text; '' finds everything but the doctor's workload.

    A text that few subjects know is looked for in these alone. One that many know fills a page soon with the newest
    subjects, whatever else there is.
    """
    if not text:
        return Search({}, _LISTED, "true")
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    parameters: dict[str, Any] = {"pattern": f"%{escaped}%"}
    found = await connection.execute(_CANDIDATES.encode(), {**parameters, "most": COUNTED_SUBJECTS + 1})
    ids = [subject for (subject,) in await found.fetchall()]
    if len(ids) > COUNTED_SUBJECTS:
        return Search(parameters, f"(select * from lens_subject where {WITHOUT_MEASURED})", _LIKE)
    return Search({**parameters, "ids": ids}, _CHOSEN, _LIKE)


async def newest_lines(
    connection: Connection,
    names: Search,
    before: tuple[int, str] | None,
    wanted: int,
    look_up: Callable[[list[Name]], Awaitable[list[Line]]],
) -> list[Line]:
    """The first lines after `before` (last seen, uid), newest first; `look_up` gives the lines of names, in any order.

    A name may have been seen since later than `before`: it was on an earlier page, and is passed over.
    """
    lines: list[Line] = []
    async with aclosing(names.newest_first(connection, before and before[0], _SUBJECTS_PER_LINE * wanted)) as portions:
        async for portion in portions:
            found = await look_up(portion) if portion else []
            lines += in_order(line for line in found if before is None or place(line) < before)
            if len(lines) >= wanted:
                break
    return lines[:wanted]


def place(line: Line) -> tuple[int, str]:
    """Return the place of a line in the list: by its last data, then by its uid."""
    return line[7], line[1]


def in_order(lines: Iterable[Line]) -> list[Line]:
    """Lines as they are listed."""
    return sorted(lines, key=place, reverse=True)


def of_names(names: list[Name]) -> dict[str, list[str]]:
    """The parameters of LINES."""
    return {"clusters": [name.cluster for name in names], "uids": [name.uid for name in names]}
