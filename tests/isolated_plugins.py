"""Sinks and sources that behave badly in a process of their own; a plugin file for a daemon."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from lens_core import (
    Answer,
    BadRequest,
    Batch,
    Delivered,
    IngestRequest,
    Origin,
    Poisoned,
    Position,
    Rejected,
    Reply,
    Retry,
    Route,
    Secret,
    Sink,
    Source,
    StepMetrics,
    hookimpl,
)


class ApartSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of all of them: a folder with files that say what to do once, and a secret."""

    folder: Path
    key: Secret | None = None


def is_told(folder: Path, what: str) -> bool:
    """Whether a file of this name is there; it is removed, so that only one process obeys."""
    try:
        (folder / what).unlink()
    except FileNotFoundError:
        return False
    return True


class ApartSink(Sink):
    """Writes the steps that it gets, with its process, one line for each batch; misbehaves when told."""

    name = "apart_sink"
    Settings = ApartSettings

    async def start(self) -> None:
        """Count the starts."""
        with (self.settings.folder / "starts").open("a") as file:
            file.write(f"{os.getpid()}\n")

    async def send(self, batch: Batch) -> Answer:
        """Store a batch, or what is told."""
        folder = self.settings.folder
        if is_told(folder, "die"):
            os._exit(9)
        if is_told(folder, "exit"):
            sys.exit(3)
        if is_told(folder, "sleep"):
            time.sleep(3600)
        if is_told(folder, "raise"):
            raise ValueError(f"it broke with {self.settings.key.reveal() if self.settings.key else ''}")
        if is_told(folder, "retry"):
            return Retry("later", 0.01, timed_out=True)
        if is_told(folder, "nonsense"):
            return "fine"  # type: ignore[return-value]
        if any(record.values.get("loss", 0.0) < 0 for record in batch.records if isinstance(record, StepMetrics)):
            return Poisoned("a negative loss")
        rows = [record for record in batch.records if isinstance(record, StepMetrics)]
        refused = {index: "odd" for index, row in enumerate(rows) if row.row_step % 2 and "odd" in row.values}
        kept = [row.row_step for index, row in enumerate(rows) if index not in refused]
        print("libraries print", flush=True)
        self.context.counter("apart_batches_total", "Batches.").inc()
        self.context.gauge("apart_rows", "Rows of the last batch.").set(len(rows))
        self.context.report_problem("the licence ends tomorrow" if len(kept) == 3 else "")
        with (folder / "stored").open("a") as file:
            file.write(json.dumps({"pid": os.getpid(), "steps": kept, "end": batch.end}) + "\n")
        return Rejected(refused) if refused else Delivered()

    async def position(self, spool_id: str) -> Position | None:
        """Answer none."""
        return None


class ApartSource(Source):
    """Takes rows as JSON; misbehaves when told."""

    name = "apart_source"
    Settings = ApartSettings
    rejects = ("odd",)

    def routes(self) -> Sequence[Route]:
        """One route."""
        return [Route(paths=("/apart",), handler=self.receive)]

    async def receive(self, request: IngestRequest) -> Reply:
        """Store a row."""
        folder = self.settings.folder
        if is_told(folder, "die"):
            os._exit(9)
        try:
            values = msgspec.json.decode(request.body, type=dict[str, float])
        except msgspec.DecodeError as error:
            raise BadRequest(f"not a row: {error}") from None
        row = StepMetrics(
            origin=Origin(workload_uid=request.query["job"]), data_source="apart", row_step=1, values=values
        )
        await self.gate.submit([row], received=2, rejected={"odd": 1})
        return Reply(body={"pid": os.getpid(), "header": request.headers.get("x-odd")}, status=202)


@hookimpl
def lens_sinks() -> list[type[Sink]]:
    """The sinks of this file."""
    return [ApartSink]


@hookimpl
def lens_sources() -> list[type[Source]]:
    """The sources of this file."""
    return [ApartSource]
