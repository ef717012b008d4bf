"""Calls in both directions over a pair of pipes, many at a time, between the daemon and an isolated component.

A message is MessagePack after a length of 8 bytes, as in `isolation.py`. Each side numbers its own calls; an answer
has the number of its call. Bodies (records, requests) travel as bytes inside of a message and are encoded by whoever
calls.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from ..base import errors
from ..base.errors import LensError, RequestError
from ..base.redaction import hide
from .isolation import framed

# The time that a cancelled call may take to end.
OBEY_SECONDS = 3.0
MAX_MESSAGE_BYTES = 512 * 1024 * 1024
_REQUEST_ERRORS = {
    found.__name__: found
    for found in vars(errors).values()
    if isinstance(found, type) and issubclass(found, RequestError)
}


class ChannelClosed(LensError):
    """The other process is gone."""


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call (`method` is set), its cancellation (`cancelled`), or its answer (neither); `error` is an exception's."""

    number: int
    method: str = ""
    body: bytes = b""
    cancelled: bool = False
    error: str = ""
    error_type: str = ""
    retry_after_seconds: float | None = None


class Channel:
    """One side of the pipes.

    `write` sends a frame; `answer` does what the other side calls; `deaf` hears of a call that goes on although it was
    cancelled.
    """

    def __init__(
        self,
        write: Callable[[bytes], Awaitable[None]],
        answer: Callable[[str, bytes], Awaitable[bytes]],
        deaf: Callable[[str], None] = lambda method: None,
    ) -> None:
        self._write = write
        self._answer = answer
        self._deaf = deaf
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._serving: dict[int, asyncio.Task[None]] = {}
        self._closed = ""

    async def call(self, method: str, body: bytes = b"") -> bytes:
        """The other side's answer. Raises the error of the call, and ChannelClosed when the other process ends.

        A cancellation is passed on, and the other side has OBEY_SECONDS to obey it.
        """
        if self._closed:
            raise ChannelClosed(self._closed)
        number = next(self._numbers)
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answered
        try:
            await self._send(Message(number=number, method=method, body=body))
            await asyncio.wait({answered})
            return answered.result()
        except asyncio.CancelledError:
            if not answered.done():
                await self._cancel(number, method, answered)
            raise
        finally:
            self._waiting.pop(number, None)

    async def _cancel(self, number: int, method: str, answered: asyncio.Future[bytes]) -> None:
        try:
            await self._send(Message(number=number, cancelled=True))
            await asyncio.wait({answered}, timeout=OBEY_SECONDS)
        except ChannelClosed:
            return
        finally:
            if not answered.done() and not self._closed:
                self._deaf(method)
            if answered.done():
                answered.exception()  # it is looked at, so that asyncio does not complain

    def receive(self, frame: bytes) -> None:
        """Take up one message of the other side."""
        message = msgspec.msgpack.decode(frame, type=Message)
        if message.method:
            task = asyncio.ensure_future(self._serve(message))
            self._serving[message.number] = task
            task.add_done_callback(lambda _: self._serving.pop(message.number, None))
        elif message.cancelled:
            if (serving := self._serving.get(message.number)) is not None:
                serving.cancel()
        else:
            self._settle(message)

    def close(self, reason: str) -> None:
        """End: whoever waits for an answer hears why none will come, and what is being done for the other side ends."""
        self._closed = self._closed or reason
        for answered in [*self._waiting.values()]:
            if not answered.done():
                answered.set_exception(ChannelClosed(self._closed))
        for serving in [*self._serving.values()]:
            serving.cancel()

    def _settle(self, message: Message) -> None:
        answered = self._waiting.get(message.number)
        if answered is None or answered.done():
            return  # it was cancelled meanwhile
        if message.error_type:
            answered.set_exception(decode_error(message))
        else:
            answered.set_result(message.body)

    async def _serve(self, call: Message) -> None:
        try:
            answer = Message(number=call.number, body=await self._answer(call.method, call.body))
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets it
            answer = encode_error(call.number, error)
        except asyncio.CancelledError:
            answer = encode_error(call.number, LensError("cancelled"))
        except SystemExit as error:
            answer = encode_error(call.number, LensError(f"called sys.exit({error.code!r})"))
        if not self._closed:
            await self._send(answer)

    async def _send(self, message: Message) -> None:
        try:
            await self._write(framed(msgspec.msgpack.encode(message)))
        except (ConnectionError, BrokenPipeError, RuntimeError) as error:
            raise ChannelClosed(self._closed or f"the pipe is broken: {error}") from None


def encode_error(number: int, error: BaseException) -> Message:
    """An exception as an answer; the text of one that is not Lens' own names its type."""
    text = hide(str(error))[:2000]
    if isinstance(error, RequestError) and type(error).__name__ in _REQUEST_ERRORS:
        return Message(
            number=number,
            error=text,
            error_type=type(error).__name__,
            retry_after_seconds=error.retry_after_seconds,
        )
    if not isinstance(error, LensError):
        text = f"{type(error).__name__}: {' '.join(text.split())}" if text else type(error).__name__
    return Message(number=number, error=text, error_type="LensError")


def decode_error(message: Message) -> LensError:
    """The exception that an answer stands for."""
    kind: Any = _REQUEST_ERRORS.get(message.error_type)
    if kind is None:
        return LensError(message.error)
    if message.retry_after_seconds is None:
        return kind(message.error)  # type: ignore[no-any-return]
    return kind(message.error, retry_after_seconds=message.retry_after_seconds)  # type: ignore[no-any-return]
