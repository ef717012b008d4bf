"""From printed keys and values to stored names and values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ...plugin_api.log_formats import Field
from ...plugin_api.vocabulary import lookup, normalise
from .numbers import Reader, make_reader, parse_number

_KEY = re.compile(r"[A-Za-z_][\w ./()%@#:+'-]{0,98}")
_AVERAGED = re.compile(r"\s*([^\s/()]+)\s*(?:/\s*|\(\s*(?:avg\s*)?)([^\s/()]+)\)?\s*")
_MEMO_LIMIT = 4096
_LONGEST_KEY, _LONGEST_VALUE = 200, 256

# The meaning of a printed key: whether it may be the headline loss, the name under which a bare number is stored as it
# is (empty where it has to be converted), and what reads every other text.
Slot = tuple[bool, str, Reader]
_SKIP: Slot = (False, "", lambda values, text: None)


class Columns:
    """Turns printed keys and values into stored names and values; what a key means is looked up once."""

    def __init__(
        self,
        fields: Mapping[str, Field],
        loss: Sequence[str],
        unlabelled: bool = True,
        headlines: Mapping[str, Sequence[str]] = {},
    ) -> None:
        self._headlines = {name: tuple(normalise(key) for key in keys) for name, keys in headlines.items()}
        self._fields = {normalise(key): field for key, field in fields.items()}
        self._loss = tuple(dict.fromkeys(normalise(key) for key in loss))
        self._unlabelled = unlabelled
        self._memo: dict[str, Slot] = {}

    def read_pairs(self, pairs: Any) -> dict[str, float]:
        """Stored names and values of printed pairs; the best key for the headline loss becomes `lm_loss`."""
        values: dict[str, float] = {}
        losses: dict[str, float] = {}
        memo = self._memo
        for key, text in pairs:
            is_loss, name, read = memo.get(key) or self._slot(key)
            target = losses if is_loss else values
            if name:
                try:
                    target.setdefault(name, float(text))
                except ValueError:  # a pair, a unit, thousands separators
                    if text[-4:-3] == "," and _read_thousands(target, name, text):
                        continue
                    if "/" in text and key in memo:
                        memo[key] = (is_loss, "", read)  # such a key has a pair on each line
                else:
                    continue
            read(target, text)
        if losses:
            self._choose_loss(values, losses)
        if self._headlines:
            self._choose_headlines(values)
        return values

    def _choose_headlines(self, values: dict[str, float]) -> None:
        """Store the best of each headline's keys under the headline's name."""
        printed = {normalise(name): name for name in values}
        for headline, keys in self._headlines.items():
            best = next((printed[key] for key in keys if key in printed), None)
            if best is not None and headline not in values:
                values[headline] = values.pop(best)

    def _slot(self, key: str) -> Slot:
        if len(key) > _LONGEST_KEY:
            return _SKIP
        plain = normalise(key)
        slot: Slot
        if plain in self._loss:
            slot = (True, key.strip(), partial(_read_loosely, key.strip()))
        elif (known := lookup(plain, self._fields)) is not None:
            slot = (False, _name_of_bare(known), make_reader(known))
        elif self._unlabelled and _KEY.fullmatch(key.strip()):
            slot = (False, key.strip(), partial(_read_loosely, key.strip()))
        else:
            slot = _SKIP
        if len(self._memo) < _MEMO_LIMIT:
            self._memo[key] = slot
        return slot

    def _choose_loss(self, values: dict[str, float], losses: dict[str, float]) -> None:
        if len(losses) == 1:
            values["lm_loss"] = losses.popitem()[1]
            return
        printed = {normalise(name): name for name in losses}
        best = next((printed[name] for name in self._loss if name in printed), None)
        if best is not None:
            values["lm_loss"] = losses.pop(best)
        for name, value in losses.items():
            if best is not None and name == f"{best}_avg":
                values["lm_loss_avg"] = value
            else:
                values.setdefault(name, value)


def _name_of_bare(field: Field) -> str:
    """The name of a field whose values are stored as they are printed; empty for all others."""
    return field.names if field.kind == "number" and field.factor == 1.0 and isinstance(field.names, str) else ""


def _read_loosely(name: str, values: dict[str, float], text: str) -> None:
    """A value of no declared meaning: only what is a number as a whole, or a number and its average."""
    value = parse_number(text)
    if value is not None:
        values.setdefault(name, value)
        return
    pair = _AVERAGED.fullmatch(text) if len(text) <= _LONGEST_VALUE else None
    if pair is None:
        return
    now, average = parse_number(pair.group(1)), parse_number(pair.group(2))
    if now is not None and average is not None:
        values.setdefault(name, now)
        values.setdefault(f"{name}_avg", average)


def _read_thousands(values: dict[str, float], name: str, text: str) -> bool:
    """The quick way for `10,050`."""
    head, _, tail = text.partition(",")
    if not (tail.isdecimal() and len(tail) == 3 and head.isdecimal() and len(head) <= 3):
        return False
    values.setdefault(name, float(head + tail))
    return True
