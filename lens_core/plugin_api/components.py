"""The plugin author's page: the kinds that a plugin can be.

A plugin is a module named by an entry point of the group `lens`. It announces classes by hooks (`hook_specs.py`):

    from lens_core import Sink, hookimpl

    class Print(Sink):
        name = "print"

        async def send(self, batch):
            print(len(batch.records))
            return Delivered()

    @hookimpl
    def lens_sinks():
        return [Print]

Everything shared is in the host: HTTP, authentication, body limits and decompression for sources; schedule,
time limit and isolation for collectors; fusing, state and persistence for detectors; batching, retry, the spool,
dead letters and counting for sinks. Analyzers, which ask a store, are in `analyzer.py`.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

import msgspec
import pluggy
from prometheus_client import Counter, Gauge, Histogram

from ..base.deprecation import former_name
from ..base.errors import RequestError
from ..base.self_metrics import SelfMetrics
from ..base.setting_types import required_fields
from ..directory.directory import Directory
from ..model.processing import Verdict
from ..model.records import AnyRecord, Evidence, Record, StepMetrics
from .log_formats import EventPattern, LogFormat, Mark, Table
from .siblings import Siblings
from .sink_answers import Answer, Batch, BatchLimits, Position

API_VERSION = "1.3"

hookimpl = pluggy.HookimplMarker("lens")


class NoSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of a plugin that has none."""


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """The host's services for a component: its instance name, a logger, its own folder, the cluster's name.

    `metrics` are Lens' own; a plugin has its own by `counter`, `gauge` and `histogram`, and says by `report_problem`
    what is wrong with it.
    `directory` is who is who in the cluster; a collector that learns about pods tells it.
    `siblings` are the same component in the other daemons, where several work as one (since 1.3).
    """

    name: str
    logger: logging.Logger
    data_dir: Path
    metrics: SelfMetrics
    cluster: str = "default"
    directory: Directory = msgspec.field(default_factory=Directory)
    siblings: Siblings = msgspec.field(default_factory=Siblings)

    def counter(self, name: str, documentation: str, **labels: str) -> Counter:
        """A counter of the plugin's own (`acme_retries_total`), with the component's name as the label `component`.

        The first call announces it and its labels; every further call must have the same. Since 1.3.
        """
        return self.metrics.own(Counter, name, documentation, {"component": self.name, **labels})

    def gauge(self, name: str, documentation: str, **labels: str) -> Gauge:
        """A gauge of the plugin's own, as `counter`. Since 1.3."""
        return self.metrics.own(Gauge, name, documentation, {"component": self.name, **labels})

    def histogram(self, name: str, documentation: str, **labels: str) -> Histogram:
        """A histogram of the plugin's own, as `counter`. Since 1.3."""
        return self.metrics.own(Histogram, name, documentation, {"component": self.name, **labels})

    def report_problem(self, problem: str) -> None:
        """Say what is wrong with this component for as long as it is; an empty text takes it back. Since 1.3.

        `lens status` and `/api/v1/status` show it, and `lens_component_problem` is 1.
        """
        if problem != self.metrics.problems.get(self.name, ""):
            self.logger.log(logging.WARNING if problem else logging.INFO, "Problem: %s", problem or "none any more")
        if problem:
            self.metrics.problems[self.name] = problem
        else:
            self.metrics.problems.pop(self.name, None)
        self.metrics.component_problem.labels(self.name).set(bool(problem))


class Component(ABC):
    """The common base of all kinds.

    `name` is the plugin's name, unique within its kind. `api` is the range of API versions that it supports, in the
    form of version specifiers. `Settings` is a msgspec.Struct (frozen, forbid_unknown_fields): validation, defaults,
    documentation and the JSON schema come from it; secrets have the type lens_core.Secret. The class docstring is
    what `lens plugins` shows. `also_called` are names that other programs have for what it does: a configuration that
    has one is answered with this plugin's name.
    """

    name: ClassVar[str]
    also_called: ClassVar[tuple[str, ...]] = ()
    api: ClassVar[str] = ">=1,<2"
    Settings: ClassVar[type[msgspec.Struct]] = NoSettings

    def __init__(self, settings: Any, context: Context) -> None:
        self.settings = settings
        self.context = context

    @classmethod
    def settings_from(cls, environ: Mapping[str, str]) -> Any | None:
        """Settings for `lens collect` without a configuration file; None when the environment does not name them."""
        return None if required_fields(cls.Settings) or issubclass(cls, Sink) else cls.Settings()

    async def start(self) -> None:
        """Called before the first use, in the daemon's event loop.

        What it raises disables the component alone; it is called again on the same instance, after longer and longer
        pauses up to a minute, until it succeeds.
        """

    async def stop(self) -> None:
        """Called once at the end, after the last use; also where `start` has raised or was never called."""

    async def check(self) -> None:
        """Try whether the other side can be reached (`lens validate --connect`); raises with the reason."""


class Gate(Protocol):
    """The ingest gate, as a source sees it."""

    async def submit(
        self,
        records: Sequence[Record],
        *,
        received: int | None = None,
        filtered: int = 0,
        rejected: Mapping[str, int] | None = None,
    ) -> None:
        """Return when every pipeline's spool holds the records, so that the source may acknowledge them.

        `received` is the number of items that came in, if it is not the number of records (items of one row were
        merged); `filtered` and `rejected` (by reason) are those that became no record. Raises Overloaded when they
        cannot be taken now: nothing may be acknowledged then.
        """
        ...


class IngestRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to a source: its body is decompressed and within the limits, its sender is authorised.

    `parameters` are all of the query in their order, those included that `query` has once but the request twice.
    `path_parameters` are the texts that stand for the names in braces of the route's path. Since 1.3.
    """

    body: bytes
    path: str
    method: str
    headers: Mapping[str, str]
    query: Mapping[str, str]
    client: str = ""
    parameters: Sequence[tuple[str, str]] = ()
    path_parameters: Mapping[str, str] = {}


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a source: a JSON-able body, bytes, or nothing."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = {}


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP route of a source, answered below `/api/v1` and `/v1`, and at the root if `at_root`.

    `paths` as Starlette writes them (`/wandb/metrics`); `role` is what a token must allow.

    `encodings` are the content encodings that the host undoes before the handler sees the body.
    `wire_errors` maps a status of the host's own refusals to the one that this protocol's senders understand
    (remote write: 413 becomes 400, 429 becomes 503).

    `refusal` answers in the protocol's own shape whatever is refused or fails: what the host refuses by itself (no
    token, a body that is too large, a full spool) and what the handler raises. It gets the error and the request, whose
    body is empty; the host adds Retry-After. Without it there is a JSON object with `code` and `message`. Since 1.3.

    `claims` lets a path be shared: the requests for which it is true are this route's, all others go to the source that
    has the path as its own, or to the question that Lens itself answers there. It gets the request with its body, or
    with an empty one before that is read. With nobody else on that path the route answers everything. Since 1.3.

    `query` and `bodies` describe for `/api/v1/openapi.json` what the handler reads; the host checks nothing of it.
    `query` is a struct with a field for each query parameter (a list for one that may be repeated), described by `Meta`
    as settings are; `bodies` are content types and the type that each holds, `bytes` for what is no JSON. Since 1.1.
    """

    paths: Sequence[str]
    handler: Callable[[IngestRequest], Awaitable[Reply]]
    methods: Sequence[str] = ("POST",)
    at_root: bool = False
    role: str = "ingest"
    encodings: Sequence[str] = ("gzip", "zstd", "snappy", "identity")
    max_body_bytes: int | None = None
    wire_errors: Mapping[int, int] = {}
    query: type[msgspec.Struct] | None = None
    bodies: Mapping[str, Any] = {}
    refusal: Callable[[RequestError, IngestRequest], Reply] | None = None
    claims: Callable[[IngestRequest], bool] | None = None


def _no_verdict(evidence: Evidence) -> Verdict:
    return Verdict()


class Source(Component):
    """Data that comes to us. Write `routes`, or `run`, or both; hand records to `self.gate`.

    `judge` says what one piece of evidence alone says about the framework; the host sets both. `brings` are kinds of
    record that the source is for: when no sink takes them, the daemon says so. `rejects` are the source's own reasons
    for refusing items, beside `invalid` and `no_identity`: their counters begin at 0 instead of at the first refusal.
    """

    brings: ClassVar[Sequence[type[Record]]] = ()
    rejects: ClassVar[Sequence[str]] = ()
    gate: Gate
    door = former_name("Source.door", "gate", since="1.3", removal="2.0")
    judge: Callable[[Evidence], Verdict] = staticmethod(_no_verdict)

    def routes(self) -> Sequence[Route]:
        """The HTTP routes that this source answers; none by default."""
        return ()

    async def run(self) -> None:
        """A task of the source's own (a socket, a file that grows); it is cancelled at the end. None by default."""


class Partial(msgspec.Struct, frozen=True, kw_only=True):
    """A collector's answer when not everything could be had: `records` are stored all the same. Since 1.3.

    `rejected` counts items that became no record, by reason; they are counted as received and rejected. `problem` says
    what is missing (`2 of 5 clusters gave no answer`): the run counts as failed then, and its text is shown as the
    collector's last error.
    """

    records: Sequence[Record] = ()
    rejected: Mapping[str, int] = {}
    problem: str = ""


class Collector(Component):
    """Data that we go and get: a polled source. The host keeps the schedule, the time limit and the isolation.

    An `isolated` collector is made, started and stopped in a process of its own for every run, with all that it
    starts; when its time is up, all of them are killed. It keeps what must outlast a run in its folder; `more` is
    not for it, and `stored` is called in the daemon. The others live there and must not block its event loop.
    """

    interval_seconds: ClassVar[float] = 60.0
    timeout_seconds: ClassVar[float] = 120.0
    isolated: ClassVar[bool] = False
    # There is more to get right now: once this is stored, `collect` is called again at once.
    more: bool = False

    @abstractmethod
    async def collect(self) -> Sequence[Record] | Partial:
        """Go and get once. Raises when it failed; an empty answer means that there was nothing.

        A Partial has what could be had, and says what could not.
        """

    async def stored(self) -> None:
        """Every pipeline's spool holds what `collect` answered last: the place to remember how far it got."""


class Detector(Component):
    """Knows one framework: by what is loaded, set and configured, and by the lines that it prints.

    All of it is declared; the host does the work, once for all detectors together. `framework` defaults to `name`;
    `layer` is wrapper or base, or empty for a detector of things that any framework prints. `modules` are top-level
    modules whose being loaded shows the framework; `distributions` are packages with the versions that it knows,
    as requirements (`deepspeed>=0.3`); an item of `environment` is a variable, `NAME` or `NAME=value`; one of
    `config_keys` a key of the run's configuration, `key` or `key=value`; `bases` are the frameworks that this wrapper
    or base needs anyway, so that they are no contradiction; `is_library` says that others use it without being it, so
    that it gives way to anything else. What it reads in logs: `formats` of steps, `events`, `marks` that show the
    framework, `tables` of rows without labels.
    """

    layer: ClassVar[str] = "base"
    framework: ClassVar[str] = ""
    bases: ClassVar[Sequence[str]] = ()
    is_library: ClassVar[bool] = False
    modules: ClassVar[Sequence[str]] = ()
    distributions: ClassVar[Sequence[str]] = ()
    environment: ClassVar[Sequence[str]] = ()
    config_keys: ClassVar[Sequence[str]] = ()
    project_keywords: ClassVar[Sequence[str]] = ()
    formats: Sequence[LogFormat] = ()
    events: Sequence[EventPattern] = ()
    marks: Sequence[Mark] = ()
    tables: Sequence[Table] = ()


class Sink(Component):
    """Convert, send, classify the answer. Everything else is done by the delivery.

    `accepts` are the kinds of record that it takes; others are filtered before they reach it.
    """

    accepts: ClassVar[Sequence[type[Record]]] = (StepMetrics,)

    @abstractmethod
    async def send(self, batch: Batch) -> Answer:
        """Store a batch: Delivered, Retry, Rejected or Poisoned. An exception counts as Retry with its text."""

    @classmethod
    def is_exclusive(cls, settings: Any) -> bool:
        """Whether only one process may have it open (it writes files of its own); `lens collect` then makes way."""
        return False

    @classmethod
    def occupies(cls, settings: Any) -> Sequence[str]:
        """Files, by their whole paths, that only one sink may write; two that name the same are refused."""
        return ()

    def limits(self) -> BatchLimits:
        """The limits of a batch."""
        return BatchLimits()

    def routes(self) -> Sequence[Route]:
        """HTTP routes of this sink (what it holds, for others to fetch); none by default."""
        return ()

    async def position(self, spool_id: str) -> Position | None:
        """Return how far this sink has stored this spool, if it keeps that beside the data (exactly once), else None.

        `spool_id` is that of `Batch`: another one after each start of the daemon, so that a data directory which is
        put back from a copy is never taken for what this sink has. At a start this is asked for each earlier id whose
        batches may not have been delivered yet.
        """
        return None


__all__ = [
    "API_VERSION",
    "AnyRecord",
    "Collector",
    "Component",
    "Context",
    "Detector",
    "Gate",
    "IngestRequest",
    "NoSettings",
    "Partial",
    "Reply",
    "Route",
    "Sink",
    "Source",
    "hookimpl",
]
