"""Plates made of series, while all that was found out about them is at hand."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from lens_core.base.protobuf import delimited

from ..attaching import NO_POD
from ..enriching import Enricher
from ..entry import Entry, head_of
from ..finding import Keys
from ..gone import Gone
from ..laid import Bytes, Marks, Numbers
from ..samples import VALUE_SIZE
from ..tails import Tails
from .patching import Structure, structure_of
from .plate import SERIES_PER_HOLE, VALUE, ZERO, Ends, Plate, Shape, blanked
from .rack import Key, Rack
from .runs import SHORTEST, head_sizes


class Run(NamedTuple):
    """A run of series, and what went on of them.

    Of each: whether its sample has a value, whether that must not be negative, whether it has no pod. `ends` are the
    ends of all that went on, `of` tells of which series each is. `holes` are the numbers of those before which others
    came.
    """

    series: Sequence[bytes]
    with_value: Marks
    watched: Marks
    unattached: Marks
    pods: dict[Keys, int]
    goes: Bytes
    ends: Numbers
    of: Numbers
    holes: list[int]


class PlateMaker:
    """Makes plates of runs of series, as far as is possible, and puts them in the rack."""

    def __init__(self, enricher: Enricher, rack: Rack, tails: Tails) -> None:
        self._enricher = enricher
        self._rack = rack
        self._tails = tails

    def make_of_new(self, gone: Gone, ends: Sequence[int]) -> None:
        """Make plates of what went on, in runs with these ends; of series that have templates."""
        for start, end in pairwise((0, *ends)):
            those = range(start, end)
            kept = [number for number in those if gone.known[number] is not None]
            if kept and _is_worth_it(len(kept), len(those)):
                self._make_of_new(gone, those, kept)

    def make_of_remembered(self, series: Sequence[bytes]) -> None:
        """Make plates of a run of series whose label sets are remembered."""
        entries = [self._entry(one) for one in series]
        kept = [number for number, entry in enumerate(entries) if entry is not None]
        if kept and _is_worth_it(len(kept), len(series)):
            those = [entry for entry in entries if entry is not None]
            self._make_of_remembered([series[number] for number in kept], those, _holes(range(len(series)), kept))

    def _make_of_new(self, gone: Gone, those: range, kept: Sequence[int]) -> None:
        series = [gone.series[number] for number in kept]
        known = [one for one in gone.known[those.start : those.stop] if one is not None]
        templates, attached = [template for template, _ in known], [attached for _, attached in known]
        names = [one[template.name] for one, template in zip(series, templates, strict=True)]
        watched = {name: self._enricher.watches(name.decode()) for name in set(names)}
        stretches = [gone.cells[gone.bounds[start] : gone.bounds[end]] for start, end in _stretches(kept)]
        run = Run(
            series,
            np.array([template.size - template.labels == VALUE_SIZE for template in templates]),
            np.array([watched[name] for name in names]),
            np.array([one.number == NO_POD for one in attached]),
            {one.keys: one.number for one in attached},
            np.concatenate(stretches),
            np.diff(gone.bounds)[kept].cumsum(),
            np.arange(len(series)),
            _holes(those, kept),
        )
        self._add(run, templates[0].key(series[0]), structure_of(run.series, templates, attached, run.ends))

    def _make_of_remembered(self, series: Sequence[bytes], entries: Sequence[Entry], holes: list[int]) -> None:
        labels = [len(entry.block) for entry in entries]
        goes, of = [], []
        for number, (one, entry, size) in enumerate(zip(series, entries, labels, strict=True)):
            for prefix in entry.prefixes:
                goes.append(delimited(1, prefix + one[size:]))
                of.append(number)
        run = Run(
            series,
            np.array([len(one) - size == VALUE_SIZE for one, size in zip(series, labels, strict=True)]),
            np.array([entry.negative for entry in entries]),
            np.array([entry.pod == NO_POD for entry in entries]),
            {entry.keys: entry.pod for entry in entries},
            np.frombuffer(b"".join(goes), np.uint8),
            np.fromiter(map(len, goes), np.int64, len(goes)).cumsum(),
            np.array(of),
            holes,
        )
        self._add(run, entries[0].block, None)

    def _entry(self, one: bytes) -> Entry | None:
        """What is remembered of a series, if it has a single sample, which is passed on."""
        tail = self._tails.of(one)
        entry = self._enricher.known(one[: -len(tail)]) if tail else None
        return entry if entry is not None and not entry.reason else None

    def _add(self, run: Run, key: Key, structure: Structure | None) -> None:
        came = b"".join([part for one in run.series for part in (head_of(len(one)), one)])
        sizes = np.fromiter(map(len, run.series), np.int64, len(run.series))
        bounds = np.concatenate(([0], (sizes + head_sizes(sizes)).cumsum()))
        values, zeros = _ends(VALUE, run, bounds, run.with_value), _ends(ZERO, run, bounds, ~run.with_value)
        self._rack.add(
            Plate(
                key=key,
                came=blanked(came, (values, zeros)),
                goes=run.goes,
                came_bounds=bounds,
                goes_bounds=np.concatenate(([0], run.ends[run.of.searchsorted(np.arange(len(sizes)), "right") - 1])),
                values=values,
                zeros=zeros,
                unattached=np.flatnonzero(run.unattached),
                pods=run.pods,
                epoch=self._enricher.epoch,
                structure=structure,
                holes=run.holes,
            )
        )


def _ends(shape: Shape, run: Run, bounds: Numbers, series: Marks) -> Ends:
    """The ends of this shape: those of these series."""
    those = series[run.of]
    of = run.of[those]
    return Ends(shape, bounds[of + 1] - shape.size, run.ends[those] - shape.size, run.watched[of])


def _is_worth_it(kept: int, count: int) -> bool:
    """Whether there are enough series for a plate, and not too many holes between them."""
    return kept >= SHORTEST and (count - kept) * SERIES_PER_HOLE <= kept


def _stretches(kept: Sequence[int]) -> list[tuple[int, int]]:
    """Start and end of each stretch of numbers that follow each other."""
    starts = [place for place, number in enumerate(kept) if not place or kept[place - 1] != number - 1]
    return [(kept[start], kept[end - 1] + 1) for start, end in pairwise((*starts, len(kept)))]


def _holes(run: range, kept: Sequence[int]) -> list[int]:
    """Where series of a run stand that are not kept, by the number of the kept one behind them."""
    missing = sorted(set(run).difference(kept))
    places = [bisect_left(kept, number) for number in missing]
    # Around the others, they are not needed.
    return [place for place in places if 0 < place < len(kept)]
