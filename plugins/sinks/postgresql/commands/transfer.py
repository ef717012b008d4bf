"""Reads and writes the files of `lens db export`, and stores imported records through the sink, as a spool would.

A file begins with a line that says what it is, then has one record per line as JSON; a name in .gz is compressed.
"""

from __future__ import annotations

import asyncio
import gzip
import math
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any

import msgspec

from lens_core import (
    Answer,
    AnyRecord,
    Batch,
    Delivered,
    Event,
    Evidence,
    LensError,
    Position,
    Record,
    Rejected,
    Retry,
    StepMetrics,
    Store,
)
from lens_core.plugin_api.encoding import PRODUCER
from lens_core.plugin_api.urls import redact

from .histories import history_of

FORMAT = 1
_decode = msgspec.json.Decoder(AnyRecord, strict=False).decode


def open_file(path: Path, mode: str) -> IO[bytes]:
    """The file, uncompressed on the way where its name ends in .gz. Raises LensError."""
    try:
        if path.suffix == ".gz":
            return gzip.open(path, mode)  # type: ignore[return-value]
        return path.open(mode)
    except OSError as error:
        raise LensError(f"{path} cannot be opened: {error.strerror}") from None


def header() -> bytes:
    """The first line."""
    return msgspec.json.encode({"lens_export": FORMAT, "producer": PRODUCER}) + b"\n"


def lines(records: Sequence[Record]) -> bytes:
    """Records as lines; what JSON has no number for is a text."""
    return b"".join(msgspec.json.encode(_with_texts(record)) + b"\n" for record in records)


def _with_texts(record: Record) -> Any:
    if not isinstance(record, StepMetrics) or all(map(math.isfinite, record.values.values())):
        return record
    described = msgspec.to_builtins(record)
    described["values"] = {n: v if math.isfinite(v) else str(v) for n, v in record.values.items()}
    return described


def read_records(path: Path) -> Iterator[Record]:
    """The records of a file. Raises LensError that names the line which cannot be read."""
    with open_file(path, "rb") as file:
        first = file.readline()
        try:
            known = msgspec.json.decode(first or b"{}")
        except msgspec.DecodeError:
            known = {}
        if not isinstance(known, dict) or "lens_export" not in known:
            raise LensError(f"{path} was not made by `lens db export`")
        if known["lens_export"] != FORMAT:
            raise LensError(f"{path} is of format {known['lens_export']}; this Lens reads format {FORMAT}")
        for number, line in enumerate(file, 2):
            try:
                yield _decode(line)
            except msgspec.DecodeError as error:
                raise LensError(f"{path}, line {number}: {error}") from None


_BATCH = 2_000
_PATIENCE_SECONDS = 30.0
_SHOWN_REASONS = 10


class ImportCounts(msgspec.Struct):
    """Counts of stored and rejected records; `reasons` are those of the first few that could not be stored."""

    records: int = 0
    rejected: int = 0
    reasons: list[str] = []


async def records_of(kind: str, where: str) -> AsyncIterator[list[Record]]:
    """The records of a place, in pieces. Raises LensError."""
    if kind == "wandb-offline":
        async for piece in _collected(Path(where)):
            yield piece
        return
    records = _reader(kind, where)
    while piece := await asyncio.to_thread(_next_records, records):
        yield piece


def _reader(kind: str, where: str) -> Iterator[Record]:
    if kind == "primus-lens":
        from .primus_lens import read_primus_lens

        return read_primus_lens(where)
    if kind == "mlflow":
        from .mlflow import read_mlflow

        return read_mlflow(where)

    return read_records(Path(where))


def _next_records(records: Iterator[Record]) -> list[Record]:
    return list(islice(records, _BATCH))


async def store_records(
    store: Store, pieces: AsyncIterator[list[Record]], say: Callable[[ImportCounts], None]
) -> ImportCounts:
    """Store records batch by batch. Raises LensError when the store does not come back."""
    counts = ImportCounts()
    hand = _Hand(store)
    async for piece in pieces:
        counts.records += len(piece)
        for reason, count in (await hand.over(piece)).items():
            counts.rejected += count
            if len(counts.reasons) < _SHOWN_REASONS and reason not in counts.reasons:
                counts.reasons.append(reason)
        say(counts)
    return counts


def without_secrets(record: Record) -> Record:
    """The record with its secrets hidden, as the ingest gate, which an import does not pass, hides them."""
    if isinstance(record, Evidence):
        return msgspec.structs.replace(record, facts=redact(record.facts))
    if isinstance(record, Event):
        return msgspec.structs.replace(record, details=redact(record.details))
    return record


class _Hand:
    """Hands records to a store as a spool does. What makes importing again harmless are the keys of the records."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._spool_id = f"import-{uuid.uuid4()}"
        self._last = Position(0, 0)

    async def over(self, records: Sequence[Record]) -> Counter[str]:
        """Store records; what could not be, by its reason. A batch at fault is halved until the record is found."""
        wanted = [without_secrets(record) for record in records if isinstance(record, tuple(self._store.accepts))]
        if not wanted:
            return Counter()
        answer = await self._send_records(wanted)
        if isinstance(answer, Delivered):
            return Counter()
        if isinstance(answer, Rejected):
            return Counter(answer.items.values())
        if isinstance(answer, Retry):
            raise LensError(f"the store does not take the records: {answer.reason}")
        if len(wanted) == 1:
            return Counter([answer.reason])
        middle = len(wanted) // 2
        return await self.over(wanted[:middle]) + await self.over(wanted[middle:])

    async def _send_records(self, records: Sequence[Record]) -> Answer:
        start, self._last = self._last, Position(self._last.batch + 1, len(records))
        batch = Batch(
            records=records,
            start=start,
            end=self._last,
            spool_id=self._spool_id,
            pipeline="import",
            sink=self._store.context.name,
        )
        ends = time.monotonic() + _PATIENCE_SECONDS
        while True:
            answer = await self._store.send(batch)
            if not isinstance(answer, Retry) or time.monotonic() > ends:
                return answer
            await asyncio.sleep(0.2 if answer.after_seconds is None else answer.after_seconds)


async def _collected(folder: Path) -> AsyncIterator[list[Record]]:
    """Offline runs of wandb, read by the collector that does so in a daemon, from their beginning."""
    with tempfile.TemporaryDirectory(prefix="lens-import-") as state:
        async for piece in history_of("wandb", str(folder), Path(state)):
            yield piece
