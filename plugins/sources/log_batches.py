"""The log lines of one request: those that are stored, counts of the others, and how old they came by node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from lens_core import Event, LogLine, Origin


class LineBatch:
    """Collects what the entries of a request have become; `ignore_pods` are globs of pods whose lines are left out."""

    def __init__(self, now: float, client: str, ignore_pods: Sequence[str]) -> None:
        self.lines: list[LogLine | Event] = []
        self.rejected: list[tuple[int, str]] = []
        self.filtered = 0
        self.latencies: dict[str, list[float]] = {}
        self._now = now
        self._client = client or "unknown"
        self._ignore_pods = ignore_pods
        # By the identity of origins, which the converters keep alive.
        self._known: dict[int, tuple[bool, list[float]]] = {}

    def append_converted(self, converted: Iterable[tuple[int, LogLine | Event | str]]) -> None:
        """Take the place of each entry with its line, or with the reason why it has none: '' if it says nothing."""
        last: Origin | None = None
        ages: list[float] = []
        ignored = False
        append, now = self.lines.append, self._now
        for index, line in converted:
            if isinstance(line, str):
                if line:
                    self.rejected.append((index, line))
                else:
                    self.filtered += 1
                continue
            if line.origin is not last:
                last = line.origin
                ignored, ages = self._known.get(id(last)) or self._learn_origin(last)
            if ignored:
                self.filtered += 1
                continue
            append(line)
            if line.event_time is not None:
                ages.append(now - line.event_time)

    def _learn_origin(self, origin: Origin) -> tuple[bool, list[float]]:
        of_node = self.latencies.setdefault(origin.node or self._client, [])
        ignored = any(fnmatchcase(origin.pod_name, pattern) for pattern in self._ignore_pods)
        self._known[id(origin)] = (ignored, of_node)
        return self._known[id(origin)]
