"""Delivery: what each answer means for a batch, and when to try again."""

from __future__ import annotations

import random
import time
from typing import Any

from . import legacy, say
from .buffer import Counts
from .client import Answer, Client
from .store import Batch, count_points
from .wire import Line, envelope

_FIRST_BACKOFF_SECONDS = 1.0
_MAX_BACKOFF_SECONDS = 60.0
_REFUSED_SECONDS = 30.0
# After a request that took long the next one waits up to so many times as long: then few of a job's ranks wait for an
# answer at one time, and each request has more rows in it, which costs the receiver less.
_REST_FACTOR = 10.0
_MAX_REST_SECONDS = 20.0
_ASK_AGAIN_SECONDS = 600.0  # the time for which a receiver without /records counts as upstream's
_SAID_AFTER_FAILURES = 6  # about half a minute: a daemon that is started again is back by then
_RETRIED = frozenset({408, 421, 425, 429})
# Not the module's own: the user's seed would give all ranks the same pauses, and each pause change the user's numbers.
_rng = random.SystemRandom()


def pause_after(failures: int, retry_after_seconds: float | None) -> float:
    """Seconds until the next try after so many failures in a row: what the receiver asks for, and full jitter.

    A whole job's ranks must not come back at once, and a receiver asks all of them for the same: their pauses are
    spread over as much again, a minute at most.
    """
    asked = retry_after_seconds or 0.0
    ceiling = max(asked, _FIRST_BACKOFF_SECONDS * 2.0 ** min(failures - 1, 10))
    return asked + _rng.uniform(0.0, min(_MAX_BACKOFF_SECONDS, ceiling))


def rest_after(seconds: float) -> float:
    """Seconds until the next request, after one that took so long: a busy receiver gets fewer and fuller ones.

    With full jitter: those whom one stall held up together would come back together, and make the next one.
    """
    return _rng.uniform(0.0, min(_MAX_REST_SECONDS, _REST_FACTOR * seconds))


class Sender:
    """Sends batches and remembers how the receiver is."""

    def __init__(self, client: Client, counts: Counts) -> None:
        self._client = client
        self._counts = counts
        self._failures = 0
        self._not_before = 0.0
        self._rest_until = 0.0
        self._upstream_until = 0.0
        self._taken_bytes = 0  # the largest body that was taken
        self.last_error = ""

    @property
    def healthy(self) -> bool:
        """Whether the last request was answered as it should be."""
        return self._failures == 0

    def wait_seconds(self) -> float:
        """Return how long to wait before the next try (0: try now)."""
        return max(0.0, self._not_before - time.monotonic())

    @property
    def is_resting(self) -> bool:
        """Whether the receiver is so busy that what is not much had better wait for more."""
        return time.monotonic() < self._rest_until

    def send(self, batch: Batch, seconds: float) -> bool:
        """Send `batch`; True when it is done with (delivered, or refused for good and counted)."""
        begun = time.monotonic()
        done = self._send(batch, seconds)
        if done:
            ended = time.monotonic()
            self._rest_until = ended + rest_after(ended - begun)
        return done

    def _send(self, batch: Batch, seconds: float) -> bool:
        if not batch.lines:
            return True
        if time.monotonic() < self._upstream_until:
            return self._send_upstream(batch, seconds)
        body = _encode_batch(batch)
        answer = self._client.post("/records", body, seconds)
        if answer.status == 404:
            self._upstream_until = time.monotonic() + _ASK_AGAIN_SECONDS
            say.debug("the receiver has no /records; using /wandb/detection and /wandb/logs")
            return self._send_upstream(batch, seconds)
        if answer.status == 413 and (len(batch.lines) > 1 or self._is_too_large(answer, len(body))):
            return self._send_halves(batch, seconds)
        if self._judge(answer, batch, taken=_says_success(answer.body), refused=_is_refusal(answer)):
            self._taken_bytes = max(self._taken_bytes, len(body) if answer.status < 300 else 0)
            return True
        return False

    def _is_too_large(self, answer: Answer, size: int) -> bool:
        """Whether a 413 to a single record is to be believed: Lens says it, or a proxy that lets smaller ones pass."""
        return _is_lens_error(answer.body) or 0 < self._taken_bytes < size

    def _judge(self, answer: Answer, batch: Batch, *, taken: bool, refused: bool) -> bool:
        if 200 <= answer.status < 300 and taken:
            self._recovered()
            rejected, rejected_rows = self._count_rejected(answer.body, batch)
            rows = batch.rows() - rejected_rows
            others = len(batch.lines) - rejected - rows
            self._counts.delivered_rows += rows
            self._counts.delivered_others += others
            say.debug(f"{self._client.shown_url} has taken {rows} rows and {others} events or evidence records")
            return True
        if refused:
            self._recovered()  # it is there, and it has read the batch
            reason = _reason(answer.body)
            self._reject(batch.lines, f"the receiver refused a batch with {answer.status}{reason}")
            return True
        if answer.status in (401, 403):
            hint = "set PRIMUS_LENS_API_TOKEN" if answer.status == 401 else "the token does not allow it"
            say.once("auth", f"{self._client.shown_url} answers {answer.status}: {hint}; going on trying")
            self._failed(f"status {answer.status}", max(answer.retry_after_seconds or 0.0, _REFUSED_SECONDS))
            return False
        if answer.status in _RETRIED or answer.status >= 500 or answer.status == 0:
            self._failed(answer.error if answer.status == 0 else f"status {answer.status}", answer.retry_after_seconds)
            return False
        what = f"status {answer.status} with an answer that is not Lens'"
        self._failed(what, max(answer.retry_after_seconds or 0.0, _FIRST_BACKOFF_SECONDS))
        return False

    def _send_halves(self, batch: Batch, seconds: float) -> bool:
        if len(batch.lines) == 1:
            self._reject(batch.lines, "a single record is too large for the receiver (413)")
            return True
        # Done line by line from the front, so that a failure in the second half does not send the first again.
        half = len(batch.lines) // 2
        if not self._send(Batch(batch.origin, batch.lines[:half]), seconds):
            return False
        batch.lines = batch.lines[half:]
        return self._send(batch, seconds)

    def _send_upstream(self, batch: Batch, seconds: float) -> bool:
        while batch.lines:
            route, body, used = legacy.next_request(batch.origin, batch.lines)
            if body is not None:
                answer = self._client.post(route, body, seconds)
                if answer.status == 404:
                    self._upstream_until = 0.0
                    self._failed(
                        "status 404 for every route: does the base URL (PRIMUS_LENS_API_BASE_URL) end in /api/v1?", None
                    )
                    return False
                judged = legacy.judge(answer.status, answer.body)
                if not self._judge(answer, Batch(batch.origin, used), taken=judged is True, refused=judged is False):
                    return False
            done = {id(line) for line in used}
            batch.lines = [line for line in batch.lines if id(line) not in done]
        return True

    def _count_rejected(self, body: Any, batch: Batch) -> tuple[int, int]:
        """Count the records that the receiver has taken out of the batch, and the rows among them."""
        rejected = body.get("rejected") if isinstance(body, dict) else None
        if not isinstance(rejected, list) or not rejected:
            return 0, 0
        indexes = {item.get("index") for item in rejected if isinstance(item, dict)}
        lines = [line for index, line in enumerate(batch.lines) if index in indexes]
        reason = rejected[0].get("reason") if isinstance(rejected[0], dict) else None
        self._reject(lines, f"the receiver rejected {len(lines)} records: {str(reason)[:200]}")
        return len(lines), sum(line.is_row for line in lines)

    def _reject(self, lines: list[Line], text: str) -> None:
        rows = sum(line.is_row for line in lines)
        self._counts.rejected_rows += rows
        self._counts.lost_others += len(lines) - rows
        self._counts.dropped_points += sum(points_of(line) for line in lines)
        say.once("rejected", text)

    def _failed(self, error: str, retry_after_seconds: float | None) -> None:
        self._failures += 1
        self.last_error = error
        self._not_before = time.monotonic() + pause_after(self._failures, retry_after_seconds)
        say.debug(f"{self._client.shown_url}: {error}; next try in {self.wait_seconds():.1f} s")
        if self._failures == _SAID_AFTER_FAILURES:
            what = f"{self._client.shown_url} cannot be reached: {error}"
            say.once("away", f"{what}; going on trying (`lens doctor` looks where it stops)")

    def _recovered(self) -> None:
        if self._failures:
            say.debug(f"{self._client.shown_url} answers again after {self._failures} failed tries")
        self._failures, self._not_before, self.last_error = 0, 0.0, ""
        say.allow_again("auth")

    def try_now(self) -> None:
        """Forget the pause (the process is about to end)."""
        self._not_before = 0.0


def points_of(line: Line) -> int:
    """The metrics in a line, also in one that came from a file."""
    return line.points if line.points >= 0 else count_points(line.text)


def _encode_batch(batch: Batch) -> bytes:
    return envelope(batch.origin, (line.text for line in batch.lines))


def _says_success(body: Any) -> bool:
    return isinstance(body, dict) and body.get("success") is True


def _is_refusal(answer: Answer) -> bool:
    """Whether Lens itself refused the request for good: what else answers 400 (a proxy, a port for TLS) is not there.

    The receiver has not seen the batch then.
    """
    return answer.status in (400, 422) and _is_lens_error(answer.body)


def _is_lens_error(body: Any) -> bool:
    return isinstance(body, dict) and all(isinstance(body.get(key), str) for key in ("code", "message"))


def _reason(body: Any) -> str:
    said = body.get("meta", body) if isinstance(body, dict) else None
    text = (said.get("message") or said.get("error")) if isinstance(said, dict) else None
    return f": {text[:200]}" if isinstance(text, str) else ""
