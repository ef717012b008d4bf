"""Points of training steps → rows (`StepMetrics`): one row per step, unless a name comes twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from lens_core import Origin, StepMetrics
from lens_core.plugin_api.encoding import MAX_METRICS, MAX_NAME_LENGTH

from .label_sets import Refused
from .resources import Resource
from .values import text_of

DATA_SOURCE = "otlp"
NO_IDENTITY = "no_identity"
_NANOSECONDS = 1_000_000_000


class _Row(msgspec.Struct):
    """A row under construction; `stamp` is the latest time of its points, in nanoseconds."""

    resource: Resource
    origin: Origin
    step: int
    stamp: int
    values: dict[str, float] = {}


class RowBuilder:
    """Groups the points of one request by producer and step.

    A name that comes again for its step begins another row of the same key, later in sequence, so that the value before
    it goes to the row's history instead of being lost.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[object, ...], _Row] = {}
        self._rows: list[_Row] = []

    def add_point(self, resource: Resource, rank: int | None, step: int, stamp: int, name: str, value: float) -> None:
        """Put a value into the row of its step. Raises Refused."""
        origin = resource.origin_of_rank(rank)
        if not origin.is_known:
            raise Refused(NO_IDENTITY, "a step needs a resource that says whose it is: k8s.pod.name, host.name …")
        if len(name) > MAX_NAME_LENGTH:
            raise Refused("invalid", f"a metric's name is longer than {MAX_NAME_LENGTH} characters: {name[:50]}…")
        key = (id(resource), rank, step)
        row = self._open.get(key)
        if row is None or name in row.values or len(row.values) >= MAX_METRICS:
            row = self._open[key] = _Row(resource, origin, step, stamp)
            self._rows.append(row)
        row.values[name] = value
        row.stamp = max(row.stamp, stamp)

    def finished_rows(self) -> Iterator[StepMetrics]:
        """The rows in the order of their first points."""
        for place, row in enumerate(self._rows):
            yield StepMetrics(
                origin=row.origin,
                data_source=DATA_SOURCE,
                run_id=row.resource.run_id,
                session=row.resource.session,
                row_step=row.step,
                event_time=row.stamp / _NANOSECONDS,
                # The sender's own time in microseconds: the same body gives the same, and later rows of it are later.
                sequence=row.stamp // 1000 + place,
                values=row.values,
            )


def name_in_row(metric: str, attributes: Mapping[str, object]) -> str:
    """The name of a point in its row: that of the metric, with the attributes that are left in braces after it."""
    if not attributes:
        return metric
    return metric + "{" + ",".join(f"{key}={text_of(attributes[key])}" for key in sorted(attributes)) + "}"
