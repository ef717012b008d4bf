from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lens_plugins.sinks.http import HttpSettings, classify

from lens_core import Delivered, Poisoned, Rejected, Retry, Secret


@given(status=st.integers(100, 599), body=st.binary(max_size=200), size=st.integers(0, 5))
def test_every_answer_is_understood_and_only_an_honest_one_is_believed(status: int, body: bytes, size: int) -> None:
    answer = classify(status, {}, body, size)
    assert isinstance(answer, (Delivered, Retry, Rejected, Poisoned))
    if isinstance(answer, (Delivered, Rejected)):
        assert 200 <= status < 300
        assert b"success" in body


@pytest.mark.parametrize("status", [401, 403, 404, 408, 425, 429, 500, 502, 503, 301])
def test_what_a_person_or_time_can_mend_is_tried_again(status: int) -> None:
    assert isinstance(classify(status, {"retry-after": "7"}, b"", 1), Retry)


@pytest.mark.parametrize("status", [400, 413, 415, 422])
def test_what_will_never_be_taken_is_poison(status: int) -> None:
    assert isinstance(classify(status, {}, b"no", 1), Poisoned)


def test_rejections_out_of_range_or_of_another_type_are_ignored() -> None:
    body = b'{"success": true, "rejected": [{"index": 1, "reason": "x"}, {"index": 9}, {"index": "0"}]}'
    assert classify(200, {}, body, 2) == Rejected({1: "x"})


def test_the_token_is_not_in_the_settings_repr() -> None:
    assert "hunter2" not in repr(HttpSettings(url="http://x", token=Secret("hunter2")))
