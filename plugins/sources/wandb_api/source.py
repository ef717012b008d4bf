"""The routes /wandb/detection, /wandb/metrics, /wandb/logs and /wandb/batch."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from lens_core import (
    BadRequest,
    Context,
    Evidence,
    IngestRequest,
    Overloaded,
    Reply,
    RequestError,
    Route,
    Source,
    StepMetrics,
    Unavailable,
)
from lens_core.plugin_api.encoding import ItemDecoder, Items, Rejection, decode_json, epoch_seconds, why_refused

from .metrics import WandbMetrics
from .rows import Rejections, rows_of_logs, rows_of_metrics
from .shapes import BatchBody, DetectionBody, Log, LogsBody, Metric, MetricsBody, Sender, wrong_item

# Bodies beyond this are decoded in a thread, so that other requests are answered meanwhile.
LARGE_BODY_BYTES = 64 * 1024

NO_IDENTITY = "workload_uid, pod_uid or pod_name is required: without one of them nobody can ask for the data"

_ItemT = TypeVar("_ItemT", Metric, Log)
Convert = Callable[[Sender, Sequence[_ItemT]], tuple[list[StepMetrics], Rejections]]


class _Kind(msgspec.Struct, frozen=True):
    """The decoding of one route's body: all at once, or item by item where that stops."""

    typed: Any
    raw: Any
    items: Any
    convert: Any


_METRICS = _Kind(
    msgspec.json.Decoder(MetricsBody[Metric]),
    msgspec.json.Decoder(MetricsBody[msgspec.Raw]),
    ItemDecoder[Metric](Metric, strict=True),
    rows_of_metrics,
)
_LOGS = _Kind(
    msgspec.json.Decoder(LogsBody[Log]),
    msgspec.json.Decoder(LogsBody[msgspec.Raw]),
    ItemDecoder[Log](Log, strict=True),
    rows_of_logs,
)
_detection = msgspec.json.Decoder(DetectionBody)
_batch = msgspec.json.Decoder(BatchBody)


class _Parsed(msgspec.Struct, frozen=True):
    sender: Sender
    rows: list[StepMetrics]
    points: int
    items: int
    rejected: Rejections


class WandbApi(Source):
    """The four wandb routes of the seeds: detection, metrics, logs and batch."""

    name = "wandb_api"

    def __init__(self, settings: Any, context: Context) -> None:
        super().__init__(settings, context)
        self._counters = context.metrics.group(WandbMetrics)

    def routes(self) -> Sequence[Route]:
        """All four, under /api/v1 and /v1."""
        bodies = {
            "detection": (self._detection, DetectionBody),
            "metrics": (self._metrics, MetricsBody[Metric]),
            "logs": (self._logs, LogsBody[Log]),
            "batch": (self._submit_batch, BatchBody),
        }
        return [
            Route(paths=[f"/wandb/{kind}"], handler=self._counted(kind, handle), bodies={"application/json": body})
            for kind, (handle, body) in bodies.items()
        ]

    def _counted(
        self, kind: str, handle: Callable[[bytes], Awaitable[dict[str, Any]]]
    ) -> Callable[[IngestRequest], Awaitable[Reply]]:
        metrics = self._counters
        metrics.requests.labels(kind)
        for code in (BadRequest.code, Overloaded.code):
            metrics.request_errors.labels(kind, code)
        self.context.metrics.framework_detection_errors.inc(0, source="wandb", reason="invalid")

        async def handler(request: IngestRequest) -> Reply:
            started = time.perf_counter()
            metrics.requests.labels(kind).inc()
            try:
                return Reply(body=await handle(request.body))
            except RequestError as error:
                metrics.request_errors.labels(kind, error.code).inc()
                raise
            finally:
                metrics.request_duration.labels(kind).observe(time.perf_counter() - started)

        handler.__doc__ = handle.__doc__
        return handler

    async def _metrics(self, body: bytes) -> dict[str, Any]:
        """Points of metrics, as the upstream exporter sends them; those of one step become one row."""
        self.context.logger.debug("[WandB Metrics API] Received request")
        parsed = await self._submit_rows(body, _METRICS)
        self._counters.metrics_points.inc(parsed.points)
        return _result_json(parsed)

    async def _logs(self, body: bytes) -> dict[str, Any]:
        """Receive the values of `wandb.log`, one row for each entry."""
        self.context.logger.debug("[WandB Logs API] Received request")
        parsed = await self._submit_rows(body, _LOGS)
        self._counters.logs_points.inc(parsed.points)
        # Stored points are not counted by route: their share is that of all received points.
        self._counters.metrics_points.inc(parsed.points)
        return _result_json(parsed)

    async def _submit_rows(self, body: bytes, kind: _Kind) -> _Parsed:
        """Decode a body and hand its rows in; returns when they are safe."""
        large = len(body) > LARGE_BODY_BYTES
        parsed = await asyncio.to_thread(_parse, body, kind) if large else _parse(body, kind)
        if parsed.items:
            self.context.logger.debug("[WandB Metrics API] Processing metrics for %d workload(s)", 1)
        rejected = Counter("invalid" for _ in parsed.rejected)
        await self.gate.submit(parsed.rows, received=parsed.items, rejected=rejected)
        return parsed

    async def _detection(self, body: bytes) -> dict[str, Any]:
        """Evidence of which framework runs; the answer is what it says alone."""
        self.context.logger.debug("[WandB Detection API] Received request")
        try:
            detection = await _decoded(body, _detection)
        except msgspec.ValidationError as error:
            self.context.metrics.framework_detection_errors.inc(source="wandb", reason="invalid")
            raise BadRequest(f"the detection could not be read: {error}") from None
        origin = detection.origin()
        if not origin.is_known:
            await self.gate.submit([], received=1, rejected={"no_identity": 1})
            raise BadRequest(NO_IDENTITY)
        moment = await self._event_time(detection.timestamp)
        evidence = Evidence(
            origin=origin,
            source="wandb",
            facts={**detection.evidence, "hints": detection.hints},
            run_id=_run_id(detection),
            event_time=moment or time.time(),
        )
        if reason := why_refused(evidence):
            self.context.metrics.framework_detection_errors.inc(source="wandb", reason="invalid")
            await self.gate.submit([], received=1, rejected={"invalid": 1})
            raise BadRequest(f"the detection cannot be kept: {reason}")
        await self.gate.submit([evidence])
        pod = self.context.directory.find_pod(origin)
        known = [workload.uid for workload in pod.workloads] if pod else []
        uids = [detection.workload_uid] if detection.workload_uid else known
        verdict = self.judge(evidence)
        self.context.logger.debug("[WandB Detection API] framework=%s method=%s", verdict.framework, verdict.method)
        return {
            "success": True,
            "workload_uids": uids,
            "framework": verdict.framework or None,
            "confidence": verdict.confidence,
        }

    async def _event_time(self, timestamp: float | None) -> float | None:
        try:
            return epoch_seconds(timestamp)
        except ValueError as error:
            await self.gate.submit([], received=1, rejected={"invalid": 1})
            raise BadRequest(str(error)) from None

    async def _submit_batch(self, body: bytes) -> dict[str, Any]:
        """The other three in one body, one result for each part."""
        try:
            batch = await _decoded(body, _batch)
        except msgspec.ValidationError as error:
            raise BadRequest(f"the batch could not be read: {error}") from None
        handlers = {"detection": self._detection, "metrics": self._metrics, "logs": self._logs}
        results: dict[str, Any] = {}
        for name, handler in handlers.items():
            part = bytes(getattr(batch, name))
            if part not in (b"", b"null"):
                results[name] = await _one_part(handler, part)
        return {"success": all(result["success"] for result in results.values()), "results": results}


async def _decoded(body: bytes, decoder: msgspec.json.Decoder[Any]) -> Any:
    """The body, read in a thread if it is large. Raises as `decode_json` does."""
    if len(body) > LARGE_BODY_BYTES:
        return await asyncio.to_thread(decode_json, body, decoder)
    return decode_json(body, decoder)


async def _one_part(handler: Callable[[bytes], Awaitable[dict[str, Any]]], body: bytes) -> dict[str, Any]:
    """The result of one part of a batch; what cannot be stored now refuses the whole, so that it is sent again."""
    try:
        return await handler(body)
    except Unavailable:
        raise
    except RequestError as error:
        return {"success": False, "code": error.code, "message": error.message}


def _parse(body: bytes, kind: _Kind) -> _Parsed:
    """Decode a body and make rows of it. Raises BadRequest when nothing of it can be used."""
    sender, items, rejected, count = _decode(body, kind)
    if not count:
        return _Parsed(sender, [], 0, 0, [])
    if not sender.origin().is_known:
        raise BadRequest(NO_IDENTITY)
    places = _places(count, rejected)
    try:
        rows, wrong = kind.convert(sender, items)
    except ValueError as error:  # the time of the body
        raise BadRequest(str(error)) from None
    rejected = sorted([*rejected, *((places[index], reason) for index, reason in wrong)])
    return _Parsed(sender, rows, sum(len(row.values) for row in rows), count, rejected)


def _decode(body: bytes, kind: _Kind) -> tuple[Sender, list[Any], Rejections, int]:
    try:
        typed = decode_json(body, kind.typed)
    except msgspec.ValidationError:
        return _decode_one_by_one(body, kind)
    return typed, typed.items, [], len(typed.items)


def _decode_one_by_one(body: bytes, kind: _Kind) -> tuple[Sender, list[Any], Rejections, int]:
    """Decode a body in which something is of a wrong type, so that a wrong item loses no other."""
    try:
        raw = decode_json(body, kind.raw)
    except msgspec.ValidationError as error:
        raise BadRequest(f"the body could not be read: {error}") from None
    decoded: Items[Any] = kind.items.decode_each(raw.items)
    rejected = [(index, wrong_item(reason)) for index, reason in decoded.rejected]
    return raw, decoded.good, rejected, len(raw.items)


def _places(count: int, rejected: Rejections) -> Sequence[int]:
    """For every item that was decoded, its place in the body."""
    if not rejected:
        return range(count)
    wrong = {index for index, _ in rejected}
    return [index for index in range(count) if index not in wrong]


def _result_json(parsed: _Parsed) -> dict[str, Any]:
    rejected = [Rejection(index, reason) for index, reason in parsed.rejected]
    return {"success": True, "accepted": parsed.items - len(rejected), "rejected": rejected}


def _run_id(detection: DetectionBody) -> str:
    wandb = detection.evidence.get("wandb")
    run_id = detection.run_id or (wandb.get("id") if isinstance(wandb, Mapping) else "")
    return run_id if isinstance(run_id, str) else ""
