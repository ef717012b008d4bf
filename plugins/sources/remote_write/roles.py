"""The types at the edges of the hot path: what it takes from the enricher, and what it gives to the parser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from lens_core import Pod

from .finding import Keys

# The labels that a pod gives to its series, in two pieces; the pod, and the keys that it was found by.
PodLabels: TypeAlias = tuple[bytes, bytes, Pod | None, Keys]
# Of a label set's names: each encoded with the tag after it, and whether such a label may tell the pod; then indices:
# of the metric's name, and where the labels of a pod and of its workload belong.
Layout: TypeAlias = tuple[list[bytes], list[bool], int, int, int]


class LabelSource(Protocol):
    """Makes entries of the label-set table; `enriching.Enricher`. Entries have the type of the form that runs."""

    learn: Callable[[bytes, Layout], None]

    def refresh(self) -> int:
        """Take up what the directory knows now; the epoch, a number that changes with it."""

    def pod(self, keys: Keys) -> Pod | None:
        """The pod that the directory knows by these keys."""

    def watches(self, name: str) -> bool:
        """Whether negative samples of this metric are dropped."""

    def pod_labels(self, telling: bytes) -> PodLabels:
        """The labels that a series gets by those of its own that tell its pod."""

    def make_label_set(self, block: bytes) -> Any:
        """An entry; None for a label set that is damaged or refused."""


class Batch(Protocol):
    """The forwarded part of a request with its counts; `generic_parser.ForwardedBatch`."""

    output: Any
    received: int
    known: int
    series: int
    samples: int
    unattached: int


class SeriesParser(Protocol):
    """Forwards any series, field by field; `generic_parser.GenericParser`."""

    def parse(self, series: bytes, entry: Any, batch: Any) -> None:
        """Forward one series; with the entry of its labels, if that is known. Raises WireError."""
