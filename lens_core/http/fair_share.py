"""A fair share of the store for each reader: one that asks much waits for its own answers, not others for theirs.

A reader is a token, a login, or an address without either. It has a few questions answered at one time; more wait in
their order, and past a bound they are refused with 503. A question counts until its answer has been sent, so that slow
clients hold no more than their own share.
"""

from __future__ import annotations

import asyncio
import hashlib
import re

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from ..base.errors import Unavailable
from .errors import error_response

# One less than the store's default number of connections that answer questions.
QUESTIONS_AT_ONE_TIME = 3
QUESTIONS_THAT_WAIT = 256
_RETRY_SECONDS = 5.0
_QUESTIONS = re.compile(
    r"(?:/api/v1|/v1)?/(?:workloads|runs|overview|query|search|annotations|variable|tag-keys|tag-values|metrics/)"
)
_STREAM = "/stream"


class _Share:
    """One reader's questions: those that are answered, and those that wait."""

    __slots__ = ("turn", "users")

    def __init__(self) -> None:
        self.turn = asyncio.Semaphore(QUESTIONS_AT_ONE_TIME)
        self.users = 0


class FairShare:
    """Middleware: limits how many questions of one reader are answered at one time."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._shares: dict[bytes, _Share] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, a question only when its reader's turn has come."""
        if scope["type"] != "http" or not _asks_the_store(scope):
            await self._app(scope, receive, send)
            return
        reader = _reader_of(scope)
        share = self._shares.setdefault(reader, _Share())
        if share.users >= QUESTIONS_AT_ONE_TIME + QUESTIONS_THAT_WAIT:
            error = Unavailable(
                f"{share.users} questions of this reader are not answered yet; ask again later, and fewer at one time",
                retry_after_seconds=_RETRY_SECONDS,
            )
            await error_response(error)(scope, receive, send)
            return
        share.users += 1
        try:
            async with share.turn:
                await self._app(scope, receive, send)
        finally:
            share.users -= 1
            if not share.users:
                del self._shares[reader]


def _asks_the_store(scope: Scope) -> bool:
    path: str = scope["path"]
    return _QUESTIONS.match(path) is not None and not path.endswith(_STREAM)


def _reader_of(scope: Scope) -> bytes:
    """The key of a reader; a digest, because it is kept and may be made of a secret."""
    connection = HTTPConnection(scope)
    shown = connection.headers.get("authorization") or connection.headers.get("cookie")
    if shown is None:
        shown = connection.client.host if connection.client is not None else ""
    return hashlib.blake2b(shown.encode("utf-8", "surrogateescape"), digest_size=16).digest()
