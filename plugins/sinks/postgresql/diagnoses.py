"""Reports of diagnosis collectors: the newest of each node and type, written in the rows' transaction."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from lens_core import Diagnosis

from .grouping import SubjectKey
from .identity import Connection
from .text import clean, microseconds

KEPT_REPORTS = 16
_SUBJECTS = "(select subject_id from lens_name where uid = %(uid)s)"
_COLUMNS = "subject_id, node_type, node_rank, node_id, data_type"


def diagnosis_problem(record: Diagnosis) -> str | None:
    """Why a report cannot be stored; None when it can."""
    if any(abs(number) >= 2**31 for number in (record.node_rank, record.node_id)):
        return "node_rank or node_id does not fit in 32 bits"
    return None


async def write_diagnoses(
    connection: Connection,
    diagnoses: Sequence[tuple[SubjectKey, Diagnosis]],
    subjects: Mapping[SubjectKey, int],
    now_us: int,
) -> None:
    """Store reports and remove those that have become old; one that comes twice is one."""
    if not diagnoses:
        return
    rows = []
    for subject, record in diagnoses:
        content = clean(record.data_content)
        time_us = microseconds(record.timestamp) if record.timestamp > 0 else None
        digest = hashlib.sha256(f"{time_us}\0{content}".encode()).digest()
        node = (subjects[subject], clean(record.node_type), record.node_rank, record.node_id, clean(record.data_type))
        rows.append((*node, digest, now_us if time_us is None else time_us, content))
    async with connection.cursor() as cursor:
        await cursor.executemany(
            f"insert into lens_diagnosis ({_COLUMNS}, digest, event_time_us, content)"
            " values (%s, %s, %s, %s, %s, %s, %s, %s) on conflict do nothing",
            rows,
        )
    nodes = sorted({row[:5] for row in rows})
    await connection.execute(
        "delete from lens_diagnosis old using unnest(%s::bigint[], %s::text[], %s::int[], %s::int[], %s::text[])"
        f" node ({_COLUMNS}) where (old.subject_id, old.node_type, old.node_rank, old.node_id, old.data_type)"
        " = (node.subject_id, node.node_type, node.node_rank, node.node_id, node.data_type) and old.id not in"
        " (select id from lens_diagnosis kept where (kept.subject_id, kept.node_type, kept.node_rank, kept.node_id,"
        " kept.data_type) = (node.subject_id, node.node_type, node.node_rank, node.node_id, node.data_type)"
        f" order by event_time_us desc, id desc limit {KEPT_REPORTS})",
        [list(column) for column in zip(*nodes, strict=True)],
    )


async def read_diagnoses(connection: Connection, uid: str, data_type: str) -> list[Diagnosis]:
    """The newest reports about a workload, oldest first; `data_type` '' means all."""
    cursor = await connection.execute(
        "select node_type, node_rank, node_id, data_type, event_time_us, content from lens_diagnosis"
        f" where subject_id in {_SUBJECTS} and (%(type)s = '' or data_type = %(type)s) order by event_time_us, id",
        {"uid": uid, "type": data_type},
    )
    return [
        Diagnosis(
            node_type=row[0],
            node_rank=row[1],
            node_id=row[2],
            data_type=row[3],
            timestamp=row[4] / 1e6,
            data_content=row[5],
        )
        for row in await cursor.fetchall()
    ]
