"""Series whose label sets are not remembered, each by itself."""

from __future__ import annotations

from .attaching import NO_POD
from .enriching import Enricher
from .entry import head_of
from .passed import Passed
from .slow_road import SlowRoad
from .tails import Tails
from .templates import Template


class Alone:
    """Takes a new series to what goes on of it: by a template if there is one."""

    def __init__(self, enricher: Enricher, tails: Tails, slow_road: SlowRoad) -> None:
        self._enricher = enricher
        self._tails = tails
        self._slow_road = slow_road

    def take(self, one: bytes, passed: Passed) -> Template | None:
        """Pass on a series of which nothing is known; what its template is. Raises WireError."""
        tail = self._tails.of(one)
        template = self._enricher.templates.find(one[: -len(tail)], tail) if tail else None
        if template is None:
            self._slow_road.take(one, None, tail, passed)
        elif self._enricher.seen.again(one[: template.labels]):
            self.remember(one, template, passed)
        else:
            self.attach(one, template, passed)
        return template

    def attach(self, one: bytes, template: Template, passed: Passed) -> None:
        """Pass on a series of a kind."""
        before, middle, after, told = template.cut(one)
        attached = self._enricher.attached.get(told) or self._enricher.attach(told)
        head = head_of(template.size + len(attached.both))
        passed.pieces += (head, before, attached.pod, middle, attached.workload, after)
        passed.add(1, int(attached.number == NO_POD))

    def remember(self, one: bytes, template: Template, passed: Passed) -> None:
        """Pass on a series of a kind, and remember its label set."""
        labels = template.labels
        self._slow_road.take(one, self._enricher.remember(one[:labels]), one[labels:], passed)
