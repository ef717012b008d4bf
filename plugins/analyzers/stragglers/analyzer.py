"""The analyzer: judges the ranks of jobs that change, and reports who holds the others up, and when that is over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import ClassVar

import msgspec

from lens_core import Analyzer, Context, Event, IngestRequest, Measurement, Origin, Record, Reply, Route

from ..turns import Turns, TurnSettings
from .signals import Judgement, Signals, judge_signals, read_signals
from .verdict import Verdict, Window, is_gone

_REPORTED = {"straggler": "straggler", "imbalance": "imbalance", "uneven_data": "imbalance", "input": "straggler"}


class StragglersSettings(TurnSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the stragglers analyzer."""


class Stragglers(Analyzer):
    """Slow ranks, nodes, stages and uneven data, by times that are local to a rank; `unknown` without such times."""

    name: ClassVar[str] = "stragglers"
    Settings: ClassVar[type[StragglersSettings]] = StragglersSettings
    interval_seconds: ClassVar[float] = 60.0

    def __init__(self, settings: StragglersSettings, context: Context) -> None:
        super().__init__(settings, context)
        self._turns = Turns(settings)
        # The open reports of each workload, and the changes of this run.
        self._open: dict[str, Verdict] = {}
        self._next: dict[str, Verdict | None] = {}

    async def analyze(self, changed: Sequence[str]) -> Sequence[Record]:
        """Judge jobs that changed, as many as 20 seconds allow; the others come next time."""
        self._next = {}
        return await self._turns.examine_due(changed, self._examine)

    async def _examine(self, uid: str) -> list[Record]:
        signals = await read_signals(self.store, uid)
        return self._report(uid, signals, await asyncio.to_thread(judge_signals, signals))

    async def stored(self) -> None:
        """Remember what is reported and what is over."""
        for uid, verdict in self._next.items():
            if verdict is None:
                self._open.pop(uid, None)
            else:
                self._open[uid] = verdict
        self._next = {}

    def routes(self) -> Sequence[Route]:
        """The judgement of a workload's ranks."""
        return [Route(paths=["/workloads/{uid:path}/stragglers"], handler=self._answer, methods=["GET"], role="read")]

    async def _answer(self, request: IngestRequest) -> Reply:
        """The ranks that hold the others up, by which rule and figures; `unknown` with what to switch on."""
        signals = await read_signals(self.store, request.path_parameters["uid"])
        found = await asyncio.to_thread(judge_signals, signals)
        windows = [{role: _by_text(times) for role, times in _roles(window)} for window in found.windows]
        body = {"verdict": msgspec.to_builtins(found.verdict), "source": found.source, "windows": windows}
        times = signals.times
        if times is not None:
            body |= {"metrics": times.metrics, "run": times.run_id, "attempt": times.attempt}
            body |= {"iteration": times.iteration}
        return Reply(body=body)

    def _report(self, uid: str, signals: Signals, found: Judgement) -> list[Record]:
        verdict, before = found.verdict, self._open.get(uid)
        kind = _REPORTED.get(verdict.kind)
        records: list[Record] = []
        if kind == "straggler" and verdict.ratio is not None:
            records += [
                Measurement(
                    origin=Origin(workload_uid=uid, node=found.nodes.get(rank, "")),
                    name="lens_straggler_ratio",
                    value=verdict.ratio,
                    event_time=_time_of(signals),
                    tags={"rank": str(rank)},
                )
                for rank in verdict.ranks[:8]
            ]
        if kind is not None:
            if before is None or (before.kind, before.ranks, before.node) != (
                verdict.kind,
                verdict.ranks,
                verdict.node,
            ):
                records.append(_event(uid, signals, kind, found))
                self._next[uid] = verdict
        elif before is not None and verdict.kind == "none" and _are_gone(found.windows, before):
            if before.kind in ("straggler", "input"):
                gone = msgspec.structs.replace(found, verdict=before)
                records.append(_event(uid, signals, "straggler_gone", gone))
            self._next[uid] = None
        return records


def _are_gone(windows: Sequence[Window], before: Verdict) -> bool:
    """Whether ranks that were slow are like the others for five windows; where no windows tell, the verdict does."""
    with_times = [rank for rank in before.ranks if any(rank in window.compute for window in windows)]
    return all(is_gone(windows, rank) for rank in with_times)


def _time_of(signals: Signals) -> float:
    """The newest time of all signals."""
    times = [signals.times.time] if signals.times is not None else []
    times += [event.timestamp / 1000 for event in signals.events[-1:]]
    times += [report.timestamp for report in (*signals.xpu_timer[-1:], *signals.stacks[-1:])]
    return max(times, default=time.time())


def _event(uid: str, signals: Signals, kind: str, found: Judgement) -> Event:
    verdict, times = found.verdict, signals.times
    details = {name: value for name, value in msgspec.to_builtins(verdict).items() if value not in (None, "", [])}
    rank = verdict.ranks[0] if len(verdict.ranks) == 1 else None
    return Event(
        origin=Origin(workload_uid=uid, node=verdict.node, rank=rank),
        type=kind,
        run_id=times.run_id if times is not None else "",
        attempt=times.attempt if times is not None else None,
        iteration=times.iteration if times is not None else None,
        event_time=_time_of(signals),
        data_source="analyzer",
        details=details | {"source": found.source, "metrics": times.metrics if times is not None else {}},
    )


def _roles(window: Window) -> list[tuple[str, dict[int, float]]]:
    return [(role, getattr(window, role)) for role in ("compute", "waiting", "data", "step") if getattr(window, role)]


def _by_text(found: dict[int, float]) -> dict[str, float]:
    return {str(rank): value for rank, value in sorted(found.items())}
