"""Messages around the pickles: what is written is read, and damage is an error of one kind."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lens_plugins.dlrover import Report, report_from_wire, report_to_wire
from lens_plugins.dlrover.messages import (
    BadMessage,
    Request,
    decode_grpc,
    decode_grpc_response,
    decode_http,
    decode_http_response,
    encode_grpc,
    encode_grpc_response,
    encode_http,
    encode_http_response,
)

texts = st.text(st.characters(codec="utf-8"), max_size=50)
requests = st.builds(Request, st.integers(-(2**31), 2**31 - 1), texts, st.binary(max_size=100))


@given(requests)
def test_requests(request: Request) -> None:
    assert decode_grpc(encode_grpc(request)) == request
    assert decode_http(encode_http(request)) == request


@given(st.booleans(), texts, st.binary(max_size=50))
def test_answers(success: bool, reason: str, data: bytes) -> None:
    assert decode_grpc_response(encode_grpc_response(success, reason)) == (success, reason)
    assert decode_http_response(encode_http_response(success, data)) == (success, data)


@given(st.builds(Report, timestamp=st.integers(0, 2**40), data_type=texts, data_content=texts, node_rank=st.integers()))
def test_reports(report: Report) -> None:
    assert report_from_wire(report_to_wire(report)) == report


@pytest.mark.parametrize("decode", [decode_grpc, decode_grpc_response, decode_http, decode_http_response])
@given(body=st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_bytes_are_a_message_or_an_error(decode: Callable[[bytes], Any], body: bytes) -> None:
    with contextlib.suppress(BadMessage):
        decode(body)


def test_a_report_of_a_newer_dlrover_is_read() -> None:
    wire = report_to_wire(Report(data_type="X"))
    wire.fields["data_content"] = '{"data_type": "X", "node_rank": "3", "something_new": [1]}'
    assert report_from_wire(wire).node_rank == 3
