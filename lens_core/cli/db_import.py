"""What `lens db import` reads, and how it is stored: through the sink itself, as a spool would hand it over."""

from __future__ import annotations

import asyncio
import logging
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import msgspec

from ..base.errors import LensError
from ..base.self_metrics import SelfMetrics
from ..model.records import Record
from ..plugin_api.components import Context
from ..plugin_api.sink_answers import Answer, Batch, Delivered, Position, Rejected, Retry
from ..plugin_api.store import Store
from ..plugin_host.host import PluginHost

_BATCH = 2_000
_PATIENCE_SECONDS = 30.0
_SHOWN_REASONS = 10


class ImportCounts(msgspec.Struct):
    """What became of the records; `reasons` are those of the first few that could not be stored."""

    records: int = 0
    rejected: int = 0
    reasons: list[str] = []


async def records_of(kind: str, where: str, host: PluginHost) -> AsyncIterator[list[Record]]:
    """The records of a place, in pieces. Raises LensError."""
    if kind == "wandb-offline":
        async for piece in _collected(Path(where), host):
            yield piece
        return
    records = _reader(kind, where)
    while piece := await asyncio.to_thread(_take, records):
        yield piece


def _reader(kind: str, where: str) -> Iterator[Record]:
    if kind == "primus-lens":
        from .db_primus import read_primus_lens

        return read_primus_lens(where)
    if kind == "mlflow":
        from .db_mlflow import read_mlflow

        return read_mlflow(where)
    from .db_files import read_records

    return read_records(Path(where))


def _take(records: Iterator[Record]) -> list[Record]:
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


class _Hand:
    """Hands records to a store as a spool does. What makes importing again harmless are the keys of the records."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._spool_id = f"import-{uuid.uuid4()}"
        self._last = Position(0, 0)

    async def over(self, records: Sequence[Record]) -> Counter[str]:
        """Store records; what could not be, by its reason. A batch at fault is halved until the record is found."""
        wanted = [record for record in records if isinstance(record, tuple(self._store.accepts))]
        if not wanted:
            return Counter()
        answer = await self._send(wanted)
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

    async def _send(self, records: Sequence[Record]) -> Answer:
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


async def _collected(folder: Path, host: PluginHost) -> AsyncIterator[list[Record]]:
    """Offline runs of wandb, read by the collector that does so in a daemon, from their beginning."""
    if not folder.is_dir():
        raise LensError(f"{folder} is no folder")
    kind = host.collector("wandb_offline")
    with tempfile.TemporaryDirectory(prefix="lens-import-") as state:
        context = Context(
            name="import", logger=logging.getLogger("lens.import"), data_dir=Path(state), metrics=SelfMetrics()
        )
        collector = kind(msgspec.convert({"paths": [str(folder)]}, kind.Settings), context)
        await collector.start()
        try:
            while True:
                records = list(await collector.collect())
                yield records
                await collector.stored()
                if not collector.more:
                    return
        finally:
            await collector.stop()
