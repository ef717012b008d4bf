"""Problems of a configuration: all at once, each with its place and a way to fix it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from ..base.errors import ConfigurationError


class Place(NamedTuple):
    """A line and a column, both counted from 1; (0, 0) where the text is not from a file."""

    line: int
    column: int


NO_PLACE = Place(0, 0)


class Problem(NamedTuple):
    """One thing to mend; sorts by its place."""

    file: str
    place: Place
    message: str

    def __str__(self) -> str:
        if self.place == NO_PLACE:
            return f"{self.file}: {self.message}"
        return f"{self.file}:{self.place.line}:{self.place.column}: {self.message}"


class InvalidConfiguration(ConfigurationError):
    """A configuration with problems; its text is one line for each, ready to be shown."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = sorted(set(problems))
        count = len(self.problems)
        title = "the configuration has a problem" if count == 1 else f"the configuration has {count} problems"
        super().__init__("\n".join([f"{title}:", *map(str, self.problems)]))


class Problems:
    """Collects what is found while a file is read."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.found: list[Problem] = []
        self._notices: list[Problem] = []

    def append_error(self, place: Place, message: str) -> None:
        """Note one problem."""
        self.found.append(Problem(self.file, place, message))

    def append_notice(self, place: Place, message: str) -> None:
        """Note something that is no error but that its author should know."""
        self._notices.append(Problem(self.file, place, message))

    @property
    def notices(self) -> list[str]:
        """All notices as text, in the order of their places."""
        return [str(notice) for notice in sorted(set(self._notices))]

    def raise_if_any(self) -> None:
        """Raise InvalidConfiguration when anything was found."""
        if self.found:
            raise InvalidConfiguration(self.found)


def suggestion(word: str, known: Sequence[str], *, otherwise: str = "") -> str:
    """`did you mean …?` for the nearest known word, else what there is (`otherwise` names it), at most twelve."""
    lowered = {name.lower(): name for name in known}
    close = get_close_matches(word.lower(), [*lowered], n=1, cutoff=0.6)
    if close:
        return f"did you mean {lowered[close[0]]}?"
    if not known:
        return f"there are no {otherwise}" if otherwise else "remove it"
    listed = ", ".join(known[:12]) + (", …" if len(known) > 12 else "")
    return f"{otherwise or 'known here'}: {listed}"
