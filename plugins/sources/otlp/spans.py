"""Spans of Megatron-LM → rows of training steps, and events of checkpoints; other spans are left out.

`megatron.train_step` (or `megatron.train.iteration`) has `megatron.iteration` and may have `megatron.loss` and
`megatron.grad_norm`; its length is the time of the step. Saving and loading a checkpoint are spans of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from lens_core import Event, Record

from .label_sets import Refused
from .resources import MAX_RANK, RANK_KEYS, Resource, read_resource
from .rows import DATA_SOURCE, NO_IDENTITY, RowBuilder
from .turns import Turns
from .values import BadValue, read_attributes, whole_number

ITERATION = "megatron.iteration"
_STEP_SPANS = frozenset({"megatron.train_step", "megatron.train.iteration"})
# Spans of a checkpoint, and the events at their beginning and end.
_CHECKPOINTS = {
    "megatron.save_checkpoint": ("checkpoint_saving", "checkpoint_saved"),
    "megatron.checkpoint.save": ("checkpoint_saving", "checkpoint_saved"),
    "megatron.load_checkpoint": ("", "checkpoint_loaded"),
    "megatron.checkpoint.load": ("", "checkpoint_loaded"),
}
_VALUES = {"megatron.loss": "loss", "megatron.grad_norm": "grad_norm"}
_STEP_TIME = "elapsed_time_per_iteration_ms"
_LARGEST = 2**63 - 1
_NANOSECONDS = 1_000_000_000
_MESSAGES = 5
_ERROR = 2


class Spans:
    """The spans of one request on their way to rows and events."""

    def __init__(self) -> None:
        self._rows = RowBuilder()
        self._events: list[Record] = []
        self._resources: dict[bytes, Resource] = {}
        self.received = self.filtered = 0
        self.refused: Counter[str] = Counter()
        self.messages: list[str] = []

    def records(self) -> list[Record]:
        """The rows and the events."""
        return [*self._rows.finished_rows(), *self._events]

    def convert_spans(self, message: Any) -> Iterator[None]:
        """Convert a request; yields whenever others should get a turn. Raises BadRequest for too many parts."""
        turns = Turns()
        turns.announce(message.resource_spans)
        for resource_spans in message.resource_spans:
            turns.announce(resource_spans.scope_spans)
            for scope_spans in resource_spans.scope_spans:
                turns.announce(scope_spans.spans)
                for span in scope_spans.spans:
                    self._convert_span(span, resource_spans.resource)
                    if turns.is_over():
                        yield
                if turns.is_over():
                    yield
            if turns.is_over():
                yield

    def _convert_span(self, span: Any, raw: bytes) -> None:
        self.received += 1
        name = span.name.decode("utf-8", "replace")
        if name not in _STEP_SPANS and name not in _CHECKPOINTS:
            self.filtered += 1
            return
        try:
            attributes = read_attributes(span.attributes)
            step = whole_number(attributes.get(ITERATION), -_LARGEST - 1, _LARGEST)
            resource = self._resource_of(raw)
            if name in _CHECKPOINTS:
                self._append_checkpoint(name, span, step, resource)
            elif step is None:
                self.filtered += 1
            else:
                self._append_step(span, step, attributes, resource)
        except Refused as error:
            self._refuse_span(error.reason, str(error))
        except BadValue as error:
            self._refuse_span("invalid", str(error))

    def _resource_of(self, raw: bytes) -> Resource:
        found = self._resources.get(raw)
        if found is None:
            found = self._resources[raw] = read_resource(raw)
        return found

    def _append_step(self, span: Any, step: int, attributes: Mapping[str, Any], resource: Resource) -> None:
        start, end = span.start_time_unix_nano, span.end_time_unix_nano
        if not 0 < start <= end:
            raise Refused("invalid", "a span ends before it begins")
        values = {_STEP_TIME: (end - start) / 1e6}
        for key, name in _VALUES.items():
            value = attributes.get(key)
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                values[name] = float(value)
        rank = next((whole_number(attributes[key], -1, MAX_RANK) for key in RANK_KEYS if key in attributes), None)
        for name, number in values.items():
            self._rows.add_point(resource, rank, step, end, name, number)

    def _append_checkpoint(self, name: str, span: Any, step: int | None, resource: Resource) -> None:
        if not resource.origin.is_known:
            raise Refused(NO_IDENTITY, "a checkpoint needs a resource that says whose it is: k8s.pod.name, host.name …")
        begun, done = _CHECKPOINTS[name]
        start, end = span.start_time_unix_nano, span.end_time_unix_nano
        if not 0 < start <= end:
            raise Refused("invalid", "a span ends before it begins")
        moments = [(begun, start)] if begun else []
        if span.status.code != _ERROR:
            moments.append((done, end))
        for kind, moment in moments:
            details = {"duration_seconds": (end - start) / _NANOSECONDS} if kind == done else {}
            self._events.append(
                Event(
                    origin=resource.origin,
                    type=kind,
                    run_id=resource.run_id,
                    session=resource.session,
                    iteration=step,
                    event_time=moment / _NANOSECONDS,
                    data_source=DATA_SOURCE,
                    details=details,
                )
            )

    def _refuse_span(self, reason: str, message: str) -> None:
        self.refused[reason] += 1
        if len(self.messages) < _MESSAGES and message not in self.messages:
            self.messages.append(message)
