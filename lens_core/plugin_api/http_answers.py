"""What the HTTP answer of a sink's other side means for a batch."""

from __future__ import annotations

import email.utils
import time
from collections.abc import Mapping

from .sink_answers import Poisoned, Retry

# What a person mends (a token, an address), or time.
_MENDED_BY_SOMEBODY = (401, 403, 404, 408, 425, 429)

# Whoever is between, or the other side itself, waited for the end of the request or of its work in vain.
_TIMED_OUT = (408, 504)


def refusal(status: int, headers: Mapping[str, str], body: bytes) -> Retry | Poisoned:
    """The meaning of an answer that is no success; the names of `headers` are in small letters, or are not told apart.

    Retried: 5xx, 408, 425, 429, and 401, 403, 404, which a person mends. Other 4xx will never be taken.
    """
    reason = f"HTTP {status}: {body[:200].decode(errors='replace')}"
    if status >= 500 or status in _MENDED_BY_SOMEBODY:
        pause = retry_after_seconds(headers.get("retry-after", ""), time.time())
        return Retry(reason, pause, timed_out=status in _TIMED_OUT)
    if status < 400:
        return Retry(f"{reason} (a redirect is not followed; set the url to where it leads)")
    return Poisoned(reason)


def retry_after_seconds(text: str, now: float) -> float | None:
    """The header Retry-After, in its two forms: seconds, or a date."""
    if text.strip().isdigit():
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - now)
    except (TypeError, ValueError):
        return None
