"""The source `remote_write`: its routes, and the way from a request to one record."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from typing import Any

import cramjam

from lens_core import Context, Event, IngestRequest, Reply, RequestError, Route, SeriesBatch, Source
from lens_core.plugin_api.protobuf import WireError, delimited

from .device_counters import DeviceCounters, cut_counters
from .drops import Drops, RemoteWriteMetrics
from .enriching import Enricher
from .forms import choose_form
from .forward import Output
from .generic_parser import ForwardedBatch, GenericParser
from .request import MEDIA_TYPE, Cut, body_of, damaged, split_request, version_of
from .settings import RemoteWriteSettings
from .version2 import Translator, as_version1

# Others get a turn after so many series.
SERIES_AT_A_TIME = 2000
# The label sets that are known are forgotten so often, and with them those that no longer come.
CLEAR_SECONDS = 600.0
# Buffers for requests of ten thousand series and more are made anew each time.
MAX_KEPT_BYTES = 4 * 1024 * 1024
METHODS = ("POST", "PUT", "PATCH", "GET", "DELETE")
# Reactions of senders to a status: 413 blocks vmagent, 429 makes Prometheus drop data.
WIRE_ERRORS = {413: 400, 429: 503}
_WRITTEN = "X-Prometheus-Remote-Write-{}-Written"


class RemoteWrite(Source):
    """Prometheus remote write 1.0 and 2.0: every series gets its pod and its workload on the way through."""

    name = "remote_write"
    Settings = RemoteWriteSettings
    brings = (SeriesBatch,)
    rejects = ("bad_histogram", "invalid_utf8", "empty_label_name", "duplicate_label", "no_metric_name")

    settings: RemoteWriteSettings

    def __init__(self, settings: Any, context: Context) -> None:
        super().__init__(settings, context)
        self._metrics = context.metrics.group(RemoteWriteMetrics)
        self._attached, self._unattached = map(self._metrics.series.labels, ("attached", "unattached"))
        self.drops = Drops(self.settings.recent_drops, self._metrics)
        self.form, self._hot_path = choose_form()
        self._enricher = enricher = Enricher(self.settings, context.directory, self._hot_path)
        self._table = self._hot_path.LabelSets(enricher, self.settings.cached_series, CLEAR_SECONDS, time.monotonic)
        self._parser = GenericParser(enricher, self.drops)
        self._counters = DeviceCounters(self.settings.node_labels) if self.settings.device_errors else None
        self._device_errors: list[Event] = []
        self._outputs: list[Output] = []
        self._block = bytearray()

    def routes(self) -> Sequence[Route]:
        """The path of the seeds in every method, Prometheus' own path, and the recent drops."""
        path = self.settings.path.rstrip("/")
        common: dict[str, Any] = {
            "handler": self._receive_write,
            "encodings": ("snappy", "zstd", "identity"),
            "max_body_bytes": self.settings.max_body_bytes,
            "wire_errors": WIRE_ERRORS,
            "refusal": _refuse,
            "bodies": {MEDIA_TYPE: bytes},
        }
        paths = [path or "/prometheus", f"{path}/api/v1/write"]
        anything = Route(paths=paths, methods=METHODS, at_root=True, **common)
        write = Route(paths=["/write"], **common)
        drops = Route(paths=["/remote-write/drops"], handler=self._show_drops, methods=("GET",), role="read")
        return [anything, write, drops]

    async def _show_drops(self, request: IngestRequest) -> Reply:
        """Recent drops with their reasons, and the form of the hot path: compiled or interpreted."""
        return Reply(body={**self.drops.report(), "form": self.form})

    async def _receive_write(self, request: IngestRequest) -> Reply:
        """Prometheus remote write 1.0 and 2.0; each series gets its pod and its workload."""
        version = "?"
        try:
            version = version_of(request.headers)
            body = body_of(request, self.settings.max_body_bytes)
            reply = _make_reply(version, await self._receive(body, version))
        except RequestError as error:
            reply = _refusal(error, version)
        self._metrics.requests.labels(version, str(reply.status)).inc()
        return reply

    async def _receive(self, body: bytes, version: str) -> ForwardedBatch:
        """Forward a message; returns when it is safe. Raises RequestError."""
        batch = ForwardedBatch(self._outputs.pop() if self._outputs else self._hot_path.Output())
        metadata: list[bytes] = []
        try:
            place = await self._forward(body, batch) if version == "1.0" else 0
            if place < len(body):
                # Metadata, everything of 2.0, and what only the library can tell apart from damage.
                message = split_request(body[place:], version)
                metadata = await self._forward_parts(message, version, batch)
            for entry in metadata:
                batch.append_series(delimited(3, entry))
            counters = []
            if self._counters is not None:
                counters = cut_counters(batch.view(), self._enricher.counter_words)
            block = self._compress(batch.view())
        except WireError as error:
            raise damaged(error) from None
        finally:
            self._reuse(batch.output)
        await self._submit(batch, block, batch.received + len(metadata))
        if self._counters is not None and counters:
            self._device_errors += self._counters.read_events(counters)
        if self._device_errors:
            await self._submit_device_errors()
        self._count_samples(batch)
        return batch

    async def _submit_device_errors(self) -> None:
        """Submit errors of devices; those that are refused go with a later request, as their series show them once."""
        events, self._device_errors = self._device_errors, []
        try:
            await self.gate.submit(events)
        except BaseException:
            self._device_errors = [*events, *self._device_errors]
            raise

    def _reuse(self, output: Output) -> None:
        """Keep a buffer for the next request: memory that was just written is several times as fast as other memory."""
        if not self._outputs and len(output.buffer) <= MAX_KEPT_BYTES:
            output.size = 0
            self._outputs.append(output)

    def _compress(self, message: memoryview) -> bytes:
        """A snappy block: compressed once, for the spool and for the store, it is a tenth of the size."""
        most = cramjam.snappy.compress_raw_max_len(message)
        block = self._block if most <= len(self._block) else bytearray(most)
        if most <= MAX_KEPT_BYTES:
            self._block = block
        return bytes(memoryview(block)[: cramjam.snappy.compress_raw_into(message, block)])

    async def _forward_parts(self, message: Cut, version: str, batch: ForwardedBatch) -> list[bytes]:
        """Forward the series of a message that was cut; its metadata as those of 1.0. Raises WireError."""
        translator = None
        if version == "2.0" and message.series:
            translator = Translator(message.symbols, self.settings.max_body_bytes)
        for first in range(0, len(message.series), SERIES_AT_A_TIME):
            series = message.series[first : first + SERIES_AT_A_TIME]
            await self._forward(as_version1(series, translator), batch)
            await asyncio.sleep(0)
        return message.metadata if translator is None else translator.metadata

    async def _forward(self, body: bytes, batch: ForwardedBatch) -> int:
        """Forward the series that a message begins with; where they end. Raises WireError."""
        place = 0
        while place < len(body):
            self._table.begin()
            start = place
            place = self._hot_path.forward(body, place, SERIES_AT_A_TIME, self._table, self._parser, batch)
            if place == start:
                break
            if place < len(body):
                await asyncio.sleep(0)
        return place

    async def _submit(self, batch: ForwardedBatch, block: bytes, received: int) -> None:
        """Put what is forwarded into the spool, as one record. Raises RequestError."""
        record = SeriesBatch(
            body=block,
            compression="snappy",
            series=batch.series,
            samples=batch.samples,
            histograms=batch.histograms,
            exemplars=batch.exemplars,
        )
        refused = sum(batch.refused.values())
        filtered = batch.received - batch.series - refused
        records = [record] if received > filtered + refused else []
        if received:
            await self.gate.submit(records, received=received, filtered=filtered, rejected=batch.refused)

    def _count_samples(self, batch: ForwardedBatch) -> None:
        metrics = self._metrics
        metrics.samples.inc(batch.samples + batch.histograms)
        self._attached.inc(batch.series - batch.unattached)
        self._unattached.inc(batch.unattached)
        metrics.known.inc(batch.known)
        metrics.cached.set(len(self._table))


def _make_reply(version: str, batch: ForwardedBatch) -> Reply:
    """204, or 400 when some series were refused although the others are safe (a partial write)."""
    headers = _written(version, batch.samples, batch.histograms, batch.exemplars)
    if not batch.refused:
        return Reply(status=204, headers=headers)
    count = sum(batch.refused.values())
    message = f"{count} series refused, the others were taken: {'; '.join(sorted(set(batch.messages)))}"
    return Reply(body={"code": "RequestParameterInvalid", "message": message}, status=400, headers=headers)


def _refuse(error: RequestError, request: IngestRequest) -> Reply:
    """Answer what the daemon refuses by itself as what is refused here: 2.0 wants to hear that nothing was written."""
    try:
        version = version_of(request.headers)
    except RequestError:
        version = "1.0"
    return _refusal(error, version)


def _refusal(error: RequestError, version: str) -> Reply:
    headers = _written(version, 0, 0, 0)
    if error.retry_after_seconds is not None:
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_seconds)))
    status = WIRE_ERRORS.get(error.status, error.status)
    return Reply(body={"code": error.code, "message": error.message}, status=status, headers=headers)


def _written(version: str, samples: int, histograms: int, exemplars: int) -> dict[str, str]:
    """The headers in which 2.0 wants to be told what was written."""
    counts = {"Samples": samples, "Histograms": histograms, "Exemplars": exemplars}
    return {_WRITTEN.format(what): str(count) for what, count in counts.items()} if version == "2.0" else {}
