"""The connection to NATS: made, watched and closed here; every error of the client becomes one of Lens' own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import datetime
from typing import Any, NamedTuple

import nats
import nats.errors
import nats.js.errors
from nats.aio.client import NO_RESPONDERS_STATUS, Client
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext, api

from ..base.errors import LensError, Overloaded
from ..config.settings import ClusterSettings
from .replies import Replies

logger = logging.getLogger("lens.cluster")

CONNECT_SECONDS = 10.0
CREATE_SECONDS = 20.0
REQUEST_SECONDS = 5.0
RECONNECT_SECONDS = 1.5
NOBODY_ANSWERS = "no server answers for its streams: deleted, or the disk was full, until the servers are restarted"
_WRONG_LAST_SEQUENCE = 10071
# A header of each message that is read: how many of those that were asked for follow it.
PENDING = "Nats-Num-Pending"
_LOG_IS_FULL = frozenset({10077, 10023, 10047})
CLIENT_ERRORS = (nats.errors.Error, nats.js.errors.Error, asyncio.TimeoutError, OSError)


class Fenced(LensError):
    """Another daemon has written here since: what this one believes of it is out of date."""


class LogFull(Overloaded):
    """The log takes nothing until a required sink has caught up."""


class LogMessage(NamedTuple):
    """A message of a stream; `stored_at` is the server's time in seconds since 1970."""

    sequence: int
    subject: str
    stored_at: float
    headers: dict[str, str]
    body: bytes


class Connection:
    """One client of the NATS cluster for the whole daemon."""

    def __init__(self, settings: ClusterSettings) -> None:
        self.settings = settings
        self._client = Client()
        self._replies = Replies(self._client)
        self._jetstream: JetStreamContext | None = None
        self._last_error: Exception | None = None
        self._on_reconnect: list[Callable[[], None]] = []

    async def connect(self) -> None:
        """Connect to any of the servers. Raises LensError."""
        settings = self.settings
        # A server that fell silent without a word is left in the time of a lease, not in four minutes.
        options: dict[str, Any] = {
            "reconnect_time_wait": 0.25,
            "ping_interval": max(1.0, settings.lease_seconds / 4),
            "max_outstanding_pings": 2,
        }
        if settings.user is not None and settings.password is not None:
            options |= {"user": settings.user, "password": settings.password.reveal()}
        if settings.token is not None:
            options["token"] = settings.token.reveal()
        if settings.credentials is not None:
            options["user_credentials"] = _check_readable("credentials", settings.credentials)
        if settings.tls_ca is not None:
            options["tls"] = _tls_context(_check_readable("tls_ca", settings.tls_ca))
        try:
            await asyncio.wait_for(
                self._client.connect(
                    servers=list(settings.nats),
                    name="lens",
                    max_reconnect_attempts=-1,
                    error_cb=self._note_error,
                    disconnected_cb=self._note_disconnect,
                    reconnected_cb=self._note_reconnect,
                    **options,
                ),
                CONNECT_SECONDS,
            )
        except ImportError as error:
            raise LensError(f"cluster.credentials: they need a package: pip install {error.name}") from None
        except ValueError as error:
            raise LensError(f"cluster.credentials: {settings.credentials} holds no credentials: {error}") from None
        except CLIENT_ERRORS as error:
            await self._client.close()
            servers = ", ".join(settings.nats)
            reason = describe_client_error(self._last_error or error)
            raise LensError(f"cluster.nats: no server can be reached ({servers}): {reason}") from None
        self._jetstream = self._client.jetstream(timeout=REQUEST_SECONDS)
        await self._replies.start()

    def call_on_reconnect(self, act: Callable[[], None]) -> None:
        """Act each time that the connection is there again: what others have told meanwhile was not heard."""
        self._on_reconnect.append(act)

    async def _note_error(self, error: Exception) -> None:
        self._last_error = error
        logger.debug("NATS: %s", describe_client_error(error))

    async def _note_disconnect(self) -> None:
        if not self._client.is_closed:
            logger.warning("The connection to NATS is lost; another server is tried.")
        self._replies.give_up()

    async def _note_reconnect(self) -> None:
        logger.info("NATS is connected again.")
        for act in self._on_reconnect:
            act()

    async def close(self) -> None:
        """Close the connection; what was published is sent before."""
        if self._client.is_connected:
            try:
                await asyncio.wait_for(self._client.flush(), 1.0)
            except CLIENT_ERRORS:
                logger.debug("The last messages may not have been sent.")
        try:
            await self._client.close()
        except CLIENT_ERRORS:
            # A server that went away meanwhile: the client stops half way, and takes itself for closed.
            self._client._status = Client.DISCONNECTED
            await self._client.close()

    @property
    def jetstream(self) -> JetStreamContext:
        """The JetStream API; raises Overloaded while there is no connection."""
        if self._jetstream is None:
            raise Overloaded("NATS is not connected")
        return self._jetstream

    @property
    def is_connected(self) -> bool:
        """Whether some server can be asked now."""
        return bool(self._client.is_connected)

    @property
    def max_payload(self) -> int:
        """The largest message in bytes that the servers take."""
        return int(self._client.max_payload)

    async def notify(self, subject: str, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        """Send a message that nobody has to get."""
        try:
            await self._client.publish(subject, body, headers=headers)
        except CLIENT_ERRORS as error:
            logger.debug("A notice was not sent. subject=%s error=%s", subject, error)

    async def receive_replies(
        self, subject: str, body: bytes, headers: dict[str, str], seconds: float
    ) -> AsyncGenerator[tuple[dict[str, str], bytes], None]:
        """Publish a question and yield headers and body of each reply until the time is up. Raises Overloaded."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + seconds
        if not self.is_connected:
            raise Overloaded("NATS is not connected")
        try:
            inbox = self._client.new_inbox()
            subscription = await self._client.subscribe(inbox)
            try:
                await self._client.publish(subject, body, reply=inbox, headers=headers)
                while (left := ends - loop.time()) > 0:
                    message = await subscription.next_msg(timeout=left)
                    yield dict(message.headers or {}), message.data
            finally:
                await subscription.unsubscribe()
        except (nats.errors.TimeoutError, asyncio.TimeoutError):
            return
        except CLIENT_ERRORS as error:
            raise Overloaded(f"NATS does not answer: {describe_client_error(error)}") from None

    async def subscribe(self, subject: str, callback: Any) -> Subscription:
        """Call `callback(message)` for each message that is published there from now on. Raises Overloaded."""
        try:
            return await self._client.subscribe(subject, cb=callback)
        except CLIENT_ERRORS as error:
            raise Overloaded(f"NATS does not answer: {describe_client_error(error)}") from None

    async def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription; a connection that is closed has none."""
        with contextlib.suppress(*CLIENT_ERRORS):
            await subscription.unsubscribe()

    async def ensure_stream(self, name: str, create: Callable[[], Awaitable[object]]) -> api.StreamInfo:
        """Find a stream, or make it, and wait until it has a leader. Raises LensError.

        Several daemons may do so at once, while the servers are still starting.
        """
        ends = asyncio.get_running_loop().time() + CREATE_SECONDS
        while True:
            try:
                info = await self.jetstream.stream_info(name)
                if info.cluster is None or info.cluster.leader:
                    return info
                reason = "it has no leader"
            except nats.js.errors.NotFoundError:
                reason = await self._create_stream(create)
            except CLIENT_ERRORS as error:
                reason = describe_client_error(error)
            if asyncio.get_running_loop().time() > ends:
                raise LensError(f"cluster.nats: the stream {name} cannot be made: {reason}")
            await asyncio.sleep(0.2 if reason else 0.0)

    async def _create_stream(self, create: Callable[[], Awaitable[object]]) -> str:
        """Why it could not be made now; '' if it was."""
        try:
            await create()
        except CLIENT_ERRORS as error:
            return describe_client_error(error)
        return ""

    async def append_message(self, stream: str, subject: str, body: bytes, headers: dict[str, str]) -> int:
        """Append a message to a stream and return its sequence once a majority has it on disk.

        Raises Fenced where an expected sequence is not the last one, LogFull, and Overloaded for all else.
        """
        await self._wait_until_connected()
        try:
            ack = await self.jetstream.publish(subject, body, timeout=REQUEST_SECONDS, stream=stream, headers=headers)
        except nats.js.errors.APIError as error:
            if error.err_code == _WRONG_LAST_SEQUENCE:
                raise Fenced(f"another daemon writes {subject}") from None
            if error.err_code in _LOG_IS_FULL or "maximum" in (error.description or ""):
                raise LogFull("the log is full because of a required sink", retry_after_seconds=2.0) from None
            raise Overloaded(f"NATS refused: {describe_client_error(error)}", retry_after_seconds=1.0) from None
        except CLIENT_ERRORS as error:
            raise Overloaded(f"NATS does not answer: {describe_client_error(error)}", retry_after_seconds=1.0) from None
        return int(ack.seq)

    async def _wait_until_connected(self) -> None:
        """Wait a moment for another server: what is published meanwhile is sent later, when nobody waits for it.

        Raises Overloaded.
        """
        ends = asyncio.get_running_loop().time() + RECONNECT_SECONDS
        while not self.is_connected:
            if asyncio.get_running_loop().time() > ends:
                raise Overloaded("NATS is not connected", retry_after_seconds=1.0)
            await asyncio.sleep(0.05)

    async def read_messages(
        self, stream: str, subject: str, after: int, *, messages: int = 256, size: int = 1024 * 1024
    ) -> list[LogMessage]:
        """The messages of a subject (with wildcards) after a sequence, as many as that at most.

        Any replica may answer: what was appended just now may not be among them yet. Raises Overloaded.
        """
        question = {"seq": after + 1, "next_by_subj": subject, "batch": messages, "max_bytes": size}
        loop = asyncio.get_running_loop()
        ends = loop.time() + RECONNECT_SECONDS
        while (found := await self._ask_many(stream, question)) is None:
            if loop.time() > ends:
                raise Overloaded(f"NATS does not answer: {NOBODY_ANSWERS}")
            await asyncio.sleep(0.05)
        return found

    async def read_newest(self, stream: str, subject: str) -> LogMessage | None:
        """The last message of one subject as the stream's leader has it, so that nothing newer exists."""
        try:
            found = await self.jetstream.get_last_msg(stream, subject)
        except nats.js.errors.NotFoundError:
            return None
        except CLIENT_ERRORS as error:
            raise Overloaded(f"NATS does not answer: {describe_client_error(error)}") from None
        return LogMessage(found.seq or 0, subject, 0.0, dict(found.headers or {}), found.data or b"")

    async def _ask_many(self, stream: str, question: dict[str, Any]) -> list[LogMessage] | None:
        """The messages that a replica has; None where this server knows of none yet: the stream was made just now."""
        found: list[LogMessage] = []
        replies = self._replies.receive_replies(
            f"$JS.API.DIRECT.GET.{stream}", json.dumps(question).encode(), REQUEST_SECONDS
        )
        try:
            async with contextlib.aclosing(replies):
                async for message in replies:
                    headers = dict(message.headers or {})
                    if status := headers.get("Status"):
                        if status in ("204", "404"):
                            return found
                        if status == NO_RESPONDERS_STATUS:
                            return None
                        raise Overloaded(f"NATS refused to read: {status} {headers.get('Description', '')}")
                    before = found[-1].sequence if found else 0
                    if int(headers.get("Nats-Last-Sequence", before)) != before and "seq" in question:
                        return found  # a route between servers broke: what is missing is asked for next
                    found.append(_log_message(headers, message.data))
            return found
        except CLIENT_ERRORS as error:
            # The messages received until then are whole and in order: the rest is fetched next.
            if found:
                return found
            raise Overloaded(f"NATS does not answer: {describe_client_error(error)}") from None


def peers_of(info: api.StreamInfo) -> list[str]:
    """The names of the servers that a stream lies on; empty for a single server."""
    if info.cluster is None:
        return []
    peers = [info.cluster.leader or "", *(peer.name for peer in info.cluster.replicas or [])]
    return [peer for peer in peers if peer]


def describe_client_error(error: BaseException) -> str:
    """An error of the client in one line, without what it was given."""
    if isinstance(error, nats.js.errors.NoStreamResponseError | nats.js.errors.ServiceUnavailableError):
        return NOBODY_ANSWERS
    description = getattr(error, "description", None)
    text = str(description or error).strip()
    return text.splitlines()[0][:300] if text else type(error).__name__


def _log_message(headers: dict[str, str], body: bytes) -> LogMessage:
    return LogMessage(
        int(headers["Nats-Sequence"]), headers["Nats-Subject"], _seconds(headers["Nats-Time-Stamp"]), headers, body
    )


def _seconds(text: str) -> float:
    """Seconds since 1970 of RFC 3339 in UTC with up to nine digits of a fraction."""
    whole, _, fraction = text.rstrip("Z").partition(".")
    return datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{fraction or 0}")


def _check_readable(setting: str, path: str) -> str:
    """The path of a file that can be read. Raises LensError."""
    try:
        with open(path, "rb") as file:
            file.read(1)
    except OSError as error:
        raise LensError(f"cluster.{setting}: {path} cannot be read: {error.strerror}") from None
    return path


def _tls_context(ca: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except ssl.SSLError as error:
        raise LensError(f"cluster.tls_ca: {ca} holds no certificate in PEM: {error.reason or error}") from None
