"""Translates the HTTP answer of a sink's receiver into an answer for the batch."""

from __future__ import annotations

import email.utils
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from .sink_answers import Poisoned, Retry

# What a person mends (a token, an address), or time.
_MENDED_BY_SOMEBODY = (401, 403, 404, 408, 425, 429)

# Whoever is between, or the other side itself, waited for the end of the request or of its work in vain.
_TIMED_OUT = (408, 504)


def refusal(status: int, headers: Mapping[str, str], body: bytes) -> Retry | Poisoned:
    """The meaning of an answer that is no success; the names of `headers` are in small letters, or are not told apart.

    Retried: 5xx, 408, 425, 429, and 401, 403, 404, which a person mends; and every web page, which a proxy or a
    server at a wrong address sends. Other 4xx will never be taken.
    """
    reason = f"HTTP {status}: {body[:200].decode(errors='replace')}"
    if is_web_page(headers, body):
        return Retry(f"{reason} (a web page is no answer of the receiver; does the url lead there?)")
    if status >= 500 or status in _MENDED_BY_SOMEBODY:
        pause = retry_after_seconds(headers.get("retry-after", ""), time.time())
        return Retry(reason, pause, timed_out=status in _TIMED_OUT)
    if status < 400:
        return Retry(f"{reason} (a redirect is not followed; set the url to where it leads)")
    return Poisoned(reason)


def is_web_page(headers: Mapping[str, str], body: bytes) -> bool:
    """Whether an answer is a page for people: a proxy's, a login's, or that of a server that is no receiver."""
    return headers.get("content-type", "").lower().startswith("text/html") or body[:200].lstrip().startswith(b"<")


def is_lens_success(status: int, body: bytes) -> bool:
    """Whether a request was taken: a 2xx with a JSON object that does not say otherwise, as every Lens answers."""
    answer = _json_object(body)
    return 200 <= status < 300 and answer is not None and answer.get("success") is not False


def is_lens_refusal(status: int, body: bytes) -> bool:
    """Whether a Lens says that it will never take this request: a status that means so, and its own error shape.

    Anything else that answers 400 (a proxy, a port that expects TLS) knows nothing about the request.
    """
    error = _json_object(body) or {}
    return status in (400, 413, 415, 422) and all(isinstance(error.get(key), str) for key in ("code", "message"))


def _json_object(body: bytes) -> dict[str, Any] | None:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.DecodeError:
        return None


def retry_after_seconds(text: str, now: float) -> float | None:
    """The header Retry-After, in its two forms: seconds, or a date."""
    if text.strip().isdigit():
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - now)
    except (TypeError, ValueError):
        return None
