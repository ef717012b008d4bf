"""The test that looks at what the others ran comes last."""

from __future__ import annotations

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move it behind the other tests of this folder, wherever they are in the order."""
    items.sort(key=lambda item: item.path.name == "test_nothing_left_out.py")
