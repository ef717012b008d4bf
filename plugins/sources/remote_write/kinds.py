"""Of which kinds series are: found for all of a request at once.

A template is guessed by the control characters of the labels, which are mostly lengths and tags and so tell where
labels begin and end; then all bytes are compared under its mask, which proves it.
"""

from __future__ import annotations

import random
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from .laid import WIDEST, WORD, Laid, Marks, Numbers, Words
from .templates import Template

_REMEMBERED = 2048
_SLOT_BITS = 12
# So many templates whose guess is the same are tried one after the other.
_WAYS = 4
_LAST_CONTROL = 0x1F
_ONE_IN = 32
_NO_KIND = Template(-1, 0, 0, 0, itemgetter(*[slice(0)] * 4), slice(0), 0, 0, slice(0), 0)


class Kinds:
    """Numbers templates from 1 on; 0 is none.

    By these numbers: `labels`, where the labels of a series end; `told`, start and size of those that tell the pod;
    `layouts`, the same number where the same pieces of a series go on.
    """

    def __init__(self) -> None:
        odd = [random.getrandbits(64) | 1 for _ in range(WIDEST // WORD)]
        self._weights: Words = np.array(odd, np.uint64)
        self._masks: Words = np.zeros((_REMEMBERED, WIDEST // WORD), np.uint64)
        self._fixed = np.zeros_like(self._masks)
        self._forget()

    def _forget(self) -> None:
        self.templates = [_NO_KIND]
        self._ways: npt.NDArray[np.int64] = np.zeros((_WAYS, 1 << _SLOT_BITS), np.int64)
        self._sizes: Numbers = np.full(_REMEMBERED, -1, np.int64)
        self.labels: Numbers = np.zeros(_REMEMBERED, np.int64)
        self.told: Numbers = np.zeros((_REMEMBERED, 2), np.int64)
        self.layouts: Numbers = np.zeros(_REMEMBERED, np.int64)
        self._layouts: dict[tuple[int, int, int], int] = {}

    def slots(self, laid: Laid) -> Numbers:
        """A number for each series, the same for all of a kind."""
        # Not 0, which stands behind the labels: how far depends on the others.
        control = (laid.labels.view(np.uint8) - np.uint8(1) < _LAST_CONTROL).view(np.uint64)
        hashes = control @ self._weights[: control.shape[1]]
        return (hashes >> np.uint64(64 - _SLOT_BITS)).astype(np.int64)

    def chosen(self, laid: Laid) -> Marks:
        """Of some series, few and always the same."""
        hashes = laid.labels @ self._weights[: laid.labels.shape[1]]
        return hashes < np.uint64((1 << 64) // _ONE_IN)

    def find(self, laid: Laid, slots: Numbers) -> Numbers:
        """The number of a template for each series, proven."""
        found = self._prove(laid.cells, laid.sizes, self._ways[0][slots])
        for way in self._ways[1:]:
            left = np.flatnonzero(found == 0)
            if not len(left):
                break
            found[left] = self._prove(laid.cells[left], laid.sizes[left], way[slots[left]])
        return found

    def _prove(self, cells: Words, sizes: Numbers, guesses: Numbers) -> Numbers:
        width = cells.shape[1]
        left = self._masks[guesses, :width]
        left &= cells
        fit = (left == self._fixed[guesses, :width]).all(axis=1) & (self._sizes[guesses] == sizes)
        return np.where(fit, guesses, 0)

    def learn(self, template: Template, slot: int) -> None:
        """Guess this template from now on."""
        if template.size > WIDEST:
            return
        if len(self.templates) == _REMEMBERED:
            self._forget()
        number = len(self.templates)
        self.templates.append(template)
        self._masks[number] = _words(template.mask)
        self._fixed[number] = _words(template.fixed)
        self._sizes[number], self.labels[number] = template.size, template.labels
        self.told[number] = template.told.start, template.told.stop - template.told.start
        layout = (template.size, template.pod, template.workload)
        self.layouts[number] = self._layouts.setdefault(layout, number)
        self._ways[1:, slot] = self._ways[:-1, slot].copy()
        self._ways[0, slot] = number


def _words(number: int) -> Words:
    return np.frombuffer(number.to_bytes(WIDEST, "little"), np.uint64)
