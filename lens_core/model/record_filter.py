"""Selects the records that a pipeline or a sink wants: by kind, by data source, by labels."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable

import msgspec

from .records import RECORD_KINDS, Event, Record, StepMetrics

ORIGIN_FIELDS = ("cluster", "workload_uid", "pod_name", "pod_uid", "namespace", "node", "container")


class RecordFilter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Empty fields let everything pass; what is given must all hold.

    `kinds` are kinds of record (`step_metrics`, `event`, …). `data_sources` (names or globs) hold for the records that
    have one (`step_metrics`, `event`), the others pass. `labels` are label names, or fields of the origin such as
    `namespace`, with a value or a glob (`team-*`); a record without that label does not pass.
    """

    kinds: list[str] = []
    data_sources: list[str] = []
    labels: dict[str, str] = {}

    def __post_init__(self) -> None:
        unknown = [kind for kind in self.kinds if kind not in RECORD_KINDS]
        if unknown:
            raise ValueError(f"unknown kind of record {unknown[0]!r}; known are {', '.join(RECORD_KINDS)}")


EVERYTHING = RecordFilter()


class Matcher:
    """A filter made ready, together with the kinds that a sink accepts."""

    def __init__(self, wanted: RecordFilter, accepts: tuple[type[Record], ...] = (Record,)) -> None:
        kinds = [kind for name, kind in RECORD_KINDS.items() if not wanted.kinds or name in wanted.kinds]
        self.kinds = frozenset(kind for kind in kinds if issubclass(kind, accepts))
        self._data_sources = [_pattern(value) for value in wanted.data_sources]
        self._labels = [(name, _pattern(value)) for name, value in wanted.labels.items()]
        self._only_kinds = not (self._data_sources or self._labels)

    def takes_all(self, records: list[Record]) -> bool:
        """Whether no record needs a closer look: the usual case, and quick."""
        return self._only_kinds and self.kinds.issuperset(map(type, records))

    def select(self, records: list[Record]) -> list[Record]:
        """The records that pass; the same list if all do."""
        if not self._only_kinds:
            return list(filter(self, records))
        kinds = self.kinds
        return records if kinds.issuperset(map(type, records)) else [one for one in records if type(one) in kinds]

    def __call__(self, record: Record) -> bool:
        """Whether this record passes."""
        if type(record) not in self.kinds:
            return False
        if self._only_kinds:
            return True
        source = record.data_source if isinstance(record, (StepMetrics, Event)) else None
        if self._data_sources and source is not None and not any(matches(source) for matches in self._data_sources):
            return False
        return all(matches(_record_label(record, name)) for name, matches in self._labels)


def _record_label(record: Record, name: str) -> str | None:
    found = record.origin.labels.get(name)
    if found is None and name in ORIGIN_FIELDS:
        found = getattr(record.origin, name) or None
    return found


def _pattern(value: str) -> Callable[[str | None], bool]:
    if not any(letter in value for letter in "*?["):
        return lambda text: text == value
    glob = re.compile(fnmatch.translate(value))
    return lambda text: text is not None and glob.match(text) is not None
