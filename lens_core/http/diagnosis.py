"""Is it hung, what was it doing, should it restart: the answer about a workload, made anew from all that is stored."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..base.errors import LensError
from ..diagnosis import (
    Facts,
    Finding,
    HangVerdict,
    Happened,
    Progress,
    RankStack,
    advise,
    decode_report,
    failures_since_start,
    judge_hang,
    merge_stacks,
)
from ..model.event_types import DIAGNOSIS_EVENTS
from ..model.queries import EventRow
from ..model.records import LOG_TAIL, Diagnosis
from ..plugin_api.store import Store
from .auth import require_role
from .errors import json_response
from .parameters import workload_uid
from .progress import progress_of
from .state import ApiState

STACK_TRACE = "STACK_TRACE"
_MAX_EVENTS = 200
_SHOWN_EVENTS = 20
_STACKS_TOGETHER_SECONDS = 60.0


class DiagnosisRoutes:
    """GET /api/v1/workloads/{uid}/diagnosis."""

    def __init__(self, state: ApiState) -> None:
        self._state = state

    def routes(self) -> list[Route]:
        """One path; it needs the role read."""
        return [Route("/workloads/{uid:path}/diagnosis", self.get_diagnosis, methods=["GET"])]

    async def get_diagnosis(self, request: Request) -> Response:
        """The hang verdict with every rule's reason, the merged stacks, who reported, and advice after a failure."""
        require_role(request, self._state, "read")
        uid = workload_uid(request)
        store = self._state.required_store()
        elsewhere = request.query_params.get("cluster", "") not in ("", self._state.cluster_name)
        now = time.time()
        diagnoses = [] if elsewhere else await reports_of(store, uid)
        events = [] if elsewhere else await store.events(uid, limit=_MAX_EVENTS)
        progress = None if elsewhere else await progress_of(store, uid, now)
        return json_response({"workload_uid": uid, **diagnosis_json(now, diagnoses, events, progress)})


async def reports_of(store: Store, uid: str) -> list[Diagnosis]:
    """The reports of collectors about a workload; the last log lines are none."""
    return [report for report in await store.diagnoses(uid) if report.data_type != LOG_TAIL]


def diagnosis_json(
    now: float, diagnoses: Sequence[Diagnosis], events: Sequence[EventRow], progress: Progress | None
) -> dict[str, Any]:
    """The answer's body, but for the workload's name. Times in milliseconds."""
    telling = [event for event in events if event.type in DIAGNOSIS_EVENTS]
    return {
        "hang": _hang(hang_of(now, diagnoses, events, progress)),
        "progress": _progress_json(progress, now),
        "stacks": [group.as_json() for group in merge_stacks(newest_stacks(diagnoses))],
        "nodes": _nodes(diagnoses, now),
        "advice": _advice(telling),
        "events": [msgspec.to_builtins(event) for event in telling[:_SHOWN_EVENTS]],
    }


def hang_of(
    now: float, diagnoses: Sequence[Diagnosis], events: Sequence[EventRow], progress: Progress | None
) -> HangVerdict:
    """Judge from everything that is stored about a workload whether it hangs."""
    happened = [Happened(event.type, event.timestamp / 1000) for event in events if event.type in DIAGNOSIS_EVENTS]
    return judge_hang(Facts(now=now, diagnoses=diagnoses, progress=progress, events=happened))


def newest_stacks(diagnoses: Sequence[Diagnosis]) -> list[RankStack]:
    """The newest stack of each rank, as far as they belong together in time."""
    newest: dict[tuple[str, int, str], tuple[float, RankStack]] = {}
    for diagnosis in diagnoses:
        if diagnosis.data_type != STACK_TRACE:
            continue
        try:
            report = decode_report(diagnosis.data_content)
        except LensError:
            continue  # another tool's stacks; they are stored and passed on, but not merged
        for rank in report.ranks:
            place = rank.pid if rank.rank is None else -1
            newest[rank.name, place, diagnosis.node_type] = (diagnosis.timestamp, rank)
    last = max((at for at, _ in newest.values()), default=0.0)
    return [rank for at, rank in newest.values() if last - at <= _STACKS_TOGETHER_SECONDS]


def _hang(verdict: HangVerdict) -> dict[str, Any]:
    return {
        "verdict": verdict.verdict,
        "reason": verdict.reason,
        "since": _ms(verdict.since),
        "ranks": verdict.ranks,
        "evidence": [_finding(finding) for finding in verdict.findings],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "verdict": finding.verdict,
        "reason": finding.reason,
        "since": _ms(finding.since),
        "ranks": finding.ranks,
    }


def _progress_json(progress: Progress | None, now: float) -> dict[str, Any] | None:
    if progress is None:
        return None
    return {
        "iteration": progress.iteration,
        "last_step": _ms(progress.last_step_at),
        "seconds_ago": round(now - progress.last_step_at, 3),
        "usual_seconds": progress.usual_seconds,
        "data_source": progress.data_source,
    }


def _nodes(diagnoses: Sequence[Diagnosis], now: float) -> list[dict[str, Any]]:
    newest: dict[tuple[str, int, int], dict[str, float]] = defaultdict(dict)
    for diagnosis in diagnoses:
        node = newest[diagnosis.node_type, diagnosis.node_rank, diagnosis.node_id]
        node[diagnosis.data_type] = max(node.get(diagnosis.data_type, 0.0), diagnosis.timestamp)
    return [
        {
            "node_type": node_type,
            "node_rank": node_rank,
            "node_id": node_id,
            "last_report": _ms(max(reports.values())),
            "seconds_ago": round(now - max(reports.values()), 3),
            "reports": {data_type: _ms(at) for data_type, at in sorted(reports.items())},
        }
        for (node_type, node_rank, node_id), reports in sorted(newest.items())
    ]


def _advice(events: Sequence[EventRow]) -> dict[str, Any] | None:
    """Advise on the newest failure, if nothing has started since; `events` newest first."""
    failures, restarts = failures_since_start(events)
    if not failures:
        return None
    advice = advise([failure for failure, _ in failures], restart_count=restarts)
    return {
        "action": advice.decision.name,
        "cause": advice.cause.value,
        "reason": advice.reason,
        "evidence": advice.evidence,
    }


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)
