"""The analyzer: looks at jobs that change, and reports each finding once as an event."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np
from msgspec import Meta

from lens_core import Analyzer, Context, Event, IngestRequest, Origin, Record, Reply, Route, load_state, save_state

from ...device_errors import DEVICE_ERROR
from ..configuration import numbers_in_configuration
from ..turns import Turns, TurnSettings
from .device_errors import find_device_errors
from .finding import Finding
from .job import CLIP_VALUES, Findings, find_all, read_attempts
from .sibling_reader import SiblingReader, sibling_of
from .siblings import compare_siblings

_MOST_REPORTED = 20_000
# Findings that hold for a whole attempt: each is reported once, however its place moves.
_OF_ATTEMPTS = frozenset(
    {
        "checkpoint_slower",
        "clipping",
        "data_repeated",
        "host_memory_creep",
        "loss_diverged",
        "loss_off",
        "memory_creep",
        "nan_precursor",
        "restore_differs",
        "slower_than_siblings",
        "step_time_creep",
    }
)


class RegressionsSettings(TurnSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the regressions analyzer."""

    recent_seconds: Annotated[
        float, Meta(gt=0, description="findings that are older when they are found become no events")
    ] = 86400.0


class _Reported(msgspec.Struct):
    """The findings that were reported, the oldest first."""

    keys: list[str] = []


class Regressions(Analyzer):
    """Regressions of a job: loss spikes, slower steps, memory that creeps, restores that differ; as events."""

    name: ClassVar[str] = "regressions"
    Settings: ClassVar[type[RegressionsSettings]] = RegressionsSettings
    interval_seconds: ClassVar[float] = 60.0

    def __init__(self, settings: RegressionsSettings, context: Context) -> None:
        super().__init__(settings, context)
        self._options = settings
        self._siblings = SiblingReader()
        self._turns = Turns(settings)
        self._reported: dict[str, None] = {}
        self._new: list[str] = []
        self._path = context.data_dir / "reported.json"

    async def start(self) -> None:
        """Read what was reported before."""
        try:
            state = await asyncio.to_thread(load_state, self._path, _Reported)
        except msgspec.DecodeError as error:
            self.context.logger.warning("Findings may be reported again. file=%s error=%s", self._path, error)
            state = _Reported()
        self._reported = dict.fromkeys(state.keys)

    async def analyze(self, changed: Sequence[str]) -> Sequence[Record]:
        """Look at jobs that changed, as many as 20 seconds allow; the others come next time."""
        self._new = []
        return await self._turns.examine_due(changed, self._examine)

    async def _examine(self, uid: str) -> list[Record]:
        return [event for found in await self._find(uid) for event in self._events_of_findings(uid, found)]

    async def stored(self) -> None:
        """Remember what was reported."""
        if self._new:
            self._reported.update(dict.fromkeys(self._new))
            self._new = []
            keys = list(self._reported)[-_MOST_REPORTED:]
            self._reported = dict.fromkeys(keys)
            await asyncio.to_thread(save_state, self._path, _Reported(keys))

    def routes(self) -> Sequence[Route]:
        """The findings in a workload."""
        return [Route(paths=["/workloads/{uid:path}/findings"], handler=self._answer, methods=["GET"], role="read")]

    async def _answer(self, request: IngestRequest) -> Reply:
        """Regressions in the newest attempt of each run: rule, figures, since when; and the replay check."""
        found = await self._find(request.path_parameters["uid"])
        return Reply(body={"runs": [_as_answer(one) for one in found]})

    async def _find(self, uid: str) -> list[Findings]:
        chains, events = await read_attempts(self.store, uid)
        clips = numbers_in_configuration(await self.store.evidence(uid) if chains else [], CLIP_VALUES)
        clip = next(clips, None)
        found = await asyncio.to_thread(lambda: [find_all(chain, events, clip) for chain in chains])
        detail = await self.store.workload(uid) if chains else None
        if detail is None:
            return found
        # The newest run alone: those before it are siblings of nothing that goes on.
        siblings = await self._siblings.read_siblings(self.store, detail.summary)
        off = await asyncio.to_thread(compare_siblings, sibling_of(uid, chains[-1][-1]), siblings)
        off += await find_device_errors(self.store, uid, chains[-1], events)
        return [*found[:-1], msgspec.structs.replace(found[-1], findings=[*found[-1].findings, *off])]

    def _events_of_findings(self, uid: str, found: Findings) -> list[Record]:
        oldest = time.time() - self._options.recent_seconds
        events: list[Record] = []
        for one in found.findings:
            key = f"{uid}\n{found.run_id}\n{found.attempt}\n{one.type}\n{_place(one)}"
            if one.is_told or one.time < oldest or key in self._reported or key in self._new:
                continue
            self._new.append(key)
            events.append(
                Event(
                    origin=Origin(workload_uid=uid, node=str(one.details.get("node", ""))),
                    type=one.type,
                    run_id=found.run_id,
                    attempt=found.attempt,
                    iteration=one.iteration,
                    event_time=one.time,
                    data_source="analyzer",
                    details={"rule": one.rule, **_plain(one.details)},
                )
            )
        return events


def _place(found: Finding) -> str:
    """The place of a finding; of those that hold for a whole attempt there is one."""
    if found.type == DEVICE_ERROR:
        return f"{found.details['node']} {found.details['error']} {found.time:.0f}"
    return "0" if found.type in _OF_ATTEMPTS else str(found.iteration)


def _plain(details: dict[str, Any]) -> dict[str, Any]:
    """Rounded, and without the numbers of numpy, which cannot be encoded."""
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in details.items()}
    return {name: round(value, 6) if isinstance(value, float) else value for name, value in plain.items()}


def _as_answer(found: Findings) -> dict[str, Any]:
    return {
        "run": found.run_id,
        "attempt": found.attempt,
        "replay": None if found.replay is None else msgspec.to_builtins(found.replay),
        "findings": [
            {
                "type": one.type,
                "iteration": one.iteration,
                "timestamp": round(one.time * 1000),
                "rule": one.rule,
                "details": _plain(one.details),
            }
            for one in found.findings
        ],
    }
