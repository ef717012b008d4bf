"""GET /api/v1/workloads/{uid}/log-tail: the last lines of a workload's logs."""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..detection.log_lines.log_tails import LogTail, LogTails, decode_tail
from ..model.records import LOG_TAIL, Origin
from ..pipeline.tap import subject_name
from ..plugin_api.store import Store
from .auth import require_role
from .errors import json_response
from .parameters import integer, is_elsewhere, workload_uid
from .state import ApiState

_STREAMS = 8
_MOST_STREAMS = 64
_KEPT_SECONDS = 20.0
_MOST_KEPT = 1000


class TailQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """The streams that are asked for: those of a workload and of its pods."""

    uid: str
    origins: list[Origin]
    limit: int
    rank: int | None


class TailAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The tails that one daemon has in memory, and how many there are."""

    tails: list[LogTail]
    total: int


class LogTailRoutes:
    """The last lines: of this daemon's memory, and those that the store has of the last trouble."""

    def __init__(self, state: ApiState) -> None:
        self._state = state
        self._origins: OrderedDict[str, tuple[float, list[Origin]]] = OrderedDict()
        self._siblings = state.siblings_of(LOG_TAIL)
        self._siblings.answer_siblings(self._answer_sibling)

    def routes(self) -> list[Route]:
        """One path; it needs the role read."""
        return [Route("/workloads/{uid:path}/log-tail", self.log_tail, methods=["GET"])]

    async def log_tail(self, request: Request) -> Response:
        """The last log lines of each stream, those that told of a failure first; `rank`, `limit` (streams)."""
        require_role(request, self._state, "read")
        uid = workload_uid(request)
        limit = integer(request, "limit", minimum=1, maximum=_MOST_STREAMS) or _STREAMS
        rank = integer(request, "rank", minimum=-1)
        if is_elsewhere(request, self._state.cluster_name):
            return json_response({"workload_uid": uid, "streams": [], "total_count": 0})
        store = self._state.required_store()
        stored = await _stored_tails(store, uid)
        live, total, silent = await self._ask_everywhere(
            TailQuestion(uid=uid, origins=await self._origins_of(store, uid), limit=limit, rank=rank)
        )
        streams = [_tail_json(tail, is_live=True) for tail in live]
        here = {tail.place for tail in live}
        old = [tail for tail in stored if tail.place not in here and rank in (None, _rank_of(tail))]
        streams += [_tail_json(tail, is_live=False) for tail in old]
        streams.sort(key=lambda stream: not stream["has_cause"])
        missing = {"silent": silent} if silent else {}
        found = {"workload_uid": uid, "streams": streams[:limit], "total_count": total + len(old)}
        return json_response({**found, **missing})

    async def _ask_everywhere(self, question: TailQuestion) -> tuple[list[LogTail], int, list[str]]:
        """The live tails of this daemon and of all others of its cluster, and the daemons that do not answer.

        Only the owner of the job has its lines.
        """
        found, total = await self._live_tails(question)
        others = await self._siblings.ask_siblings(msgspec.msgpack.encode(question))
        silent = list(others.silent)
        for name, body in others.found.items():
            try:
                answer = msgspec.msgpack.decode(body, type=TailAnswer)
            except msgspec.DecodeError:
                silent.append(f"{name} (its answer has another format; it is of another version)")
                continue
            found = _merge_tails([*found, *answer.tails])
            total += answer.total
        return found, max(total, len(found)), silent

    async def _answer_sibling(self, body: bytes) -> bytes:
        tails, total = await self._live_tails(msgspec.msgpack.decode(body, type=TailQuestion))
        return msgspec.msgpack.encode(TailAnswer(tails=tails, total=total))

    async def _origins_of(self, store: Store, uid: str) -> list[Origin]:
        """The pods of a workload; kept for a while, because the page asks repeatedly."""
        at, origins = self._origins.get(uid, (-math.inf, []))
        if time.monotonic() - at > _KEPT_SECONDS:
            origins = await store.origins(uid)
            self._origins[uid] = time.monotonic(), origins
            self._origins.move_to_end(uid)
            while len(self._origins) > _MOST_KEPT:
                self._origins.popitem(last=False)
        return origins

    async def _live_tails(self, question: TailQuestion) -> tuple[list[LogTail], int]:
        """The tails of this daemon's memory; in a thread, because secrets are looked for in each line."""
        return await asyncio.to_thread(_find_tails, list(self._state.log_tails), question)


def _find_tails(every: Sequence[LogTails], question: TailQuestion) -> tuple[list[LogTail], int]:
    uid, origins, limit, rank = question.uid, question.origins, question.limit, question.rank
    names = {uid, *(origin.workload_uid for origin in origins if origin.workload_uid)}
    pods = {origin.pod_uid for origin in origins if origin.pod_uid}
    paths = {(origin.namespace, origin.pod_name) for origin in origins if origin.pod_name}

    def is_wanted(origin: Origin) -> bool:
        if rank is not None and rank != (-1 if origin.rank is None else origin.rank):
            return False
        if origin.workload_uid or subject_name(origin) == uid:
            return (origin.workload_uid or uid) in names
        return origin.pod_uid in pods or (origin.namespace, origin.pod_name) in paths

    found: list[LogTail] = []
    total = 0
    for tails in every:
        some, count = tails.tails_of(is_wanted, limit)
        total = max(total, count)
        found += some
    merged = _merge_tails(found)
    return merged, max(total, len(merged))


def _merge_tails(tails: Sequence[LogTail]) -> list[LogTail]:
    """One tail of each stream, the one that goes on longest.

    Several pipelines read the same lines, and who owned a partition before may still have the older ones.
    """
    found: dict[tuple[str, ...], LogTail] = {}
    for tail in tails:
        known = found.get(tail.place)
        if known is None or _newest_line(tail) > _newest_line(known):
            found[tail.place] = tail
    return list(found.values())


def _newest_line(tail: LogTail) -> int:
    return max((line.at for line in tail.lines if line.at is not None), default=0)


def _rank_of(tail: LogTail) -> int:
    return -1 if tail.rank is None else tail.rank


async def _stored_tails(store: Store, uid: str) -> list[LogTail]:
    """The tails of the newest trouble that was stored."""
    reports = await store.diagnoses(uid, data_type=LOG_TAIL)
    newest = max((report.timestamp for report in reports), default=0.0)
    tails = [decode_tail(report.data_content) for report in reports if report.timestamp == newest]
    return [tail for tail in tails if tail is not None]


def _tail_json(tail: LogTail, *, is_live: bool) -> dict[str, Any]:
    described: dict[str, Any] = msgspec.to_builtins(tail)
    lines = [{"timestamp": line.at, "text": line.text} for line in tail.lines]
    return {**described, "lines": lines, "is_live": is_live}
