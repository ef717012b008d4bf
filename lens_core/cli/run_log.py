"""Follows the command of `lens run`: its log, and how it ended."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any, BinaryIO

import click
import httpx
import msgspec
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

    def details(self, code: int) -> dict[str, Any]:
        """Details of the event about a command that ended with `code`, negative for a signal."""
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


def send_failure(
    url: str, headers: Mapping[str, str], identity: Mapping[str, str], details: Mapping[str, Any], seconds: float
) -> str:
    """Post the event `training_failed` to `url` (`…/records`), within `seconds`; the problem, empty when it arrived."""
    event = Event(
        origin=msgspec.convert(dict(identity), Origin),
        type="training_failed",
        data_source="log",
        event_time=time.time(),
        details=dict(details),
    )
    body, ends_at = encode_envelope([event]), time.monotonic() + seconds
    with httpx.Client(timeout=_REQUEST_SECONDS, headers=dict(headers)) as client:
        while True:
            try:
                answer = client.post(url, content=body, headers={"Content-Type": "application/msgpack"})
            except httpx.HTTPError as error:
                problem = f"{url} cannot be reached: {error}"
            else:
                if is_lens_success(answer.status_code, answer.content):
                    return ""
                problem = f"{url} answered {answer.status_code}"
                if is_lens_refusal(answer.status_code, answer.content) or answer.status_code == 404:
                    return problem  # 404: upstream's receiver, which takes no events
            if time.monotonic() + _PAUSE_SECONDS > ends_at:
                return problem
            time.sleep(_PAUSE_SECONDS)


FLUSH_SECONDS = 1.0
MAX_BATCH_LINES = 2000
MAX_WAITING_BYTES = 16 << 20
EXIT_DEADLINE_SECONDS = 5.0
_PIECE_BYTES = 64 * 1024
_MAX_LINE_BYTES = 1 << 20
_ENDS = re.compile(rb"[\r\n]+")


class LineSender:
    """Sends lines to `/logs` from a thread of its own; never makes the command wait."""

    def __init__(self, url: str, token: str, identity: Mapping[str, str]) -> None:
        self._url = url
        self._last = LastLines()
        self._identity = dict(identity)
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._waiting: deque[tuple[float, str, str]] = deque()
        self._bytes = 0
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
            self._bytes += len(line)
            while self._bytes > MAX_WAITING_BYTES:
                self._bytes -= len(self._waiting.popleft()[2])
                self.dropped += 1
        if len(self._waiting) >= MAX_BATCH_LINES:
            self._wake.set()

    def stop(self) -> None:
        """Send the rest within the deadline; what is left then is counted as dropped."""
        self._ends_at = time.monotonic() + EXIT_DEADLINE_SECONDS
        self._wake.set()
        self._thread.join(EXIT_DEADLINE_SECONDS + 1)
        self.dropped += len(self._waiting)

    def append_end(self, code: int) -> None:
        """Tell of a command that failed, after its lines; nothing of one that ended well."""
        if code and self._ends_at is not None:
            url = f"{self._url.removesuffix('/logs')}/records"
            left = max(0.0, self._ends_at - time.monotonic())
            self.problem = send_failure(url, self._headers, self._identity, self._last.details(code), left)

    def _send_until_stopped(self) -> None:
        pause, backoff = FLUSH_SECONDS, Backoff(2 * FLUSH_SECONDS, 30.0)
        with httpx.Client(timeout=EXIT_DEADLINE_SECONDS, headers=self._headers) as client:
            while self._ends_at is None or (self._waiting and time.monotonic() < self._ends_at):
                self._wake.wait(pause if self._ends_at is None else min(pause, 0.2))
                if self._ends_at is None:
                    self._wake.clear()
                while self._waiting and self._send_batch(client):
                    self.problem = ""
                if self.problem:
                    pause = backoff.next_delay()
                else:
                    pause = FLUSH_SECONDS
                    backoff.reset()

    def _send_batch(self, client: httpx.Client) -> bool:
        """Post one batch; it leaves the queue when it is safe, or when it never will be."""
        with self._lock:
            batch = [self._waiting[index] for index in range(min(len(self._waiting), MAX_BATCH_LINES))]
        entries = [{"date": at, "stream": stream, "message": line, **self._identity} for at, stream, line in batch]
        try:
            answer = client.post(self._url, content=msgspec.json.encode(entries))
        except httpx.HTTPError as error:
            self.problem = f"{self._url} cannot be reached: {error}"
            return False
        refused = is_lens_refusal(answer.status_code, answer.content)
        if not is_lens_success(answer.status_code, answer.content):
            self.problem = f"{self._url} answered {answer.status_code}"
            if not refused:
                return False
            self.dropped += len(batch)
        self._forget(batch)
        return not refused

    def _forget(self, batch: Sequence[tuple[float, str, str]]) -> None:
        with self._lock:
            for line in batch:
                if self._waiting and self._waiting[0] is line:  # it may have been dropped meanwhile
                    self._waiting.popleft()
                    self._bytes -= len(line[2])


def run_and_log(command: Sequence[str], environment: Mapping[str, str], sender: LineSender) -> int:
    """Run a command, pass its output on and send it; the exit code as a shell would have it.

    SIGTERM and SIGHUP go on to the command; SIGINT reaches it from the terminal by itself.
    """
    process = subprocess.Popen(command, env=dict(environment), stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def pass_on(number: int, frame: FrameType | None) -> None:
        process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGTERM, signal.SIGHUP)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
    sender.start()
    assert process.stdout is not None
    assert process.stderr is not None
    readers = [
        threading.Thread(target=_pass_through, args=(process.stdout, sys.stdout.buffer, "stdout", sender)),
        threading.Thread(target=_pass_through, args=(process.stderr, sys.stderr.buffer, "stderr", sender)),
    ]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    code = process.wait()
    for number, handler in before.items():
        signal.signal(number, handler)
    sender.stop()
    if sender.dropped:
        why = f": {sender.problem}" if sender.problem else ""
        click.echo(f"lens: {sender.dropped} lines of output were not sent{why}", err=True)
    sender.append_end(code)
    return 128 - code if code < 0 else code


def _pass_through(source: BinaryIO, target: BinaryIO, stream: str, sender: LineSender) -> None:
    """Copy piece by piece, so that a progress bar moves as it did; send what ends with a line feed or a return."""
    rest = b""
    is_open = True
    while piece := os.read(source.fileno(), _PIECE_BYTES):
        is_open = is_open and _write_piece(target, piece)
        *lines, rest = _ENDS.split(rest + piece)
        if len(rest) > _MAX_LINE_BYTES:
            lines, rest = [*lines, rest], b""
        for line in lines:
            if line:
                sender.append_line(stream, line.decode("utf-8", "replace"))
    if rest:
        sender.append_line(stream, rest.decode("utf-8", "replace"))
    source.close()


def _write_piece(target: BinaryIO, piece: bytes) -> bool:
    """Whether somebody still reads our output (`lens run ... | head` does not to the end)."""
    try:
        target.write(piece)
        target.flush()
    except (BrokenPipeError, ValueError):
        return False
    return True
