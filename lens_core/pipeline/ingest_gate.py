"""The ingest gate of a source: its records enter its pipelines here and are first counted here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from ..base.errors import Overloaded, Unavailable
from ..base.redaction import redact
from ..base.self_metrics import SelfMetrics
from ..delivery.ledger import GATE_REASONS, Ledger
from ..delivery.spool.sink_state import Reservation
from ..model.records import Event, Evidence, LogLine, Measurement, Origin, Pod, Record, SeriesBatch, StepMetrics
from ..model.refusals import sift_encodable, why_refused
from .intake import Intake

logger = logging.getLogger("lens.gate")

MAX_RECORDS_IN_FLIGHT = 500_000
# Measured data, which a sender wants stored. Facts for detectors and for the directory are accepted without a sink.
MEASURED = frozenset({StepMetrics, Measurement, SeriesBatch})
NO_SINK_SECONDS = 60.0
# Of these kinds every field has a type that was checked when they were decoded; there is nothing more to ask.
_PLAIN_KINDS = frozenset({StepMetrics, LogLine, SeriesBatch})


class Identity(Protocol):
    """Completes the origin of records with facts that their sender did not know."""

    def complete(self, origin: Origin) -> Origin:
        """The origin with everything that is known about it; the same object when there is nothing to add."""
        ...

    def record_pods(self, pods: Iterable[Pod]) -> None:
        """Remember pods that came as records."""
        ...


class IngestGate:
    """Implements `plugin_api.Gate` for one source and all pipelines that it feeds.

    `max_records_in_flight` bounds what waits for the spools through this gate; a single submission is taken however
    large it is, because the source has bounded its bytes. `reasons` are the source's own ones for refusing items.
    """

    def __init__(
        self,
        source: str,
        pipelines: Sequence[Intake],
        *,
        metrics: SelfMetrics,
        identity: Identity | None = None,
        max_records_in_flight: int = MAX_RECORDS_IN_FLIGHT,
        reasons: Sequence[str] = (),
    ) -> None:
        self.source = source
        # Why a submission was refused as a whole the last time.
        self.last_refusal = ""
        self.ledger = Ledger.for_component(source, metrics, rated="accepted", rejects=(*GATE_REASONS, *reasons))
        self._pipelines = list(pipelines)
        self._identity = identity
        self._max_records_in_flight = max_records_in_flight
        self._in_flight = 0

    def wants(self, kind: type[Record]) -> bool:
        """Whether records of this kind reach a sink."""
        return any(pipeline.wants(kind) for pipeline in self._pipelines)

    async def submit(
        self,
        records: Sequence[Record],
        *,
        received: int | None = None,
        filtered: int = 0,
        rejected: Mapping[str, int] | None = None,
    ) -> None:
        """See `Gate.submit`. Items that became part of another's row count as accepted, and as merged."""
        refused = dict(rejected or {})
        known = filtered + sum(refused.values())
        came = max(known + len(records) if received is None else received, known)
        self.ledger.count("received", came)
        self.ledger.count("filtered", filtered)
        for reason, amount in refused.items():
            self.ledger.reject(reason, amount)
        records, wrong = self._sift(records)
        known += wrong
        try:
            self._ensure_taken(records)
            completed = self._complete([_without_secrets(record) for record in records])
            try:
                await self._submit(completed)
            except (OverflowError, TypeError, ValueError, RecursionError):
                records, reasons = sift_encodable(records)
                if not reasons:
                    raise
                known += self._refuse(reasons)
                completed = self._complete([_without_secrets(record) for record in records])
                await self._submit(completed)
        except BaseException as error:
            self.ledger.reject(_reason_of(error), came - known)
            if isinstance(error, Unavailable):
                self.last_refusal = error.message
            raise
        if self._identity is not None and (pods := [record for record in completed if isinstance(record, Pod)]):
            self._identity.record_pods(pods)
        unwanted = self._unwanted(completed)
        passed = len(records) - unwanted
        # Items that were merged into unwanted rows count as unwanted, too.
        accepted = came - known - unwanted if passed else 0
        self.ledger.count("filtered", came - known - accepted)
        self.ledger.count("accepted", accepted)
        self.ledger.count("merged", max(0, accepted - passed))

    def _ensure_taken(self, records: Sequence[Record]) -> None:
        """Raise Unavailable if these are measured values that no sink can take: a success would be none.

        A filter that somebody wrote down is no reason; what it drops is counted as filtered.
        """
        kinds = {type(record) for record in records}
        if not kinds or not kinds <= MEASURED:
            return
        if not any(pipeline.can_take(kind) for pipeline in self._pipelines for kind in kinds):
            raise Unavailable(
                f"no sink that {self.source} feeds stores {' or '.join(sorted(kind.__name__ for kind in kinds))}; "
                "configure one that does, or this would be lost",
                retry_after_seconds=NO_SINK_SECONDS,
            )

    def _sift(self, records: Sequence[Record]) -> tuple[Sequence[Record], int]:
        """The records that may be taken, and how many not: a source that answers for each has refused them before."""
        if _PLAIN_KINDS.issuperset(map(type, records)):
            return records, 0
        good: list[Record] = []
        reasons: list[str] = []
        for record in records:
            reason = why_refused(record)
            if reason:
                reasons.append(reason)
            else:
                good.append(record)
        return good, self._refuse(reasons)

    def _refuse(self, reasons: Sequence[str]) -> int:
        if reasons:
            self.ledger.reject("invalid", len(reasons))
            logger.warning("%s: %d records are refused; the first: %s", self.source, len(reasons), reasons[0])
        return len(reasons)

    async def _submit(self, records: Sequence[Record]) -> None:
        if not records:
            return
        if self._in_flight and self._in_flight + len(records) > self._max_records_in_flight:
            raise Overloaded("too many records are in flight")
        self._in_flight += len(records)
        try:
            if len(self._pipelines) == 1:
                await self._enter(self._pipelines[0], records)
            else:
                await self._fan_out(records)
        finally:
            self._in_flight -= len(records)

    async def _fan_out(self, records: Sequence[Record]) -> None:
        """Ask all that may refuse before any takes: the sender tries again, and who has them would get them twice."""
        reservations: dict[str, Reservation] = {}
        try:
            for pipeline in self._pipelines:
                if pipeline.is_required:
                    reservations[pipeline.name] = await pipeline.reserve(records)
            await self._enter_all(records, reservations)
        finally:
            for reservation in reservations.values():
                reservation.release()

    async def _enter_all(self, records: Sequence[Record], reservations: Mapping[str, Reservation]) -> None:
        # All are awaited, so that nothing still runs when the caller is told that it failed.
        outcomes = await asyncio.gather(
            *(self._enter(pipeline, records, reservations.get(pipeline.name)) for pipeline in self._pipelines),
            return_exceptions=True,
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _enter(self, pipeline: Intake, records: Sequence[Record], reservation: Reservation | None = None) -> None:
        """Submit; a pipeline that has only optional sinks and no room loses the records, counted, and refuses none."""
        try:
            await pipeline.submit(records, reservation)
        except Overloaded as error:
            if pipeline.is_required:
                raise
            pipeline.count_lost(records, error.message)

    def _complete(self, records: Sequence[Record]) -> Sequence[Record]:
        """Fill in origins; records of one request mostly share one, which is looked up once."""
        if self._identity is None:
            return records
        complete = self._identity.complete
        known = {id(record.origin): record.origin for record in records}
        completed = {key: complete(origin) for key, origin in known.items()}
        if all(completed[key] is origin for key, origin in known.items()):
            return records
        wholes = (completed[id(record.origin)] for record in records)
        return [
            record if whole is record.origin else msgspec.structs.replace(record, origin=whole)
            for record, whole in zip(records, wholes, strict=True)
        ]

    def _unwanted(self, records: Sequence[Record]) -> int:
        """Return the number of records that no pipeline lets in."""
        everything = list(records)
        if not self._pipelines:
            return len(everything)
        if any(pipeline.entrance.takes_all(everything) for pipeline in self._pipelines):
            return 0
        return sum(not any(pipeline.entrance(record) for pipeline in self._pipelines) for record in everything)


def _without_secrets(record: Record) -> Record:
    """The record with the secrets hidden that a sender's configuration holds, whichever client sent it."""
    if isinstance(record, Evidence):
        return msgspec.structs.replace(record, facts=redact(record.facts))
    if isinstance(record, Event) and record.details:
        return msgspec.structs.replace(record, details=redact(record.details))
    return record


def _reason_of(error: BaseException) -> str:
    if isinstance(error, Overloaded):
        return "overloaded"
    return "no_sink" if isinstance(error, Unavailable) else "failed"
