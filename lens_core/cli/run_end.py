"""The end of a command of `lens run --log`, as reported to Lens: exit code or signal, and the last printed error."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

import httpx
import msgspec
from lens_hook.redact import text

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
