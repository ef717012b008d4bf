"""Answers requests while a daemon exchanges its configuration, and lets a command wait for the end of that."""

from __future__ import annotations

import asyncio

import httpx
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from ..base.errors import LensError, Unavailable
from ..http.errors import error_response

RELOADING = "reloading"
EXCHANGE_SECONDS = 120.0
LOOK_SECONDS = 0.1


async def answer_meanwhile(scope: Scope, receive: Receive, send: Send) -> None:
    """The application while a configuration is exchanged: alive, and not ready."""
    response: Response
    if scope.get("path") == "/livez":  # else whoever watches the process would end it
        response = PlainTextResponse("ok\n")
    elif scope.get("path") == "/readyz":
        response = PlainTextResponse(f"{RELOADING}\n", 503)
    else:
        response = error_response(Unavailable("the configuration is being exchanged", retry_after_seconds=1))
    await response(scope, receive, send)


async def wait_for_exchange(url: str) -> None:
    """Return once a daemon exchanges no configuration; whatever else keeps it from being ready is not waited for.

    Raises LensError where the exchange does not end.
    """
    ends = asyncio.get_running_loop().time() + EXCHANGE_SECONDS
    async with httpx.AsyncClient(verify=False, trust_env=False) as client:  # of this machine; nothing is told to it
        while True:
            try:
                answer = await client.get(f"{url}/readyz")
            except httpx.HTTPError:
                return
            if answer.text.strip() != RELOADING:
                return
            if asyncio.get_running_loop().time() > ends:
                raise LensError(f"the daemon on {url} exchanges its configuration; try again when it is ready")
            await asyncio.sleep(LOOK_SECONDS)
