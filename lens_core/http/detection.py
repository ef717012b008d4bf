"""The detection of a workload and its reasons: the verdict over all evidence, made anew for every answer."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..base.errors import BadRequest, Unavailable
from ..detection.detectors import EvidenceRules
from ..detection.verdict import fuse
from ..model.processing import Verdict
from ..model.records import Detection, Evidence, Origin
from ..plugin_api.store import Store
from .auth import require_role
from .checking import decode_question, read_question
from .errors import json_response
from .parameters import workload_uid
from .state import ApiState

# The time that PUT waits until the store returns its detection, and the interval of its queries.
_STORED_DEADLINE_SECONDS = 2.0
_LOOK_SECONDS = 0.02


class StatedDetection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A detection stated by a person: the body of PUT; at least one of the first three."""

    framework: str = ""
    wrapper_framework: str = ""
    base_framework: str = ""
    framework_layer: str = ""
    confidence: float = 1.0
    evidence: dict[str, Any] = {}


class DetectionRoutes:
    """GET and PUT /api/v1/workloads/{uid}/detection."""

    def __init__(self, state: ApiState) -> None:
        self._state = state

    def routes(self) -> list[Route]:
        """One path; asking needs the role read, saying admin."""
        path = "/workloads/{uid:path}/detection"
        return [Route(path, self.get_detection, methods=["GET"]), Route(path, self.put_detection, methods=["PUT"])]

    async def get_detection(self, request: Request) -> Response:
        """The verdict, its layers, the evidence and opinions behind it, and what contradicts it."""
        require_role(request, self._state, "read")
        uid = workload_uid(request)
        elsewhere = request.query_params.get("cluster", "") not in ("", self._state.cluster_name)
        store = self._state.required_store()
        evidence = [] if elsewhere else await store.evidence(uid)
        opinions = [] if elsewhere else await all_opinions(store, uid, evidence, self._state.rules)
        verdict = fuse(opinions, self._state.rules.relations)
        return json_response(
            {
                "workload_uid": uid,
                **verdict_json(verdict),
                "detections": [_opinion(opinion) for opinion in opinions],
                "evidence": evidence,
            }
        )

    async def put_detection(self, request: Request) -> Response:
        """Store a detection stated by a person, which wins over those of detectors; a repetition replaces it.

        Answers the verdict that GET gives from now on, or 503 when there is no store to ask.
        """
        require_role(request, self._state, "admin")
        uid = workload_uid(request)
        stated = _stated(await read_question(request))
        if self._state.api_gate is None:
            raise Unavailable("no pipeline takes what people say")
        facts = {name: value for name, value in msgspec.structs.asdict(stated).items() if value}
        evidence = Evidence(origin=Origin(workload_uid=uid), source="user", facts=facts, event_time=time.time())
        store = self._state.required_store()
        await self._state.api_gate.submit([evidence])
        known = await _evidence_with(store, uid, evidence)
        verdict = fuse(await all_opinions(store, uid, known, self._state.rules), self._state.rules.relations)
        return json_response({"success": True, "workload_uid": uid, **verdict_json(verdict)})


async def _evidence_with(store: Store, uid: str, said: Evidence) -> list[dict[str, Any]]:
    """All evidence, once what was just said is in it: it takes the path of all records, which is not instant.

    A store that is behind does not keep the person waiting: their word is safe, and is put in front of the rest.
    """
    deadline = time.monotonic() + _STORED_DEADLINE_SECONDS
    while True:
        known = await store.evidence(uid)
        others = [item for item in known if item["source"] != said.source]
        if any(item["source"] == said.source and item["facts"] == said.facts for item in known):
            return known
        if time.monotonic() > deadline:
            stated = {"source": said.source, "run_id": "", "timestamp": said.event_time, "facts": said.facts}
            return [stated, *others]
        await asyncio.sleep(_LOOK_SECONDS)


async def all_opinions(store: Store, uid: str, evidence: list[dict[str, Any]], rules: EvidenceRules) -> list[Detection]:
    """Every opinion about a workload that counts, from its evidence and from what the store keeps."""
    return weigh(uid, evidence, await store.detections(uid), rules)


def weigh(uid: str, evidence: list[dict[str, Any]], stored: list[Detection], rules: EvidenceRules) -> list[Detection]:
    """Opinions made anew from all evidence, and those that came from elsewhere (log lines) as they were stored.

    A source that gave evidence is judged by that evidence alone: what an earlier version of a detector, or a person
    who has changed their mind, said before is not held against it.
    """
    opinions = [
        opinion
        for item in evidence
        for opinion in rules.detect(
            Evidence(
                origin=Origin(workload_uid=uid),
                source=item["source"],
                facts=item["facts"],
                run_id=item["run_id"],
                event_time=item["timestamp"],
            )
        )
    ]
    judged = {item["source"] for item in evidence}
    return opinions + [opinion for opinion in stored if opinion.source not in judged]


def verdict_json(verdict: Verdict) -> dict[str, Any]:
    """A verdict as the routes answer it; what is not known is null."""
    answer: dict[str, Any] = msgspec.to_builtins(verdict)
    names = ("framework", "framework_layer", "wrapper_framework", "base_framework", "method", "workload_type")
    return {**answer, **{name: answer[name] or None for name in names}}


def _opinion(opinion: Detection) -> dict[str, Any]:
    return {
        "source": opinion.source,
        "framework": opinion.framework,
        "layer": opinion.layer,
        "confidence": opinion.confidence,
        "method": opinion.method,
        "facts": opinion.facts,
        "timestamp": opinion.event_time,
    }


def _stated(body: bytes) -> StatedDetection:
    stated: StatedDetection = decode_question(body, StatedDetection)
    if not (stated.framework or stated.wrapper_framework or stated.base_framework):
        raise BadRequest("framework, wrapper_framework or base_framework is required")
    if stated.framework_layer not in ("", "wrapper", "base"):
        raise BadRequest(f"framework_layer must be wrapper or base, not {stated.framework_layer!r}")
    if not 0.0 < stated.confidence <= 1.0:
        raise BadRequest(f"confidence must be above 0 and at most 1, not {stated.confidence}")
    return stated
