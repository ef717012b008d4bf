from __future__ import annotations

import pytest

from lens_core.plugin_api.http_answers import retry_after_seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("7", 7.0), ("", None), ("soon", None), ("Thu, 01 Jan 1970 00:01:40 GMT", 90.0), ("-5", None)],
)
def test_retry_after_in_both_forms(text: str, seconds: float | None) -> None:
    assert retry_after_seconds(text, 10.0) == seconds
