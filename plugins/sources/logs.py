"""POST /logs: log lines from Fluent Bit, rsyslog, syslog-ng or anything that posts JSON."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from lens_core import BadRequest, IngestRequest, Origin, Reply, Route, Source, hookimpl
from lens_core.plugin_api.encoding import ItemDecoder, Rejection, decode_json, quote_bare_specials

from .log_batches import LineBatch
from .log_entries import NO_IDENTITY, Entry, EntryConverter
from .log_latency import LogLatency

# Bodies beyond this are read in a thread, so that other requests are answered meanwhile.
LARGE_BODY_BYTES = 64 * 1024
_MAX_REASONS = 100
_HOW_TO_IDENTIFY = (
    "no entry says whose it is: send kubernetes.pod_name, pod_name or workload_uid with each,"
    " or ?workload_uid= (or pod_name=) with the request"
)

_entries = msgspec.json.Decoder(list[Entry], strict=False)
_entry_lines = msgspec.json.Decoder(Entry, strict=False)
_raws = msgspec.json.Decoder(list[msgspec.Raw])
_each = ItemDecoder[Entry](Entry, strict=False)


class LogsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the logs source."""

    max_line_bytes: Annotated[int, Meta(ge=1024, description="longer lines are cut")] = 256 * 1024
    ignore_pods: Annotated[tuple[str, ...], Meta(description="pods whose lines are left out; * and ? match")] = (
        "*primus-lens-telemetry-processor*",
    )


class LogsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The query of a request applies to all its lines, for senders that cannot put it into each."""

    workload_uid: Annotated[str, Meta(description="the workload that all lines are of")] = ""
    pod_name: Annotated[str, Meta(description="the pod that all lines are of")] = ""
    pod_uid: Annotated[str, Meta(description="the same by its uid")] = ""
    namespace: Annotated[str, Meta(description="the pod's namespace")] = ""
    node: Annotated[str, Meta(description="where the lines were written")] = ""
    container: Annotated[str, Meta(description="the container of the pod")] = ""
    rank: Annotated[int | None, Meta(description="the rank that wrote the lines")] = None


_BODIES = {"application/json": list[Entry], "application/x-ndjson": Entry, "text/plain": str}


class Logs(Source):
    """Log lines over HTTP: an array or one object a line, as Fluent Bit, rsyslog and syslog-ng post them."""

    name = "logs"
    also_called = ("fluent", "fluentbit", "fluent_bit", "forward", "http_server", "syslog", "loki")
    Settings = LogsSettings

    def routes(self) -> Sequence[Route]:
        """One route."""
        return [Route(paths=["/logs"], handler=self._receive, at_root=True, query=LogsQuery, bodies=_BODIES)]

    async def _receive(self, request: IngestRequest) -> Reply:
        now = time.time()
        if len(request.body) > LARGE_BODY_BYTES:
            batch, items = await asyncio.to_thread(self._parse, request, now)
        else:
            batch, items = self._parse(request, now)
        counts = Counter(reason if reason == NO_IDENTITY else "invalid" for _, reason in batch.rejected)
        await self.gate.submit(batch.lines, received=items, filtered=batch.filtered, rejected=counts)
        for node, ages in batch.latencies.items():
            self.context.metrics.group(LogLatency).observe(node, ages)
        if items and len(batch.rejected) == items:
            index, reason = min(batch.rejected)
            raise BadRequest(_HOW_TO_IDENTIFY if reason == NO_IDENTITY else f"entry {index}: {reason}")
        answer = [Rejection(index, reason) for index, reason in sorted(batch.rejected)[:_MAX_REASONS]]
        return Reply(body={"success": True, "accepted": items - len(batch.rejected), "rejected": answer})

    def _parse(self, request: IngestRequest, now: float) -> tuple[LineBatch, int]:
        """The lines of a request, and how many entries it has."""
        converter = EntryConverter(_base(request.query), self.settings.max_line_bytes, self.context.directory.complete)
        entries, rejected = decode_entries(request.body, _is_text(request.headers))
        batch = LineBatch(now, request.client, self.settings.ignore_pods)
        batch.rejected += rejected
        items = len(entries) + len(rejected)
        wrong = {index for index, _ in rejected}
        places: Iterable[int] = range(len(entries))
        if wrong:
            places = (index for index in range(items) if index not in wrong)
        batch.append_converted(zip(places, map(converter.convert, _consumed(entries)), strict=True))
        return batch, items


def _consumed(entries: list[Entry]) -> Iterator[Entry]:
    """Yield the entries and forget each: those of a large body are not held beside all of its lines."""
    entries.reverse()
    while entries:
        yield entries.pop()


def decode_entries(body: bytes, is_text: bool = False) -> tuple[list[Entry], list[tuple[int, str]]]:
    """The entries of a body, and those that could not be read: (index, reason).

    An array, one object a line, a single object, or plain text where the content type says so. Raises BadRequest
    when there is nothing to read at all.
    """
    body = body.strip()
    if is_text:
        return [Entry(message=line) for line in body.decode("utf-8", "replace").split("\n") if line.strip()], []
    if not body:
        return [], []
    try:
        return (_entries.decode(body) if body[:1] == b"[" else _entry_lines.decode_lines(body)), []
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _decode_singly(body)
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None


def _decode_singly(body: bytes) -> tuple[list[Entry], list[tuple[int, str]]]:
    text = body.decode("utf-8", "replace").encode()
    if text[:1] == b"[":
        raws = decode_json(text, _raws)
        body_of_items = _each.decode_each(raws)
    else:
        lines = [quote_bare_specials(line) for line in text.split(b"\n") if line.strip()]
        body_of_items = _each.decode_each([msgspec.Raw(line) for line in lines])
        if len(lines) == 1 and body_of_items.rejected:
            raise BadRequest(f"the body is not JSON: {body_of_items.rejected[0][1]}")
    return body_of_items.good, body_of_items.rejected


def _is_text(headers: Mapping[str, str]) -> bool:
    return headers.get("content-type", "").split(";")[0].strip().lower() == "text/plain"


def _base(query: Mapping[str, str]) -> Origin:
    rank = query.get("rank", "")
    if rank and not (rank.isascii() and rank.isdigit() and len(rank) <= 10 and int(rank) < 2**31):
        raise BadRequest(f"rank must be a whole number below 2**31, not {rank[:50]!r}")
    return Origin(
        workload_uid=query.get("workload_uid", ""),
        pod_name=query.get("pod_name", ""),
        pod_uid=query.get("pod_uid", ""),
        namespace=query.get("namespace", ""),
        node=query.get("node", ""),
        container=query.get("container", ""),
        rank=int(rank) if rank.isdigit() else None,
    )


@hookimpl
def lens_sources() -> Sequence[type[Source]]:
    """Announce the source."""
    return [Logs]
