"""Sends what the command of `lens run --log` prints, and how it ended."""

from __future__ import annotations

import itertools
import os
import re
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import msgspec
from lens_hook import proxies
from lens_hook.redact import text

from ..base.backoff import Backoff
from ..model.records import Event, Origin, encode_envelope
from ..plugin_api.http_answers import is_lens_refusal, is_lens_success

_KEPT_LINES = 10
_PAUSE_SECONDS = 0.5
_REQUEST_SECONDS = 2.0
_EXCEPTION = re.compile(r"(?:^|[\s\]:])((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt)(?::\s.*)?)$")
_SHELL_SIGNAL = 128


class LastLines:
    """The last lines of standard error, and the last line of either stream that reads like an error."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._error = ""
        self._lock = threading.Lock()

    def observe(self, stream: str, line: str) -> None:
        """Look at a line that the command printed."""
        found = _EXCEPTION.search(line[-2000:])
        with self._lock:
            if found:
                self._error = found.group(1)
            if stream == "stderr" and line.strip():
                self._lines.append(text(line.rstrip()))

    @property
    def ends_with_error(self) -> bool:
        """Whether the last line of standard error is that of an exception."""
        with self._lock:
            return bool(self._lines) and _EXCEPTION.search(self._lines[-1]) is not None

    def details(self, code: int) -> dict[str, Any]:
        """Details of the event about a command that ended with `code`, negative for a signal."""
        if code == 0:
            return {"exit_code": 0}
        number = -code if code < 0 else code - _SHELL_SIGNAL
        name = _signal_name(number)
        end = f"killed by {name}" if code < 0 else f"exit code {code}"
        with self._lock:
            reason = text(self._error) or (self._lines[-1] if self._lines else "")
            found: dict[str, Any] = {"exit_code": code, "reason": reason or end, "lines": list(self._lines)}
        return {**found, **({"signal": name} if name else {})}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""


def open_client(url: str, headers: Mapping[str, str], timeout_seconds: float) -> httpx.Client:
    """A client that reaches `url` as the hook does: directly, or through the proxy that PRIMUS_LENS_PROXY names.

    Raises ValueError where that proxy, the URL or a header cannot be used.
    """
    wanted = os.environ.get(proxies.VARIABLE, "").strip()
    try:
        found = proxies.proxy_for(wanted, url, os.environ) if wanted else None
    except ValueError as error:
        raise ValueError(f"{proxies.VARIABLE}: {error}") from None
    proxy = None
    if found is not None:
        login = {"Proxy-Authorization": found.login} if found.login else {}
        proxy = httpx.Proxy(f"http://{found.host}:{found.port}", headers=login)
    return httpx.Client(transport=httpx.HTTPTransport(proxy=proxy), headers=dict(headers), timeout=timeout_seconds)


def send_end(
    url: str, headers: Mapping[str, str], identity: Mapping[str, str | int], details: Mapping[str, Any], seconds: float
) -> str:
    """Post `training_ended` or `training_failed` to `url` (`…/records`), within `seconds`; the problem or nothing."""
    event = Event(
        origin=msgspec.convert(dict(identity), Origin),
        type="training_failed" if details["exit_code"] else "training_ended",
        data_source="log",
        event_time=time.time(),
        details=dict(details),
    )
    body, ends_at = encode_envelope([event]), time.monotonic() + seconds
    try:
        client = open_client(url, headers, _REQUEST_SECONDS)
    except ValueError as error:
        return str(error)
    with client:
        while True:
            try:
                answer = client.post(url, content=body, headers={"Content-Type": "application/msgpack"})
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                problem = _unreachable(url, error)
            else:
                if is_lens_success(answer.status_code, answer.content):
                    return ""
                problem = f"{url} answered {answer.status_code}"
                if is_lens_refusal(answer.status_code, answer.content) or answer.status_code == 404:
                    return problem  # 404: upstream's receiver, which takes no events
            if time.monotonic() + _PAUSE_SECONDS > ends_at:
                return problem
            time.sleep(_PAUSE_SECONDS)


def _unreachable(url: str, error: Exception) -> str:
    return f"{url} cannot be reached: {text(str(error))}"  # an error about a header may hold the token


FLUSH_SECONDS = 1.0
MAX_BATCH_LINES = 2000
MAX_BATCH_BYTES = 2 << 20
MAX_WAITING_BYTES = 16 << 20
EXIT_DEADLINE_SECONDS = 5.0
_EXIT_PAUSE_SECONDS = 0.2
MAX_EXIT_SECONDS = 60.0
_LINE_OVERHEAD_BYTES = 128  # the tuple, the time and the slot in the queue
_TOO_LARGE = 413


class LineSender:
    """Sends lines to `/logs` from a thread of its own; never makes the command wait."""

    def __init__(self, url: str, token: str, identity: Mapping[str, str | int]) -> None:
        self._url = url
        self._last = LastLines()
        self._identity = dict(identity)
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._waiting: deque[tuple[float, str, str]] = deque()
        self._bytes = 0
        self._max_batch_bytes = MAX_BATCH_BYTES
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._ends_at: float | None = None
        self._thread = threading.Thread(target=self._send_until_stopped, name="lens-log", daemon=True)
        self.dropped = 0
        self.problem = ""

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def append_line(self, stream: str, line: str) -> None:
        """Take a line; the oldest are dropped, and counted, where too many wait."""
        self._last.observe(stream, line)
        with self._lock:
            self._waiting.append((time.time(), stream, line))
            self._bytes += _line_bytes(line)
            while self._bytes > MAX_WAITING_BYTES:
                self._bytes -= _line_bytes(self._waiting.popleft()[2])
                self.dropped += 1
                self.problem = self.problem or f"more than {MAX_WAITING_BYTES >> 20} MiB waited"
        if len(self._waiting) >= MAX_BATCH_LINES:
            self._wake.set()

    def stop(self) -> None:
        """Send the rest; what is left is counted as dropped.

        Gives up 5 s after the newest batch that was accepted, and after a minute in any case.
        """
        last = time.monotonic() + MAX_EXIT_SECONDS
        self._ends_at = time.monotonic() + EXIT_DEADLINE_SECONDS
        self._wake.set()
        while self._thread.is_alive() and time.monotonic() < min(last, self._ends_at + 1):
            self._thread.join(0.1)
        with self._lock:
            left = len(self._waiting)
        if left:
            self.dropped += left
            self.problem = self.problem or f"{self._url} was too slow"

    def append_end(self, code: int) -> str:
        """Tell of the end of the command, after its lines; the problem, empty if there was none.

        A command that ends with 0 after an exception (`train.py || true`, a worker that died) tells nothing: its
        `training_ended` would stand over the `training_failed` of the hook.
        """
        if code == 0 and self._last.ends_with_error:
            return ""
        left = max(0.0, (self._ends_at or 0.0) - time.monotonic())
        url = f"{self._url.removesuffix('/logs')}/records"
        return send_end(url, self._headers, self._identity, self._last.details(code), left)

    def _send_until_stopped(self) -> None:
        try:
            client = open_client(self._url, self._headers, EXIT_DEADLINE_SECONDS)
        except ValueError as error:
            self.problem = str(error)
            return
        pause, backoff = FLUSH_SECONDS, Backoff(2 * FLUSH_SECONDS, 30.0)
        with client:
            while self._ends_at is None or (self._waiting and time.monotonic() < self._ends_at):
                self._wake.wait(pause if self._ends_at is None else _EXIT_PAUSE_SECONDS)
                self._wake.clear()
                self._send_waiting(client)
                if self.problem:
                    pause = backoff.next_delay()
                else:
                    pause = FLUSH_SECONDS
                    backoff.reset()

    def _send_waiting(self, client: httpx.Client) -> None:
        while self._waiting and self._send_batch(client):
            self.problem = ""
            if self._ends_at is not None:
                self._ends_at = time.monotonic() + EXIT_DEADLINE_SECONDS

    def _send_batch(self, client: httpx.Client) -> bool:
        """Post one batch; it leaves the queue when it is safe, or when it never will be."""
        batch = self._next_batch()
        entries = [{"date": at, "stream": stream, "message": line, **self._identity} for at, stream, line in batch]
        try:
            answer = client.post(self._url, content=msgspec.json.encode(entries))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            self.problem = _unreachable(self._url, error)
            return False
        if is_lens_success(answer.status_code, answer.content):
            self._forget(batch)
            return True
        if answer.status_code == _TOO_LARGE and len(batch) > 1:
            self._max_batch_bytes = sum(_line_bytes(line) for _, _, line in batch) // 2
            return True
        self.problem = f"{self._url} answered {answer.status_code}"
        if is_lens_refusal(answer.status_code, answer.content):
            self.dropped += len(batch)
            self._forget(batch)
        return False

    def _next_batch(self) -> list[tuple[float, str, str]]:
        """The oldest lines, at least one; as many as a request may hold."""
        batch: list[tuple[float, str, str]] = []
        size = 0
        with self._lock:
            for line in itertools.islice(self._waiting, MAX_BATCH_LINES):
                size += _line_bytes(line[2])
                if batch and size > self._max_batch_bytes:
                    break
                batch.append(line)
        return batch

    def _forget(self, batch: Sequence[tuple[float, str, str]]) -> None:
        with self._lock:
            for line in batch:
                if self._waiting and self._waiting[0] is line:  # it may have been dropped meanwhile
                    self._waiting.popleft()
                    self._bytes -= _line_bytes(line[2])


def _line_bytes(line: str) -> int:
    """Memory that a waiting line takes."""
    return sys.getsizeof(line) + _LINE_OVERHEAD_BYTES
