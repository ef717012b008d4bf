"""The daemon hides what the hook hides."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from lens_hook.redact import bounded

from lens_core.base.redaction import redact

NAMES = st.sampled_from(
    ["api_key", "config.api_key", "hfToken", "pad_token", "max_tokens", "use_auth", "DSN", "lr", "client secret", "a"]
)
TEXTS = st.sampled_from(
    [
        "sk-0123456789abcdefghij",
        "https://u:p@h/x?token=abc&a=1",
        "plain",
        "Bearer abcdefghijkl",
        "hf_0123456789abcdefgh",
    ]
) | st.text(max_size=10)
VALUES = st.recursive(
    TEXTS | st.booleans() | st.none() | st.integers(-9, 9),
    lambda inner: st.dictionaries(NAMES, inner, max_size=3) | st.lists(inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_both_hide_the_same(value: Any) -> None:
    assert redact(value) == bounded(value)


def test_deep_nesting_is_cut_and_not_shown() -> None:
    value: Any = {"api_key": "s3cret"}
    for _ in range(5000):
        value = [value]
    assert "s3cret" not in repr(redact(value))
