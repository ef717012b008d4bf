"""Cancels the work on a question whose client has closed the connection."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class CancelOnDisconnect:
    """Middleware of a route that only reads: cancels the endpoint, and its answer, once the client has gone.

    A store sees the cancellation where it waits: psycopg has PostgreSQL cancel the statement and gives the connection
    back. It arrives exactly once, because a second one would interrupt that.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, unless the client goes first; what was raised is raised."""
        messages: asyncio.Queue[Message] = asyncio.Queue(maxsize=1)
        is_answered = False

        async def send_and_note(message: Message) -> None:
            nonlocal is_answered
            is_answered |= message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        async def watch() -> None:
            while (message := await receive())["type"] != "http.disconnect":
                await messages.put(message)
            if not is_answered:  # after the end of an answer a server says "disconnect", too
                answering.cancel()

        # From 2.4 on Starlette's streams leave it to the server to see that a client is gone. What they do before that
        # cancels repeatedly.
        scope = {**scope, "asgi": {**scope["asgi"], "spec_version": "2.4"}}
        answering = asyncio.create_task(_run_app(self._app, scope, messages.get, send_and_note))
        watching = asyncio.create_task(watch())
        try:
            await asyncio.wait([answering])
        finally:
            watching.cancel()
            if not answering.done():
                answering.cancel()
                await asyncio.wait([answering])
        if not answering.cancelled():
            answering.result()


async def _run_app(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    await app(scope, receive, send)
