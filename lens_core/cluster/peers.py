"""Questions that one daemon of a cluster asks all others, and their answers, over NATS.

A question is published once; every daemon answers for itself alone and asks nobody, so that no question goes round.
Who may connect as Lens to NATS may ask: it may read and write the log anyway. The daemons that should answer are
those of the membership; whoever has not answered when the time is up is named.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from ..base.errors import LensError, NotFound, Overloaded, Unavailable
from ..plugin_api.siblings import ASK_SECONDS, SiblingAnswers, Siblings
from .connection import Connection
from .members import Member
from .messages import pack_body, unpack_body
from .tasks import cancel_tasks

logger = logging.getLogger("lens.cluster")

PIECE_BYTES = 256 * 1024
MAX_ANSWER_BYTES = 64 * 1024 * 1024
ANSWERED_AT_ONCE = 16
_KIND = "Lens-Kind"
_ASKER = "Lens-Asker"
_ONLY = "Lens-To"
_MEMBER = "Lens-Member"
_PIECE = "Lens-Piece"
_PROBLEM = "Lens-Problem"

Answering = Callable[[bytes], Awaitable[bytes]]


class Peers:
    """This daemon's part in asking and answering; `address` is the name under which the others know it."""

    def __init__(self, connection: Connection, members: Callable[[], Iterable[Member]]) -> None:
        self.address = f"{socket.gethostname()}-{uuid.uuid4().hex[:6]}"
        self._connection = connection
        self._members = members
        self._subject = f"{connection.settings.name}-ask"
        self._answering: dict[str, Answering] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Answer from now on."""
        await self._connection.subscribe(self._subject, self._on_question)

    async def stop(self) -> None:
        """Answer no more."""
        self._answering.clear()
        await cancel_tasks(self._tasks)

    def siblings_of(self, kind: str) -> PeersOfKind:
        """Questions and answers of one kind: a component's, or one of Lens' own."""
        return PeersOfKind(self, kind)

    def answer_questions(self, kind: str, answer: Answering) -> None:
        """Answer questions of a kind by this function from now on."""
        self._answering[kind] = answer

    async def ask_members(self, kind: str, question: bytes, seconds: float, only: str = "") -> SiblingAnswers:
        """Ask all other members, or `only` one, and return when each has answered or the time is up."""
        known = {member.address or member.url for member in self._members()} - {self.address}
        waiting = {only} if only else known
        found: dict[str, bytes] = {}
        failed: dict[str, str] = {}
        if not waiting:
            return SiblingAnswers(found, [])
        headers = {_KIND: kind, _ASKER: self.address, _ONLY: only}
        pieces: dict[str, list[bytes]] = {}
        replies = self._connection.receive_replies(self._subject, question, headers, seconds)
        try:
            async with contextlib.aclosing(replies):
                async for told, body in replies:
                    name = told.get(_MEMBER, "")  # none: the server says that nobody listens
                    if not name or not self._is_whole(name, told, body, pieces):
                        continue
                    if problem := told.get(_PROBLEM):
                        failed[name] = f"{name} ({problem})"
                    else:
                        found[name] = unpack_body(b"".join(pieces[name]))
                    if not waiting - set(found) - set(failed):
                        break
        except Overloaded as error:
            logger.debug("Nobody could be asked: %s", error)
        silent = (waiting | set(failed)) - set(found)
        return SiblingAnswers(found, sorted(failed.get(name, name) for name in silent))

    @staticmethod
    def _is_whole(name: str, told: Mapping[str, str], body: bytes, pieces: dict[str, list[bytes]]) -> bool:
        """Keep a piece of an answer; whether it was the last one. Pieces of one answer come in order."""
        number, _, total = told.get(_PIECE, "1/1").partition("/")
        kept = pieces.setdefault(name, [])
        kept.append(body)
        return number == total and len(kept) == int(total)

    async def _on_question(self, message: Any) -> None:
        headers = dict(message.headers or {})
        if headers.get(_ASKER) == self.address or headers.get(_ONLY, "") not in ("", self.address):
            return
        task = asyncio.create_task(self._answer_question(headers.get(_KIND, ""), message), name="answer to a peer")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer_question(self, kind: str, message: Any) -> None:
        told = {_MEMBER: self.address}
        try:
            body = pack_body(await self._find_answer(kind, message.data))
        except LensError as error:
            body, told[_PROBLEM] = b"", " ".join(str(error).split())[:500]
        except Exception as error:
            logger.exception("A question of another daemon could not be answered. kind=%s", kind)
            body, told[_PROBLEM] = b"", type(error).__name__
        starts = range(0, max(1, len(body)), PIECE_BYTES)
        for number, start in enumerate(starts):
            piece = {**told, _PIECE: f"{number + 1}/{len(starts)}"}
            await self._connection.notify(message.reply, body[start : start + PIECE_BYTES], piece)

    async def _find_answer(self, kind: str, question: bytes) -> bytes:
        answer = self._answering.get(kind)
        if answer is None:
            raise NotFound(f"nothing here answers {kind}")
        if len(self._tasks) > ANSWERED_AT_ONCE:
            raise Overloaded("too many questions at once")
        body = await answer(question)
        if len(body) > MAX_ANSWER_BYTES:
            raise Overloaded(f"the answer has {len(body)} bytes, more than {MAX_ANSWER_BYTES}")
        return body


class PeersOfKind(Siblings):
    """Questions of one kind to the other daemons of the cluster."""

    def __init__(self, peers: Peers, kind: str) -> None:
        self._peers = peers
        self._kind = kind

    async def ask_siblings(self, question: bytes = b"", *, seconds: float = ASK_SECONDS) -> SiblingAnswers:
        """Ask all other daemons and return when each has answered or the time is up."""
        return await self._peers.ask_members(self._kind, question, seconds)

    async def ask_sibling(self, daemon: str, question: bytes = b"", *, seconds: float = ASK_SECONDS) -> bytes:
        """Ask one daemon. Raises Unavailable if it does not answer in time."""
        found, silent = await self._peers.ask_members(self._kind, question, seconds, daemon)
        if daemon not in found:
            raise Unavailable(f"the daemon does not answer: {', '.join(silent)}", retry_after_seconds=5)
        return found[daemon]

    def answer_siblings(self, answer: Answering) -> None:
        """Answer questions of the others from now on."""
        self._peers.answer_questions(self._kind, answer)
