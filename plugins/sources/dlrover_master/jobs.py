"""What the nodes of a job need of their master to start: where they meet, and what they tell each other."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from lens_core.dlrover import Wire
from lens_core.dlrover.key_values import KeyValues, Value
from lens_core.dlrover.messages import BadMessage
from lens_core.dlrover.rendezvous import Rendezvous, Terms

_MAX_JOBS = 1024


class Job:
    """One job: a meeting point for each purpose (training; checks of the network), and the keys."""

    def __init__(self) -> None:
        self._terms: Terms | None = None
        self._meetings: dict[str, Rendezvous] = defaultdict(Rendezvous)
        self._keys = KeyValues()

    def take(self, message: Wire) -> bool:
        """Take what a node tells; False for what is no matter of a job's start. Raises LensError."""
        taker = self._TAKERS.get(message.name)
        if taker is None:
            return False
        taker(self, message.fields)
        return True

    def answer(self, message: Wire) -> Wire | None:
        """The answer to what a node asks; None for what is no matter of a job's start. Raises LensError."""
        answerer = self._ANSWERERS.get(message.name)
        return answerer(self, message.fields) if answerer is not None else None

    def _agree(self, fields: Mapping[str, Any]) -> None:
        self._terms = Terms(
            min_nodes=_whole(fields, "min_nodes"),
            max_nodes=_whole(fields, "max_nodes"),
            waiting_seconds=float(_whole(fields, "waiting_timeout")),
            unit=max(1, _whole(fields, "node_unit")),
        )

    def _meeting(self, fields: Mapping[str, Any]) -> Rendezvous:
        meeting = self._meetings[str(fields.get("rdzv_name", ""))]
        if self._terms is not None:
            meeting.agree(self._terms)
        return meeting

    def _join(self, fields: Mapping[str, Any]) -> Wire:
        rank = _whole(fields, "node_rank")
        rank = rank if rank >= 0 else _whole(fields, "node_id")
        return _state(round=self._meeting(fields).join(rank, _whole(fields, "local_world_size")))

    def _world(self, fields: Mapping[str, Any]) -> Wire:
        number, world = self._meeting(fields).world()
        return _state(round=number, world=world)

    def _waiting(self, fields: Mapping[str, Any]) -> Wire:
        return _state(waiting_num=self._meeting(fields).waiting)

    def _set(self, fields: Mapping[str, Any]) -> None:
        self._keys.set(str(fields.get("key", "")), _value(fields.get("value", b"")))

    def _set_all(self, fields: Mapping[str, Any]) -> None:
        for key, value in _mapping(fields).items():
            self._keys.set(str(key), _value(value))

    def _get(self, fields: Mapping[str, Any]) -> Wire:
        key = str(fields.get("key", ""))
        is_counting = fields.get("op") == "add"
        value = self._keys.add(key, _whole(fields, "value")) if is_counting else self._keys.get(key)
        return Wire("KeyValuePair", {"key": key, "value": value, "op": ""})

    def _get_all(self, fields: Mapping[str, Any]) -> Wire:
        return Wire("KeyValuePairs", {"kvs": self._keys.get_all(map(str, _mapping(fields))), "op": ""})

    _TAKERS: Mapping[str, Callable[[Job, Mapping[str, Any]], None]] = {
        "RendezvousParams": _agree,
        "KeyValuePair": _set,
        "KeyValuePairs": _set_all,
    }
    _ANSWERERS: Mapping[str, Callable[[Job, Mapping[str, Any]], Wire]] = {
        "JoinRendezvousRequest": _join,
        "CommWorldRequest": _world,
        "WaitingNodeNumRequest": _waiting,
        "KeyValuePair": _get,
        "KeyValuePairs": _get_all,
    }


class Jobs:
    """The jobs that are starting or run, by workload; those that nobody has asked for longest make room."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, Job] = OrderedDict()

    def job(self, workload_uid: str) -> Job:
        """A job, made if it is new."""
        found = self._jobs.pop(workload_uid, None) or Job()
        self._jobs[workload_uid] = found
        if len(self._jobs) > _MAX_JOBS:
            self._jobs.popitem(last=False)
        return found


def _state(**fields: Any) -> Wire:
    return Wire("RendezvousState", {"world": {}, "waiting_num": 0, "round": 0, "group": 0, **fields})


def _whole(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name, 0)
    return int(value) if isinstance(value, int | float) else 0


def _value(found: Any) -> Value:
    if isinstance(found, str | bytes | int):
        return found
    raise BadMessage(f"a {type(found).__name__} is no value that is kept under a key")


def _mapping(fields: Mapping[str, Any]) -> Mapping[Any, Any]:
    found = fields.get("kvs")
    return found if isinstance(found, Mapping) else {}
