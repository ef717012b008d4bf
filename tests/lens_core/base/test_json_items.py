from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lens_core.base.errors import BadRequest
from lens_core.base.json_items import ItemDecoder, decode_json, numbers_of, numeric_items, quote_bare_specials

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def _specials_as_text(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, list):
        return [_specials_as_text(item) for item in value]
    if isinstance(value, dict):
        return {key: _specials_as_text(item) for key, item in value.items()}
    return value


@given(value=JSON, ascii_only=st.booleans())
def test_bare_tokens_are_quoted_and_nothing_else_changes(value: Any, ascii_only: bool) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only).encode(errors="surrogatepass")
    quoted = quote_bare_specials(body).decode(errors="surrogatepass")
    assert json.loads(quoted) == _specials_as_text(value)


def test_a_text_with_nan_in_it_stays_what_it_is() -> None:
    assert quote_bare_specials(rb'{"a, NaN": "x: NaN, \" NaN"}') == rb'{"a, NaN": "x: NaN, \" NaN"}'


def test_decode_json_takes_bare_tokens() -> None:
    decoder = msgspec.json.Decoder(dict[str, Any])
    assert decode_json(b'{"a": NaN, "b": -Infinity}', decoder) == {"a": "NaN", "b": "-Infinity"}


@pytest.mark.parametrize("body", [b"", b"{", b"{'a': 1}", b'{"a": NaN', b"\xff\xfe"])
def test_what_is_not_json_is_said(body: bytes) -> None:
    with pytest.raises(BadRequest, match="the body is not"):
        decode_json(body, msgspec.json.Decoder())


def test_one_bad_item_loses_no_other() -> None:
    raws = [msgspec.Raw(b"1"), msgspec.Raw(b'"x"'), msgspec.Raw(b"3")]
    items = ItemDecoder[int](int, strict=True).decode_each(raws)
    assert items.good == [1, 3]
    assert [index for index, _ in items.rejected] == [1]


def test_numeric_items_flattens_and_leaves_out_what_is_no_metric() -> None:
    data = {
        "loss": 0.5,
        "ok": True,
        "bad": "NaN",
        "note": "text",
        "none": None,
        "list": [1, 2],
        "train": {"acc": 1, "deep": {"x": 2.5}},
        "image": {"_type": "image-file", "size": 3},
        "huge": 10**400,
    }
    found = dict(numeric_items(data))
    assert math.isnan(found.pop("bad"))
    assert found == {"loss": 0.5, "ok": 1.0, "train.acc": 1.0, "train.deep.x": 2.5, "huge": math.inf}


VALUES = (
    st.floats(allow_nan=False)
    | st.integers()
    | st.just(10**400)
    | st.booleans()
    | st.none()
    | st.text("ab", max_size=3)
)


@given(st.dictionaries(st.text(max_size=3), VALUES | st.dictionaries(st.text(max_size=2), VALUES, max_size=2)))
def test_all_numbers_at_once_are_the_same_numbers(data: dict[str, Any]) -> None:
    found = numbers_of(data)
    assert found == dict(numeric_items(data))
    assert all(type(value) is float for value in found.values())
