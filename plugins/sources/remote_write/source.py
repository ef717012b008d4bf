"""The remote_write source: its routes, and from a request to one record."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import cramjam

from lens_core import Context, IngestRequest, Reply, Route, SeriesBatch, Source
from lens_core.base.errors import RequestError
from lens_core.base.protobuf import WireError, delimited

from .drops import Drops
from .enriching import Enricher
from .labels import RefusedSeries
from .passed import Passed
from .passing import Passage
from .request import MEDIA_TYPE, Cut, body_of, cut, damaged, version_of
from .settings import RemoteWriteSettings
from .version2 import Translator

if TYPE_CHECKING:
    from .plates.press import Press

# So many series are worked on before others get a turn.
SERIES_AT_A_TIME = 2000
# In smaller messages, most runs of series are cut off somewhere, so that they are quicker one by one.
_LARGE_BYTES = 128 * 1024
METHODS = ("POST", "PUT", "PATCH", "GET", "DELETE")
# What this protocol's senders make of a status: 413 wedges vmagent, 429 makes Prometheus drop.
WIRE_ERRORS = {413: 400, 429: 503}
_WRITTEN = "X-Prometheus-Remote-Write-{}-Written"


class RemoteWrite(Source):
    """Prometheus remote write 1.0 and 2.0: every series gets its pod and its workload on the way through."""

    name = "remote_write"
    Settings = RemoteWriteSettings
    brings = (SeriesBatch,)

    settings: RemoteWriteSettings

    def __init__(self, settings: Any, context: Context) -> None:
        super().__init__(settings, context)
        self.drops = Drops(self.settings.recent_drops, context.metrics)
        self._enricher = Enricher(self.settings, context.directory)
        self._passage = Passage(self._enricher, self.drops)

    def routes(self) -> Sequence[Route]:
        """The path of the seeds in every method, Prometheus' own path, and the recent drops."""
        path = self.settings.path.rstrip("/")
        limit = self.settings.max_body_bytes
        anything = Route(
            paths=[path or "/prometheus", f"{path}/api/v1/write"],
            handler=self._write,
            methods=METHODS,
            at_root=True,
            encodings=("snappy", "zstd", "identity"),
            max_body_bytes=limit,
            wire_errors=WIRE_ERRORS,
            bodies={MEDIA_TYPE: bytes},
        )
        write = Route(
            paths=["/write"],
            handler=self._write,
            encodings=("snappy", "zstd", "identity"),
            max_body_bytes=limit,
            wire_errors=WIRE_ERRORS,
            bodies={MEDIA_TYPE: bytes},
        )
        drops = Route(paths=["/remote-write/drops"], handler=self._show_drops, methods=("GET",), role="read")
        return [anything, write, drops]

    async def _show_drops(self, request: IngestRequest) -> Reply:
        """What was dropped lately, with its reason."""
        return Reply(body=self.drops.report())

    async def _write(self, request: IngestRequest) -> Reply:
        """Prometheus remote write 1.0 and 2.0; each series gets its pod and its workload."""
        version = "?"
        try:
            version = version_of(request.headers)
            body = body_of(request, self.settings.max_body_bytes)
            reply = _answer(version, await self._take(body, version))
        except RequestError as error:
            reply = _refusal(error, version)
        self.context.metrics.remote_write_requests.labels(version, str(reply.status)).inc()
        return reply

    async def _take(self, body: bytes, version: str) -> Passed:
        """Pass a message on; returns when it is safe. Raises RequestError."""
        passed = Passed()
        together = len(body) >= _LARGE_BYTES and self._press.pays()
        place = printed = 0
        try:
            if together and version == "1.0":
                place, printed = await self._print(body, passed)
            message = cut(body[place:], version)
            metadata = await self._pass(message, version, passed, together=together)
        except (WireError, RefusedSeries) as error:
            raise damaged(WireError(str(error))) from None
        series = printed + len(message.series)
        items = series + len(metadata)
        refused = sum(passed.refused.values())
        records = []
        if passed.pieces or metadata:
            passed.pieces += [delimited(3, entry) for entry in metadata]
            records.append(
                SeriesBatch(
                    # Packed once, for the spool and for the store: it is a tenth of the size.
                    body=bytes(cramjam.snappy.compress_raw(passed.joined)),
                    compression="snappy",
                    series=passed.series,
                    samples=passed.samples,
                    histograms=passed.histograms,
                    exemplars=passed.exemplars,
                )
            )
        if items:
            filtered = series - passed.series - refused
            await self.door.submit(records, received=items, filtered=filtered, rejected=passed.refused)
        self._count(passed)
        return passed

    @cached_property
    def _press(self) -> Press:
        # Numpy takes a while to load, and 20 MiB: not for daemons to which little comes.
        from .plates.press import Press

        # Copies are made of what is remembered.
        of_new = self.settings.copies == "none"
        return Press(self._enricher, self._passage, self.settings.cached_series, of_new=of_new)

    async def _print(self, body: bytes, passed: Passed) -> tuple[int, int]:
        """Pass on what a message begins with as far as it is known in whole runs; where that ends, and how many."""
        place, series = self._press.print(body, 0, passed, SERIES_AT_A_TIME)
        count = series
        while series and place < len(body):
            await asyncio.sleep(0)
            place, series = self._press.print(body, place, passed, SERIES_AT_A_TIME)
            count += series
        return place, count

    async def _pass(self, message: Cut, version: str, passed: Passed, *, together: bool) -> list[bytes]:
        """Pass the series of a message; its metadata in the form of 1.0."""
        translator = Translator(message.symbols) if version == "2.0" and message.series else None
        for first in range(0, len(message.series), SERIES_AT_A_TIME):
            if first:
                await asyncio.sleep(0)
            series = message.series[first : first + SERIES_AT_A_TIME]
            if translator is not None:
                series = [translator.series(one) for one in series]
            if together:
                self._press.take(series, passed)
            else:
                self._enricher.begin()
                self._passage.take(series, passed)
        return message.metadata if translator is None else translator.metadata

    def _count(self, passed: Passed) -> None:
        metrics = self.context.metrics
        metrics.remote_write_samples.inc(passed.samples + passed.histograms)
        metrics.remote_write_series.labels("attached").inc(passed.series - passed.unattached)
        metrics.remote_write_series.labels("unattached").inc(passed.unattached)
        metrics.remote_write_printed.inc(passed.printed)
        metrics.remote_write_cached.set(self._remembered())

    def _remembered(self) -> int:
        press = self._press.remembered if "_press" in vars(self) else 0
        return self._enricher.remembered + press


def _answer(version: str, passed: Passed) -> Reply:
    """204, or 400 when some series were refused although the others are safe (a partial write)."""
    headers = {}
    if version == "2.0":
        written = {"Samples": passed.samples, "Histograms": passed.histograms, "Exemplars": passed.exemplars}
        headers = {_WRITTEN.format(what): str(count) for what, count in written.items()}
    if not passed.refused:
        return Reply(status=204, headers=headers)
    count = sum(passed.refused.values())
    message = f"{count} series refused, the others were taken: {'; '.join(sorted(set(passed.messages)))}"
    return Reply(body={"code": "RequestParameterInvalid", "message": message}, status=400, headers=headers)


def _refusal(error: RequestError, version: str) -> Reply:
    headers = (
        {_WRITTEN.format(what): "0" for what in ("Samples", "Histograms", "Exemplars")} if version == "2.0" else {}
    )
    if error.retry_after_seconds is not None:
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_seconds)))
    status = WIRE_ERRORS.get(error.status, error.status)
    return Reply(body={"code": error.code, "message": error.message}, status=status, headers=headers)
