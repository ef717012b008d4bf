from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lens_core import Retry
from lens_core.plugin_api.http_answers import is_lens_refusal, is_lens_success, outage, refusal, retry_after_seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("7", 7.0), ("", None), ("soon", None), ("Thu, 01 Jan 1970 00:01:40 GMT", 90.0), ("-5", None)],
)
def test_retry_after_in_both_forms(text: str, seconds: float | None) -> None:
    assert retry_after_seconds(text, 10.0) == seconds


@given(status=st.integers(100, 599), text=st.text(max_size=50))
def test_a_web_page_is_neither_success_nor_refusal(status: int, text: str) -> None:
    page = f"<html>{text}</html>".encode()
    assert not is_lens_success(status, page)
    assert not is_lens_refusal(status, page)
    assert isinstance(refusal(status, {}, page), Retry)
    assert isinstance(refusal(status, {"content-type": "text/html; charset=utf-8"}, text.encode()), Retry)


@given(status=st.integers(100, 599), body=st.binary(max_size=50) | st.sampled_from([b'{"message": "no"}', b"[]"]))
def test_only_lens_own_error_shape_is_a_refusal(status: int, body: bytes) -> None:
    assert not is_lens_refusal(status, body)


@given(status=st.integers(300, 599), body=st.binary(max_size=50))
def test_only_what_can_be_about_the_records_refuses_them(status: int, body: bytes) -> None:
    answer = refusal(status, {}, body)
    assert isinstance(answer, Retry) or status in (400, 409, 413, 422)
    assert answer.reason.startswith(f"HTTP {status}")


@pytest.mark.parametrize(
    ("status", "body", "hint"),
    [
        (401, b"", "key"),
        (403, b"", "key"),
        (404, b"404 page not found", "url"),
        (405, b"", "url"),
        (308, b"", "redirect"),
        (400, b"Client sent an HTTP request to an HTTPS server.\n", "https://"),
        (400, b"The plain HTTP request was sent to HTTPS port", "https://"),
        (400, b"This combination of host and port requires TLS.", "https://"),
    ],
)
def test_an_outage_says_what_to_mend(status: int, body: bytes, hint: str) -> None:
    answer = outage(status, {}, body)
    assert answer is not None
    assert hint in answer.reason


def test_lens_answers_are_known() -> None:
    assert is_lens_refusal(400, b'{"code": "RequestParameterInvalid", "message": "no"}')
    assert not is_lens_refusal(503, b'{"code": "Unavailable", "message": "later"}')
    assert is_lens_success(200, b'{"success": true, "accepted": 1, "rejected": []}')
    assert not is_lens_success(200, b'{"success": false}')
