"""A plugin of each kind as authors wrote it for API 1.0. Never edited: it must go on working as long as API 1 lives."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from lens_core import (
    Answer,
    BadRequest,
    Batch,
    BatchLimits,
    Collector,
    Context,
    Delivered,
    Detector,
    Event,
    EventPattern,
    IngestRequest,
    LogFormat,
    Measurement,
    Origin,
    Record,
    Rejected,
    Reply,
    Route,
    Secret,
    Sink,
    Source,
    StepMetrics,
    hookimpl,
)

ARRIVED: list[Record] = []


class OldTrainer(Detector):
    """A trainer, in the words of API 1.0."""

    name = "old_trainer"
    api = ">=1,<2"
    layer = "wrapper"
    bases = ("megatron",)
    modules = ("old_trainer",)
    distributions = ("old-trainer>=1",)
    environment = ("OLD_TRAINER=1",)
    config_keys = ("old_trainer_version",)
    project_keywords = ("old-trainer",)
    formats = (
        LogFormat(
            name="step",
            words=("old_trainer",),
            head=r"old_trainer (?P<iteration>\d+) \|",
            layout="pipes",
            example="old_trainer 10 | loss: 2.5",
        ),
    )
    events = (
        EventPattern(
            type="checkpoint_saved",
            words=("old_trainer", "saved"),
            pattern=r"old_trainer saved (?P<path>\S+)",
            example="old_trainer saved /x",
        ),
    )


class OldSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings, in the words of API 1.0."""

    token: Annotated[Secret | None, Meta(description="a token")] = None
    refuse_step: Annotated[int, Meta(ge=-1, description="a step that is rejected")] = -1


class OldSink(Sink):
    """A sink, in the words of API 1.0."""

    name = "old_sink"
    Settings = OldSettings
    accepts = (StepMetrics, Event, Measurement)

    def __init__(self, settings: OldSettings, context: Context) -> None:
        super().__init__(settings, context)
        self.started = False

    async def start(self) -> None:
        self.context.data_dir.mkdir(parents=True, exist_ok=True)
        self.started = True

    async def check(self) -> None:
        self.context.logger.info("checked")

    def limits(self) -> BatchLimits:
        return BatchLimits(max_records=10, max_wait_seconds=0.01)

    async def send(self, batch: Batch) -> Answer:
        assert self.started
        refused = {}
        for index, record in enumerate(batch.records):
            if isinstance(record, StepMetrics) and record.row_step == self.settings.refuse_step:
                refused[index] = "refused"
            else:
                ARRIVED.append(record)
        return Rejected(refused) if refused else Delivered()


class OldSource(Source):
    """A source, in the words of API 1.0."""

    name = "old_source"

    def routes(self) -> list[Route]:
        return [Route(paths=["/old"], handler=self.receive, methods=("POST",), at_root=True)]

    async def receive(self, request: IngestRequest) -> Reply:
        try:
            values = msgspec.json.decode(request.body, type=dict[str, float])
        except msgspec.DecodeError as error:
            raise BadRequest(str(error)) from None
        step = int(values.pop("step", 0))
        row = StepMetrics(origin=Origin(workload_uid="old"), data_source="old", row_step=step, values=values)
        await self.door.submit([row], received=1, filtered=0, rejected=None)
        return Reply(body={"success": True}, status=202, headers={"X-Old": "1"})


class OldCollector(Collector):
    """A collector, in the words of API 1.0."""

    name = "old_collector"
    interval_seconds = 0.1
    timeout_seconds = 5.0

    async def collect(self) -> list[Measurement]:
        return [Measurement(origin=Origin(pod_name="old"), name="old.value", value=1.0, unit="jobs", kind="gauge")]


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    return [OldTrainer]


@hookimpl
def lens_sinks() -> list[type[Sink]]:
    return [OldSink]


@hookimpl
def lens_sources() -> tuple[type[Source], ...]:
    return (OldSource,)


@hookimpl
def lens_collectors() -> list[type[Collector]]:
    return [OldCollector]
