"""The same component in the other daemons of a cluster: questions to all of them at once, and their answers.

Every daemon of a cluster has the same components, and each knows only what passes through it. A component that shows
what it holds asks its siblings before it answers. In a daemon that is alone there are none, and asking costs nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from ..base.errors import NotFound

ASK_SECONDS = 2.0


class SiblingAnswers(NamedTuple):
    """The answers by the name of the daemon that gave each; `silent` names the daemons that gave none."""

    found: Mapping[str, bytes]
    silent: Sequence[str]


class Siblings:
    """The siblings of a component; this class is for a daemon that is alone. Since 1.3."""

    async def ask_siblings(self, question: bytes = b"", *, seconds: float = ASK_SECONDS) -> SiblingAnswers:
        """Ask all other daemons and return when each has answered or the time is up; never raises."""
        return SiblingAnswers({}, [])

    async def ask_sibling(self, daemon: str, question: bytes = b"", *, seconds: float = ASK_SECONDS) -> bytes:
        """Ask the one daemon of this name. Raises Unavailable if it does not answer in time, NotFound without it."""
        raise NotFound(f"there is no daemon {daemon!r} in the cluster")

    def answer_siblings(self, answer: Callable[[bytes], Awaitable[bytes]]) -> None:
        """Answer questions of the siblings from now on; what `answer` raises is for them as if nobody had answered."""
