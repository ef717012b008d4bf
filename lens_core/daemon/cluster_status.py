"""The status of a whole cluster, out of the statuses of its daemons: sums, the worst state, and who does not answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from ..delivery.combining import combine_ledgers, combine_sinks, sum_counts
from ..delivery.sending.sender import SinkStatus
from ..pipeline.intake import PipelineStatus
from ..plugin_api.siblings import Siblings
from ..plugin_host.info import PluginInfo
from .loop_watch import LoopWatchStatus
from .status import DaemonStatus, SourceStatus

T = TypeVar("T")
# The kind of the question for a status between daemons.
STATUS = "status"
_OTHER_FORMAT = "its status has another format; it is of another version"
_LAST_HOLDS = 10


async def ask_cluster_status(own: DaemonStatus, address: str, siblings: Siblings) -> DaemonStatus:
    """This daemon's status and those of all others as one; who does not answer is named under `shared`."""
    answers = await siblings.ask_siblings()
    statuses = {address: own}
    silent = list(answers.silent)
    for name, body in sorted(answers.found.items()):
        try:
            statuses[name] = msgspec.msgpack.decode(body, type=DaemonStatus)
        except msgspec.DecodeError:
            silent.append(f"{name} ({_OTHER_FORMAT})")
    return combine_daemons(own, statuses, silent)


def combine_daemons(own: DaemonStatus, statuses: Mapping[str, DaemonStatus], silent: Sequence[str]) -> DaemonStatus:
    """The status of all as one; address, data directory and configuration are those of the daemon that is asked."""
    every = list(statuses.values())
    loops = [one.event_loop for one in every]
    last = sorted((hold for loop in loops for hold in loop.last), key=lambda hold: hold.began_at)
    shared = {
        **(own.shared or {}),
        "daemons": {name: _make_brief(one) for name, one in statuses.items()},
        "silent": silent,
    }
    return msgspec.structs.replace(
        own,
        ready=all(one.ready for one in every),
        not_ready="; ".join(f"{name}: {one.not_ready}" for name, one in statuses.items() if one.not_ready),
        started_at=min(one.started_at for one in every),
        uptime_seconds=max(one.uptime_seconds for one in every),
        store_notice=next((one.store_notice for one in every if one.store_notice), ""),
        sources=_by_name([one.sources for one in every], lambda one: one.name, _combine_sources),
        pipelines=_by_name([one.pipelines for one in every], lambda one: one.name, _combine_pipelines),
        plugins=_combine_plugins(statuses),
        blockers=[one for status in every for one in status.blockers],
        problems={
            f"{component} at {name}": problem
            for name, one in statuses.items()
            for component, problem in one.problems.items()
        },
        processes=[
            msgspec.structs.replace(one, component=f"{one.component} at {name}")
            for name, status in statuses.items()
            for one in status.processes
        ],
        memory_growth=[one for status in every for one in status.memory_growth],
        busy_threads=[one for status in every for one in status.busy_threads],
        event_loop=LoopWatchStatus(
            holds=sum(loop.holds for loop in loops),
            held_seconds=sum(loop.held_seconds for loop in loops),
            longest_seconds=max(loop.longest_seconds for loop in loops),
            last=last[-_LAST_HOLDS:],
        ),
        shared=shared,
    )


def _make_brief(status: DaemonStatus) -> dict[str, object]:
    return {
        "url": status.url,
        "state": status.state,
        "not_ready": status.not_ready,
        "version": status.version,
        "uptime_seconds": round(status.uptime_seconds, 3),
    }


def _by_name(lists: Sequence[Sequence[T]], name_of: Callable[[T], str], combine: Callable[[Sequence[T]], T]) -> list[T]:
    """One for each name, in the order in which the names come first."""
    found: dict[str, list[T]] = {}
    for some in lists:
        for one in some:
            found.setdefault(name_of(one), []).append(one)
    return [combine(some) for some in found.values()]


def _combine_sources(some: Sequence[SourceStatus]) -> SourceStatus:
    failed = max(some, key=lambda one: (one.state != "running", one.last_error_at or 0.0))
    return msgspec.structs.replace(
        some[0],
        state=failed.state,
        received=sum(one.received for one in some),
        accepted=sum(one.accepted for one in some),
        filtered=sum(one.filtered for one in some),
        rejected=sum_counts([one.rejected for one in some]),
        accepted_per_second=sum(one.accepted_per_second for one in some),
        last_error=failed.last_error,
        last_error_at=failed.last_error_at,
        last_refusal=next((one.last_refusal for one in some if one.last_refusal), ""),
    )


def _combine_pipelines(some: Sequence[PipelineStatus]) -> PipelineStatus:
    return msgspec.structs.replace(
        some[0],
        sinks=_by_name([one.sinks for one in some], lambda sink: sink.name, _combine_sinks),
        ledger=combine_ledgers(some[0].ledger.component, [one.ledger for one in some]),
        accepted_per_second=sum(one.accepted_per_second for one in some),
        processor_errors=sum(one.processor_errors for one in some),
        last_processor_error=next((one.last_processor_error for one in some if one.last_processor_error), ""),
    )


def _combine_sinks(some: Sequence[SinkStatus]) -> SinkStatus:
    return combine_sinks(some[0].name, some, [one.ledger for one in some], required=some[0].required)


def _combine_plugins(statuses: Mapping[str, DaemonStatus]) -> list[PluginInfo]:
    """Each plugin as some daemon has it that has trouble with it, if any has."""
    found: dict[tuple[str, str], PluginInfo] = {}
    for name, status in statuses.items():
        for plugin in status.plugins:
            key = (plugin.name, plugin.distribution)
            known = found.get(key)
            if known is None or (plugin.reason and not known.reason):
                reason = f"{plugin.reason} (at {name})" if plugin.reason and len(statuses) > 1 else plugin.reason
                found[key] = msgspec.structs.replace(plugin, reason=reason)
    return list(found.values())
