"""The part of `lens top` that keys turn: order, filter and search."""

from __future__ import annotations

from collections.abc import Mapping

from .keys import BACKSPACE, ENTER, ESCAPE

SORTS = ("name", "namespace", "state", "seen", "started", "iteration", "progress", "loss", "throughput", "rows")
STATES = ("failed", "hung", "stalled", "slow", "silent", "not_finite", "running", "ended")
# Another word for hung; one of the two is enough for a key.
_TURNED_STATES = ("", *(state for state in STATES if state != "stalled"))
_LONGEST_SEARCH = 100
KEYS = "s sort  r reverse  f filter  / search  x reset  q quit"


class TopView:
    """The order, filter and search of the list; `search_text` is one that is being written, else None."""

    def __init__(self, search: str = "", state: str = "", sort: str = "", *, is_reversed: bool = False) -> None:
        self.search = search
        self.state = state
        self.sort = sort
        self.is_reversed = is_reversed
        self.search_text: str | None = None

    @property
    def wanted(self) -> Mapping[str, str]:
        """The parameters of the list."""
        order = "desc" if self.is_reversed else "asc"
        return {"search": self.search, "state": self.state, "sort": self.sort, "order": order}

    def press_key(self, key: str) -> bool:
        """Turn the view by a key; False where the key ends it."""
        if self.search_text is not None:
            self._write_search(key, self.search_text)
        elif key in ("q", "Q", ESCAPE):
            return False
        elif key == "s":
            self.sort = _following(("", *SORTS), self.sort)
        elif key in ("r", "S"):
            self.is_reversed = not self.is_reversed
        elif key == "f":
            self.state = _following(_TURNED_STATES, self.state)
        elif key == "/":
            self.search_text = self.search
        elif key == "x":
            self.search, self.state, self.sort, self.is_reversed = "", "", "", False
        return True

    def _write_search(self, key: str, text: str) -> None:
        if key == ENTER:
            self.search, self.search_text = text.strip(), None
        elif key == ESCAPE:
            self.search_text = None
        elif key == BACKSPACE:
            self.search_text = text[:-1]
        elif len(key) == 1:
            self.search_text = (text + key)[:_LONGEST_SEARCH]

    def footer(self) -> str:
        """The state of the view and its keys, in one line."""
        if self.search_text is not None:
            return f"search: {self.search_text}_  (Enter searches, Esc leaves it)"
        sort = f"sort {self.sort or 'by need'}{' reversed' if self.is_reversed else ''}"
        told = [sort, f"state {self.state}" if self.state else "", f"search {self.search!r}" if self.search else ""]
        return f"{' · '.join(filter(None, told))}   {KEYS}"


def _following(choices: tuple[str, ...], now: str) -> str:
    """The choice after the one of now, round and round; the first after one that is none of them."""
    place = choices.index(now) if now in choices else -1
    return choices[(place + 1) % len(choices)]
