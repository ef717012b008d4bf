"""Diagnosis reports to a DLRover master, over gRPC or HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from lens_core import (
    Answer,
    Batch,
    BatchLimits,
    Context,
    Delivered,
    Diagnosis,
    Record,
    Rejected,
    Retry,
    Sink,
    hookimpl,
)
from lens_core.plugin_api.diagnosis import LOG_TAIL

from ..dlrover import MasterConnection, MasterError, Report, Wire, report_to_wire
from ..dlrover.client import DEADLINE_SECONDS
from ..dlrover.pickles import MAX_PICKLE_BYTES

_ROOM_BYTES = 64 * 1024


class DlroverSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the dlrover sink."""

    address: Annotated[str, Meta(description="the master, HOST:PORT")]
    service: Annotated[Literal["grpc", "http"], Meta(description="the master's --service_type")] = "grpc"
    job_uid: Annotated[str, Meta(description="JOB_UID of the job, if its master checks it")] = ""
    deadline_seconds: Annotated[float, Meta(gt=0, description="how long one report may take")] = DEADLINE_SECONDS


class Dlrover(Sink):
    """Passes diagnosis reports (logs, XPU timer metrics, stacks) on to a DLRover master."""

    name = "dlrover"
    accepts = (Diagnosis,)
    Settings = DlroverSettings

    def __init__(self, settings: DlroverSettings, context: Context) -> None:
        super().__init__(settings, context)
        self._connection = MasterConnection(
            settings.address,
            service=settings.service,
            job_uid=settings.job_uid,
            deadline_seconds=settings.deadline_seconds,
        )

    async def stop(self) -> None:
        """End the connection."""
        await asyncio.to_thread(self._connection.close)

    async def check(self) -> None:
        """Say that we live, which every master answers. Raises MasterError with the reason."""
        await asyncio.to_thread(self._connection.get, Wire("HeartBeat", {"timestamp": 0}))

    def limits(self) -> BatchLimits:
        """Small batches: the master takes one report at a time, and a batch that fails is sent again whole."""
        return BatchLimits(max_records=32, max_bytes=8 * 1024 * 1024, max_wait_seconds=0.2)

    async def send(self, batch: Batch) -> Answer:
        """Report each record; what the master refuses for good is rejected, its neighbours are not."""
        return await asyncio.to_thread(self._send_records, batch.records)

    def _send_records(self, records: Sequence[Record]) -> Answer:
        refused: dict[int, str] = {}
        filtered = 0
        for index, record in enumerate(records):
            if not isinstance(record, Diagnosis) or record.data_type == LOG_TAIL:
                filtered += 1
                continue
            try:
                self._connection.report(report_to_wire(_make_report(record)), (record.node_id, record.node_type))
            except MasterError as error:
                if not error.is_refusal:
                    return Retry(str(error))
                refused[index] = str(error)
        return Rejected(refused, filtered) if refused else Delivered(filtered)


def _make_report(record: Diagnosis) -> Report:
    content = record.data_content.encode("utf-8", "replace")[: MAX_PICKLE_BYTES - _ROOM_BYTES]
    fields: dict[str, Any] = {
        name: getattr(record, name) for name in ("data_type", "node_id", "node_type", "node_rank")
    }
    return Report(timestamp=round(record.timestamp), data_content=content.decode("utf-8", "ignore"), **fields)


@hookimpl
def lens_sinks() -> Sequence[type[Sink]]:
    """Announce the sink."""
    return [Dlrover]
