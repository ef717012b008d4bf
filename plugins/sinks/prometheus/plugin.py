"""The prometheus sink: remote write out, and /federate."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from lens_core import (
    Answer,
    Batch,
    BatchLimits,
    Context,
    Delivered,
    Event,
    IngestRequest,
    Measurement,
    Position,
    Reply,
    Retry,
    Route,
    SeriesBatch,
    Sink,
    StepMetrics,
    load_state,
    save_state,
)
from lens_core.plugin_api.protobuf import WireError

from .delivering import Outcome, Shard, TryAgain
from .latest import TEXT_FORMAT, LatestValues, PrometheusMetrics, Snapshot, exposition, merge_snapshots
from .messages import Outgoing, Packed, divide, pack_message, packed_record
from .posting import address_of
from .refusals import OWN, rejected
from .selectors import Selector, any_of
from .settings import FederateQuery, PrometheusSettings
from .training import Point, TrainingSeries, time_series

# So old the values that a daemon shows after a crash may be.
KEEP_SECONDS = 30.0


class _Task(NamedTuple):
    """One request for one shard, and the record that it is of."""

    record: int
    request: Packed


class _Progress:
    """The settled part of a batch, so that a retry sends nothing twice: stores refuse old samples."""

    def __init__(self, start: Position, end: Position) -> None:
        self.place = (start, end)
        self.settled: dict[tuple[int, int], Outcome] = {}
        self.broken: dict[int, str] = {}


def _make_text(points: Sequence[Point], others: Sequence[bytes], selected: Selector | None) -> bytes:
    """The exposition of these points and of the snapshots of other daemons."""
    snapshots = [msgspec.msgpack.decode(body, type=Snapshot) for body in others]
    return exposition(merge_snapshots(points, snapshots) if snapshots else points, selected)


class Prometheus(Sink):
    """Write series to Prometheus, VictoriaMetrics, Mimir …, and show the latest training values at /federate."""

    name = "prometheus"
    Settings = PrometheusSettings
    accepts = (SeriesBatch, StepMetrics, Event, Measurement)

    settings: PrometheusSettings

    def __init__(self, settings: Any, context: Context) -> None:
        super().__init__(settings, context)
        self._training = TrainingSeries(context.directory)
        self._metrics = context.metrics.group(PrometheusMetrics)
        self._latest = LatestValues(
            self.settings.federate_max_series, self.settings.federate_expire_seconds, self._metrics
        )
        for status in ("400", "413", "422"):
            self._metrics.refused.labels(context.name, f"HTTP {status}")
        self._snapshot_path = context.data_dir / "latest_values.json"
        self._stopping = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None
        self._progress: dict[str, _Progress] = {}
        self._shards: list[Shard] = []
        if self.settings.url is not None:
            address = address_of(self.settings.url)
            self._shards = [Shard(self.settings, address) for _ in range(self.settings.shards)]

    async def start(self) -> None:
        """Take up the latest values that were held before; keep them from time to time from now on."""
        if not self.settings.federate:
            return
        self.context.siblings.answer_siblings(self._answer_latest)
        try:
            snapshot = await asyncio.to_thread(load_state, self._snapshot_path, Snapshot)
            self._latest.restore_snapshot(snapshot, time.time())
        except (OSError, ValueError) as error:
            self.context.logger.warning("Could not load the latest values; starting without them. error=%s", error)
        self._keeping = asyncio.create_task(self._save_repeatedly())

    async def stop(self) -> None:
        """Close the connections; keep the latest values for the next start, which need not wait for new ones then."""
        for shard in self._shards:
            shard.close()
        self._stopping.set()
        if self._keeping is not None:
            await self._keeping
        if self.settings.federate and (self._latest.held_points() or self._snapshot_path.exists()):
            await asyncio.to_thread(self._save_snapshot)

    async def _save_repeatedly(self) -> None:
        """Keep the latest values until it stops, for a start after a crash."""
        while not self._stopping.is_set():
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), KEEP_SECONDS)
            if self._latest.renewed and not self._stopping.is_set():
                try:
                    await asyncio.to_thread(self._save_snapshot)
                except OSError as error:
                    self.context.logger.warning("Could not save the latest values. error=%s", error)

    def _save_snapshot(self) -> None:
        self._latest.renewed = False
        save_state(self._snapshot_path, self._latest.snapshot(time.time()))

    async def check(self) -> None:
        """Write nothing: an empty request."""
        if self._shards:
            try:
                outcome = await self._shards[0].deliver(pack_message(Outgoing([])), 1)
            except TryAgain as error:
                raise ConnectionError(str(error)) from None
            finally:
                self._shards[0].close()
            if outcome.refused:
                raise ConnectionError(outcome.example)

    def limits(self) -> BatchLimits:
        """Little waiting: the sender has waited already."""
        return BatchLimits(max_records=500, max_wait_seconds=0.05)

    def routes(self) -> Sequence[Route]:
        """GET /federate, if it is on."""
        federate = Route(
            paths=["/federate"],
            handler=self._federate,
            methods=("GET",),
            at_root=True,
            role="read",
            query=FederateQuery,
        )
        return [federate] if self.settings.federate else []

    async def _federate(self, request: IngestRequest) -> Reply:
        """The latest training values for a scraper; `match[]` chooses."""
        wanted = [value for name, value in request.parameters if name == "match[]"]
        selected = any_of(wanted) if wanted else None
        answers = await self.context.siblings.ask_siblings()
        # In a thread, because fifty thousand lines take a while.
        text = await asyncio.to_thread(_make_text, self._latest.held_points(), [*answers.found.values()], selected)
        if answers.silent:
            text += f"# Series are missing of daemons that do not answer: {', '.join(answers.silent)}\n".encode()
        return Reply(body=text, headers={"Content-Type": TEXT_FORMAT})

    async def _answer_latest(self, question: bytes) -> bytes:
        """The latest values that are held here, for the /federate of another daemon of the cluster."""
        self._latest.held_points()  # without those that are too old
        return await asyncio.to_thread(lambda: msgspec.msgpack.encode(self._latest.snapshot(time.time())))

    async def send(self, batch: Batch) -> Answer:
        """Deliver each record as a request of its own, the training rows as one; see `Shard.deliver`."""
        progress = self._progress_of(batch)
        points = [*self._training.make_points(batch.records)]
        if self.settings.federate:
            self._latest.update_points(points)
        if not self._shards:
            return Delivered(filtered=sum(isinstance(record, SeriesBatch) for record in batch.records))
        own = Outgoing(time_series(points)) if points and self.settings.training else None
        queues = self._queues(batch, own, progress)
        outcomes = await asyncio.gather(
            *(self._deliver_queue(number, queue, progress, batch.attempt) for number, queue in enumerate(queues))
        )
        again = [outcome for outcome in outcomes if outcome is not None]
        if again:
            return Retry(str(again[0]), max((error.after_seconds or 0.0 for error in again), default=0.0) or None)
        del self._progress[batch.pipeline]
        return self._make_answer(batch, progress)

    def _progress_of(self, batch: Batch) -> _Progress:
        known = self._progress.get(batch.pipeline)
        if known is None or known.place != (batch.start, batch.end):
            known = self._progress[batch.pipeline] = _Progress(batch.start, batch.end)
        return known

    def _queues(self, batch: Batch, own: Outgoing | None, progress: _Progress) -> list[list[_Task]]:
        """Return the deliveries of each shard, in order."""
        queues: list[list[_Task]] = [[] for _ in self._shards]
        if own is not None:
            self._enqueue(queues, OWN, pack_message(own))
        for index, record in enumerate(batch.records):
            if isinstance(record, SeriesBatch):
                try:
                    self._enqueue(queues, index, packed_record(record))
                except WireError as error:
                    progress.broken[index] = str(error)
        return queues

    def _enqueue(self, queues: list[list[_Task]], index: int, request: Packed) -> None:
        if len(queues) == 1:
            queues[0].append(_Task(index, request))
            return
        for number, part in enumerate(divide(request.message(), len(queues))):
            if part.series or part.metadata:
                queues[number].append(_Task(index, pack_message(part)))

    async def _deliver_queue(
        self, number: int, queue: Sequence[_Task], progress: _Progress, attempt: int
    ) -> TryAgain | None:
        """Deliver one shard's requests in their order; what stopped it, if anything did."""
        for task in queue:
            if (task.record, number) not in progress.settled:
                try:
                    outcome = await self._shards[number].deliver(task.request, attempt)
                except TryAgain as error:
                    return error
                progress.settled[task.record, number] = outcome
                self._record_outcome(outcome)
        return None

    def _record_outcome(self, outcome: Outcome) -> None:
        for reason, count in outcome.refused.items():
            self._metrics.refused.labels(self.context.name, reason).inc(count)
            self.context.logger.warning(
                "The store refused series. sink=%s series=%d of=%d answer=%s",
                self.context.name,
                count,
                count + outcome.stored,
                outcome.example,
            )

    def _make_answer(self, batch: Batch, progress: _Progress) -> Answer:
        wanted = self.settings.training or self.settings.federate
        filtered = 0 if wanted else sum(not isinstance(record, SeriesBatch) for record in batch.records)
        answer = rejected(batch, progress.settled, progress.broken, filtered)
        return answer if answer.items else Delivered(filtered=filtered)
