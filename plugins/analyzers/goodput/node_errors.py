"""Errors of devices on the nodes of a job, as sources and collectors reported them of the nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lens_core import EventRow, PodLife, Store

from ...device_errors import DEVICE_ERROR, error_of_event, node_uid
from .device_causes import SeenError

_MOST_NODES, _MOST_EVENTS = 2000, 1000
_SKEW_MS = 120_000


def nodes_of_attempt(named: Iterable[str], pods: Sequence[PodLife], begin: float, end: float) -> frozenset[str]:
    """The nodes that an attempt (times in seconds since the epoch) ran on: those that are `named`, and its pods'."""
    begin_ms, end_ms = begin * 1000 - _SKEW_MS, end * 1000 + _SKEW_MS
    held = (pod.node for pod in pods if pod.node and pod.first_seen <= end_ms and pod.last_seen >= begin_ms)
    return frozenset(named) | frozenset(held)


async def read_node_errors(store: Store, nodes: Iterable[str]) -> dict[str, list[SeenError]]:
    """The errors of each node, the oldest first; all nodes are one question to the store.

    A node may be reported by its short name, or by the whole name of its host.
    """
    asked: dict[str, str] = {}
    for node in sorted(nodes)[:_MOST_NODES]:
        asked[node_uid(node)] = node
        asked.setdefault(node_uid(node.partition(".")[0]), node)
    found = await store.events_of(list(asked), limit=_MOST_EVENTS) if asked else {}
    errors: dict[str, list[SeenError]] = {}
    for uid, events in found.items():
        errors.setdefault(asked[uid], []).extend(errors_in(events, asked[uid]))
    return {node: sorted(seen, key=lambda one: one.time) for node, seen in errors.items() if seen}


def errors_in(events: Iterable[EventRow], node: str = "") -> list[SeenError]:
    """The errors of devices among events; `node` is where those happened that do not say."""
    return [
        SeenError(event.timestamp / 1000, error, error.node or event.node or node, event.rank)
        for event in events
        if event.type == DEVICE_ERROR and (error := error_of_event(event.type, event.details)) is not None
    ]


def errors_on(errors: Mapping[str, Sequence[SeenError]], nodes: Iterable[str]) -> list[SeenError]:
    """The errors of some nodes."""
    return [seen for node in nodes for seen in errors.get(node, ())]
