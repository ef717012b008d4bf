"""Translates the HTTP answer of a sink's receiver into an answer for the batch."""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from .sink_answers import Poisoned, Retry

# The only statuses by which a receiver can mean the records of a request. Every other failure is one of the way to it
# (an address, a key, an account, a proxy) or of its health: a person fixes it, or time; the records wait until then.
ABOUT_RECORDS = frozenset({400, 409, 413, 422})
_KEYS = frozenset({401, 403, 407})
_ADDRESSES = frozenset({404, 405, 406, 410, 415, 421, 426})
# Answers of TLS ports to plain HTTP, with a status of 400: Go's server, nginx, Envoy, Jetty.
_TLS_EXPECTED = re.compile(
    rb"http request to an https server|plain http request was sent to (?:an )?(?:https|tls|ssl)|"
    rb"requires? tls|plain http was sent|speaking plain http to an ssl",
    re.IGNORECASE,
)

# Whoever is between, or the other side itself, waited for the end of the request or of its work in vain.
_TIMED_OUT = (408, 504)


def refusal(status: int, headers: Mapping[str, str], body: bytes) -> Retry | Poisoned:
    """The meaning of an answer that is no success; the names of `headers` are in small letters, or are not told apart.

    Refused are records by 400, 409, 413 and 422 alone; what any other status says, and every web page, is an outage.
    """
    return outage(status, headers, body) or Poisoned(describe_answer(status, body))


def outage(status: int, headers: Mapping[str, str], body: bytes) -> Retry | None:
    """The answer for a batch after a failure that says nothing about its records; None for one that may.

    Its reason says what to fix: a key, an address, the receiver. Since API 1.3.
    """
    hint = ""
    if is_web_page(headers, body):
        hint = "a web page is no answer of the receiver; does the url lead there?"
    elif status == 400 and _TLS_EXPECTED.search(body[:400]):
        hint = "the port expects TLS; set the url to https://"
    elif status in ABOUT_RECORDS:
        return None
    elif status in _KEYS:
        hint = "the receiver does not accept the key; set the right token, user or header"
    elif status in _ADDRESSES:
        hint = "nothing takes records at this address; check the url"
    elif 300 <= status < 400:
        hint = "a redirect is not followed; set the url to where it leads"
    reason = describe_answer(status, body)
    pause = retry_after_seconds(headers.get("retry-after", ""), time.time())
    return Retry(f"{reason} ({hint})" if hint else reason, pause, timed_out=status in _TIMED_OUT)


def describe_answer(status: int, body: bytes) -> str:
    """A status and the beginning of a body, in one line."""
    text = " ".join(body[:200].decode(errors="replace").split())
    return f"HTTP {status}: {text}" if text else f"HTTP {status}"


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
