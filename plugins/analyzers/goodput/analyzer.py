"""The analyzer: keeps the ledgers of workloads that change, answers for them, and reports them as series."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from lens_core import Analyzer, BadRequest, Context, IngestRequest, Measurement, Origin, Record, Reply, Route

from ..regressions.sibling_reader import SiblingReader
from ..turns import Turns, TurnSettings
from .answers import as_whole_answer, days_of, goodput_since
from .facts import Ledger
from .fleet import GROUPS, INTERRUPTION_GROUPS, FleetBooks, Job
from .ledger import Books, books_of, close
from .prices import with_prices
from .row_cache import RowCache
from .rows import MICRO
from .spans import seconds_of_span
from .store_facts import facts_of

_DAY_SECONDS = 86400.0
_WINDOWS = {"1h": 3600.0, "24h": _DAY_SECONDS}
_CACHED = 16
_MOST_UIDS = 500
# A day of 200 jobs with a row each 10 seconds.
_MOST_ROW_BYTES = 28 * 1024 * 1024


class GoodputSettings(TurnSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the goodput analyzer."""

    longest_rest_seconds: Annotated[
        float, Meta(ge=0, description="but a job that changes is looked at again after so long")
    ] = 3600.0
    price_per_gpu_hour: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        Meta(description="the price of a GPU-hour, in any currency; answers then have money, too"),
    ] = None
    recent_seconds: Annotated[
        float, Meta(gt=0, description="series are written of jobs that logged something within so long")
    ] = 86400.0


class WorkloadQuery(msgspec.Struct, frozen=True):
    """The query of a workload's ledger."""

    since: Annotated[str, Meta(description="only the last span (7d, 12h, 30m), or from a time in ms on")] = ""


class FleetQuery(msgspec.Struct, frozen=True):
    """The query of the fleet's ledger."""

    since: Annotated[str, Meta(description="a span (7d, the default) or a time in ms; whole days, UTC")] = "7d"
    by: Annotated[
        Literal["cause", "node", "framework", "namespace", "name", "workload"], Meta(description="what the groups are")
    ] = "cause"
    uid: Annotated[list[str], Meta(description="with by=workload: only these, at most 500; it may be repeated")] = []


class Goodput(Analyzer):
    """The ledger of each job: buckets of its time and the cost of each interruption; series of it for `/federate`."""

    name: ClassVar[str] = "goodput"
    Settings: ClassVar[type[GoodputSettings]] = GoodputSettings
    interval_seconds: ClassVar[float] = 60.0

    def __init__(self, settings: GoodputSettings, context: Context) -> None:
        super().__init__(settings, context)
        self._options = settings
        self._fleet: FleetBooks | None = None
        self._turns = Turns(settings)
        self._rows = RowCache(_MOST_ROW_BYTES)
        self._siblings = SiblingReader()
        self._cached: dict[str, tuple[str, float, list[Books]]] = {}

    async def start(self) -> None:
        """Open the sums."""
        self._fleet = await asyncio.to_thread(FleetBooks, self.context.data_dir / "fleet.sqlite3")
        self._turns.note(await asyncio.to_thread(self._fleet.pending))

    async def stop(self) -> None:
        """Close the sums."""
        if self._fleet is not None:
            fleet, self._fleet = self._fleet, None
            await asyncio.to_thread(fleet.close)

    async def analyze(self, changed: Sequence[str]) -> Sequence[Record]:
        """Make the ledgers of workloads that changed, as many as 20 seconds allow; the others come next time."""
        fleet = self._opened()
        await asyncio.to_thread(fleet.note_changes, changed)
        return await self._turns.examine_due(changed, lambda uid: self._look_at(fleet, uid))

    async def _look_at(self, fleet: FleetBooks, uid: str) -> list[Record]:
        books = await self._books(uid)
        if not books:
            await asyncio.to_thread(fleet.forget, uid)
            return []
        ledger, days, windows = await asyncio.to_thread(_close_books, books[0])
        detections = await self.store.detections(uid)
        best = max(detections, key=lambda one: one.confidence, default=None)
        detail = await self.store.workload(uid)
        at_risk = _at_risk(books[0], ledger)
        job = Job(
            uid=uid,
            name=detail.summary.name if detail is not None else uid,
            namespace=detail.summary.namespace if detail is not None else "",
            framework=best.framework if best is not None else "",
            at_risk_gpu_seconds=at_risk,
        )
        await asyncio.to_thread(fleet.book, job, days, ledger.interruptions)
        ended = (books[0].origin + max(account.life.end for account in books[0].accounts)) / MICRO
        is_recent = time.time() - ended <= self._options.recent_seconds
        return _measurements(uid, ledger, windows, at_risk) if is_recent else []

    def routes(self) -> Sequence[Route]:
        """The ledgers of a workload, and of all."""
        return [
            Route(
                paths=["/workloads/{uid:path}/goodput"],
                handler=self._answer_workload,
                methods=["GET"],
                role="read",
                query=WorkloadQuery,
            ),
            Route(paths=["/goodput"], handler=self._answer_fleet, methods=["GET"], role="read", query=FleetQuery),
        ]

    async def _answer_workload(self, request: IngestRequest) -> Reply:
        """The ledgers of a workload's runs: buckets, interruptions, attempts, and the buckets over their lives."""
        _refuse_unknown(request, ("since",))
        since = request.query.get("since", "")
        begin = time.time() - seconds_of_span(since) if since else None
        uid = request.path_parameters["uid"]
        books = await self._books(uid)
        # Siblings are compared with the run that counts for the workload, which comes first.
        best = await self._siblings.read_best_pace(self.store, uid) if books else None
        runs = await asyncio.to_thread(
            lambda: [as_whole_answer(one, begin, None if index else best) for index, one in enumerate(books)]
        )
        return Reply(body={"runs": [with_prices(run, self._options.price_per_gpu_hour) for run in runs]})

    async def _answer_fleet(self, request: IngestRequest) -> Reply:
        """The ledger of all workloads: the sum of each bucket, and groups by cause, node or what jobs are."""
        _refuse_unknown(request, ("since", "by", "uid"))
        several = [value for name, value in request.parameters if name == "uid"]
        uids = several if request.query.get("uid") else []
        if len(uids) > _MOST_UIDS or (uids and request.query.get("by") != "workload"):
            raise BadRequest(f"uid goes with by=workload, and names at most {_MOST_UIDS} workloads")
        by = request.query.get("by", "cause")
        if by not in (*GROUPS, *INTERRUPTION_GROUPS):
            raise BadRequest(f"by is {by[:50]!r}; it must be one of {', '.join((*INTERRUPTION_GROUPS, *GROUPS))}")
        begin = time.time() - seconds_of_span(request.query.get("since", "") or "7d")
        fleet = self._opened()
        answer = await asyncio.to_thread(fleet.answer, int(max(0.0, begin) // _DAY_SECONDS), by, uids)
        return Reply(body=with_prices(answer, self._options.price_per_gpu_hour))

    async def _books(self, uid: str) -> list[Books]:
        """The books of a workload's runs; the same again while nothing was written, for as long as a minute."""
        version = await self.store.version(uid)
        known = self._cached.get(uid)
        if known is not None and known[0] == version and time.monotonic() - known[1] < self.interval_seconds:
            return known[2]
        facts = await facts_of(self.store, uid, cache=self._rows)
        books = await asyncio.to_thread(lambda: [books_of(one) for one in facts])
        self._cached.pop(uid, None)
        self._cached[uid] = (version, time.monotonic(), books)
        while len(self._cached) > _CACHED:
            self._cached.pop(next(iter(self._cached)))
        return books

    def _opened(self) -> FleetBooks:
        assert self._fleet is not None, "start() comes before the first use"
        return self._fleet


def _close_books(books: Books) -> tuple[Ledger, list[Any], dict[str, float | None]]:
    now = time.time()
    windows = {name: goodput_since(books, now - seconds) for name, seconds in _WINDOWS.items()}
    return close(books), days_of(books), windows


def _at_risk(books: Books, ledger: Ledger) -> float | None:
    """The GPU-seconds that a failure now would cost; None where the GPUs or the checkpoints are not known."""
    gpus = books.accounts[-1].life.facts.gpus if books.accounts else None
    if ledger.at_risk_seconds is None or gpus is None or books.facts.now is None:
        return None
    return ledger.at_risk_seconds * gpus


def _measurements(uid: str, ledger: Ledger, windows: Mapping[str, float | None], at_risk: float | None) -> list[Record]:
    """The series of a job."""
    found: list[tuple[str, float, dict[str, str]]] = []
    for bucket, seconds in ledger.buckets.items():
        if seconds > 0:
            found.append(("lens_job_seconds_total", seconds, {"bucket": bucket}))
    for bucket, seconds in (ledger.gpu_seconds or {}).items():
        if seconds > 0:
            found.append(("lens_job_gpu_seconds_total", seconds, {"bucket": bucket}))
    if ledger.goodput is not None:
        found.append(("lens_job_goodput_ratio", ledger.goodput, {"window": "all"}))
    for cause, count in Counter(one.cause for one in ledger.interruptions).items():
        found.append(("lens_job_interruptions_total", float(count), {"cause": cause}))
    if at_risk is not None:
        found.append(("lens_job_at_risk_gpu_seconds", at_risk, {}))
    for kind, pace in (("typical", ledger.typical_seconds), ("best", ledger.best_seconds)):
        if pace is not None:
            found.append(("lens_job_step_seconds", pace, {"kind": kind}))
    for window, ratio in windows.items():
        if ratio is not None:
            found.append(("lens_job_goodput_ratio", ratio, {"window": window}))
    now = time.time()
    origin = Origin(workload_uid=uid)
    return [
        Measurement(origin=origin, name=name, value=value, event_time=now, tags=tags) for name, value, tags in found
    ]


def _refuse_unknown(request: IngestRequest, known: Sequence[str]) -> None:
    for name in request.query:
        if name not in known:
            raise BadRequest(f"unknown query parameter {name[:50]!r}; known here: {', '.join(known)}")
