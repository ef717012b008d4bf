"""POST /records: the envelope of records, from the hook and from other lenses, as JSON or MessagePack."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence

import msgspec

from lens_core import (
    BadRequest,
    Event,
    Evidence,
    IngestRequest,
    Origin,
    Record,
    Reply,
    RequestError,
    Route,
    Source,
    StepMetrics,
    hookimpl,
)
from lens_core.plugin_api.encoding import (
    ENVELOPE_VERSION,
    Decoded,
    RecordsEnvelope,
    Rejection,
    decode_envelope,
    decode_json_envelope,
    epoch_seconds,
    why_refused,
)

from .wandb_api.metrics import WandbMetrics

LARGE_BODY_BYTES = 64 * 1024

_NEEDS_ORIGIN = (StepMetrics, Evidence, Event)

# The label `type` of the wandb counters for what comes from the hook.
_HOOK = "records"


class RecordsApi(Source):
    """The versioned envelope of records over HTTP: hook to lens, lens to lens."""

    name = "records_api"
    also_called = ("lens",)

    def routes(self) -> Sequence[Route]:
        """One route."""
        bodies = {"application/json": RecordsEnvelope, "application/msgpack": RecordsEnvelope}
        return [Route(paths=["/records"], handler=self._receive, bodies=bodies)]

    async def _receive(self, request: IngestRequest) -> Reply:
        """Records as envelopes; those of the hook count as the requests to the wandb routes do."""
        metrics = self.context.metrics.group(WandbMetrics)
        started = time.perf_counter()
        try:
            answer, records = await self._submit_records(request)
        except RequestError as error:
            if b"wandb" in request.body:
                metrics.requests.labels(_HOOK).inc()
                metrics.request_errors.labels(_HOOK, error.code).inc()
            raise
        rows = [record for record in records if isinstance(record, StepMetrics) and record.data_source == "wandb"]
        if rows or any(isinstance(record, Evidence) and record.source == "wandb" for record in records):
            metrics.requests.labels(_HOOK).inc()
            metrics.request_duration.labels(_HOOK).observe(time.perf_counter() - started)
            metrics.metrics_points.inc(sum(len(row.values) for row in rows))
        return answer

    async def _submit_records(self, request: IngestRequest) -> tuple[Reply, list[Record]]:
        content_type = request.headers.get("content-type", "application/json").split(";")[0].strip().lower()
        decode = _DECODERS.get(content_type, decode_json_envelope)
        large = len(request.body) > LARGE_BODY_BYTES
        # Nothing keeps what was decoded: a large body of refused records would be held beside the answer.
        records, rejected = _with_origins(
            await asyncio.to_thread(_decode, decode, request.body) if large else _decode(decode, request.body)
        )
        if rejected and not records and len(rejected) == 1:
            await self.gate.submit([], received=1, rejected={"invalid": 1})
            raise BadRequest(f"record 0: {rejected[0][1]}")
        counts = Counter("invalid" for _ in rejected)
        await self.gate.submit(records, received=len(records) + len(rejected), rejected=counts)
        answer = [Rejection(index, reason) for index, reason in rejected]
        return Reply(body={"success": True, "accepted": len(records), "rejected": answer}), records


_DECODERS = {
    "application/json": decode_json_envelope,
    "application/msgpack": decode_envelope,
    "application/x-msgpack": decode_envelope,
    "application/vnd.msgpack": decode_envelope,
}


def _decode(decode: object, body: bytes) -> Decoded:
    try:
        decoded: Decoded = decode(body)  # type: ignore[operator]
    except msgspec.DecodeError as error:
        raise BadRequest(f"the envelope could not be read: {error}") from None
    if decoded.version > ENVELOPE_VERSION:
        raise BadRequest(
            f"the envelope has version {decoded.version}, this daemon knows {ENVELOPE_VERSION}; update the daemon first"
        )
    return decoded


def _with_origins(decoded: Decoded) -> tuple[list[Record], list[tuple[int, str]]]:
    """Give the envelope's origin to records without one; refuse those that nobody could ever ask for."""
    wrong = {index for index, _ in decoded.rejected}
    rejected = list(decoded.rejected)
    records: list[Record] = []
    places = (index for index in range(len(decoded.records) + len(wrong)) if index not in wrong)
    for index, record in zip(places, decoded.records, strict=True):
        try:
            known = in_seconds(_complete(record, decoded.origin))
        except ValueError as error:
            rejected.append((index, str(error)))
            continue
        if isinstance(known, _NEEDS_ORIGIN) and not known.origin.is_known:
            rejected.append((index, "workload_uid, pod_uid or pod_name is required in the origin"))
        elif reason := why_refused(known):
            rejected.append((index, reason))
        else:
            records.append(known)
    return records, sorted(rejected)


def in_seconds(record: Record) -> Record:
    """The record with its time in seconds. Raises ValueError for what is no time."""
    for name in ("event_time", "timestamp"):
        moment = getattr(record, name, None)
        if (seconds := epoch_seconds(moment)) != moment:
            record = msgspec.structs.replace(record, **{name: seconds})
    return record


def _complete(record: Record, origin: Origin) -> Record:
    if record.origin.is_known or not origin.is_known:
        return record
    return msgspec.structs.replace(record, origin=origin)


@hookimpl
def lens_sources() -> Sequence[type[Source]]:
    """Announce the source."""
    return [RecordsApi]
