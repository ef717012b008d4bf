"""The list of workloads and one workload: counts, framework, how far it is, what it said last."""

from __future__ import annotations

import logging
import math
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, get_args

import msgspec

from ..base.errors import BadRequest, RequestError
from ..detection.verdict import fuse
from ..model.processing import Verdict
from ..model.queries import Progress, WorkloadPage, WorkloadSummary
from ..plugin_api.overview import State, states_of
from ..plugin_api.store import Store
from .detection import weigh
from .point_text import special_name
from .state import ApiState

logger = logging.getLogger("lens.http")

_KEPT = 5000
_KEPT_SECONDS = 2.0
# Of how many workloads the state and the framework are looked up at one time, and for one answer.
_LOOKED_AT_ONCE = 200
MOST_LOOKED_AT = 5000


class WorkloadFilter(NamedTuple):
    """The frameworks and states of the workloads that are wanted; none of a kind for all of it."""

    frameworks: frozenset[str]
    states: frozenset[str]

    @staticmethod
    def of(frameworks: str, states: str) -> WorkloadFilter:
        """Read names with commas between, in any case. Raises BadRequest for a state that there is not."""
        wanted = _names(states)
        if unknown := sorted(wanted - set(get_args(State))):
            raise BadRequest(f"state must be among {', '.join(get_args(State))}, not {unknown[0][:50]!r}")
        return WorkloadFilter(_names(frameworks), wanted)

    @property
    def is_empty(self) -> bool:
        """Whether all workloads are wanted."""
        return not self.frameworks and not self.states


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip().lower() for name in text.split(",") if name.strip())


class WorkloadLines:
    """Makes lines; verdicts are remembered for as long as nothing was written about a workload, or two seconds."""

    def __init__(self, state: ApiState) -> None:
        self._state = state
        self._verdicts: OrderedDict[str, tuple[tuple[int, int], float, Verdict]] = OrderedDict()

    async def of(self, summaries: Sequence[WorkloadSummary]) -> list[dict[str, Any]]:
        """A line for each summary, in their order."""
        store = self._state.required_store()
        progress = await _progress_of(store, [summary.workload_uid for summary in summaries])
        verdicts = await self._verdicts_of(store, summaries)
        states = await states_of(store, summaries, int(time.time() * 1000))
        return [
            {
                **msgspec.to_builtins(summary),
                **_frameworks(verdicts[summary.workload_uid]),
                **describe_progress(progress.get(summary.workload_uid)),
                "state": states.get(summary.workload_uid),
            }
            for summary in summaries
        ]

    async def page(self, search: str, limit: int, cursor: str, wanted: WorkloadFilter) -> WorkloadPage:
        """A page of the wanted workloads, those seen last first.

        Frameworks and states are no columns of a store: its pages are looked through until there are enough, but at
        most MOST_LOOKED_AT workloads for one answer, which may then have fewer, and a cursor all the same.
        """
        store = self._state.required_store()
        if wanted.is_empty:
            return await store.workloads(search=search, limit=limit, cursor=cursor)
        found: list[WorkloadSummary] = []
        looked_at = 0
        while True:
            page = await store.workloads(search=search, limit=max(limit, _LOOKED_AT_ONCE), cursor=cursor)
            for place, is_wanted in enumerate(await self._are_wanted(store, page.workloads, wanted), 1):
                found += page.workloads[place - 1 : place] if is_wanted else []
                if len(found) == limit and place < len(page.workloads):
                    # The store says where to go on after a page: so it is asked for one that ends here.
                    short = await store.workloads(search=search, limit=place, cursor=cursor)
                    return WorkloadPage(found, short.next_cursor)
            looked_at += len(page.workloads)
            cursor = page.next_cursor
            if not cursor or len(found) == limit or looked_at >= MOST_LOOKED_AT:
                return WorkloadPage(found, cursor)

    async def _are_wanted(
        self, store: Store, summaries: Sequence[WorkloadSummary], wanted: WorkloadFilter
    ) -> list[bool]:
        chosen = [True] * len(summaries)
        if wanted.states:
            states = await states_of(store, summaries, int(time.time() * 1000))
            chosen = [states.get(summary.workload_uid) in wanted.states for summary in summaries]
        if wanted.frameworks:
            left = [summary for summary, is_left in zip(summaries, chosen, strict=True) if is_left]
            verdicts = await self._verdicts_of(store, left)
            named = {
                uid: {name.lower() for name in _frameworks(verdict)["frameworks"]} for uid, verdict in verdicts.items()
            }
            chosen = [bool(named.get(summary.workload_uid, set()) & wanted.frameworks) for summary in summaries]
        return chosen

    async def _verdicts_of(self, store: Store, summaries: Sequence[WorkloadSummary]) -> dict[str, Verdict]:
        now = time.monotonic()
        stale = {summary.workload_uid: _written(summary) for summary in summaries if not self._is_fresh(summary, now)}
        rules = self._state.rules
        if stale:
            evidence, stored = await store.evidence_of([*stale]), await store.detections_of([*stale])
            for uid, written in stale.items():
                verdict = fuse(weigh(uid, evidence[uid], stored[uid], rules), rules.relations)
                self._verdicts[uid] = (written, now, verdict)
                self._verdicts.move_to_end(uid)
        found = {summary.workload_uid: self._verdicts[summary.workload_uid][2] for summary in summaries}
        while len(self._verdicts) > _KEPT:
            self._verdicts.popitem(last=False)
        return found

    def _is_fresh(self, summary: WorkloadSummary, now: float) -> bool:
        kept = self._verdicts.get(summary.workload_uid)
        return kept is not None and (kept[0] == _written(summary) or now - kept[1] < _KEPT_SECONDS)


async def _progress_of(store: Store, uids: Sequence[str]) -> Mapping[str, Progress]:
    """Compute the progress of each; one that fails hides none of the others."""
    try:
        return await store.newest_progress(uids)
    except RequestError:  # the store is away, which is said as what it is
        raise
    except Exception as error:  # noqa: BLE001 - whatever is wrong with one row is not the others'
        if len(uids) < 2:
            logger.warning("Could not determine the progress of a workload. workload=%r error=%s", uids, error)
            return {}
    half = len(uids) // 2
    return {**await _progress_of(store, uids[:half]), **await _progress_of(store, uids[half:])}


def _written(summary: WorkloadSummary) -> tuple[int, int]:
    return summary.last_seen, summary.rows


def _frameworks(verdict: Verdict) -> dict[str, Any]:
    layers = (verdict.wrapper_framework, verdict.base_framework)
    return {
        "frameworks": [name for name in layers if name],
        "framework": verdict.framework or None,
        "wrapper_framework": verdict.wrapper_framework or None,
        "base_framework": verdict.base_framework or None,
        "confidence": verdict.confidence,
        "detection_status": verdict.status,
    }


def describe_progress(progress: Progress | None) -> dict[str, Any]:
    """Describe the progress of the newest attempt, under the names of the answer; all null where nothing is known."""
    names = [name for name in Progress.__struct_fields__ if name not in ("last_values", "data_source", "rank")]
    if progress is None:
        return {**dict.fromkeys(names), "last_values": {}}
    values = progress.last_values
    return {
        **{name: getattr(progress, name) for name in names},
        "last_values": {n: v if math.isfinite(v) else special_name(v) for n, v in values.items()},
    }


def describe_runs(found: Sequence[Progress]) -> list[dict[str, Any]]:
    """The attempts of an answer about iterations."""
    runs = []
    for progress in found:
        described: dict[str, Any] = msgspec.to_builtins(progress)
        del described["last_values"]
        runs.append(described)
    return runs
