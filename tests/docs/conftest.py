"""The test that looks at what the others ran waits for them, wherever they run."""

from __future__ import annotations

from tests.docs.pages import note_end


def pytest_runtest_logfinish(nodeid: str) -> None:
    """Leave word of it."""
    note_end(nodeid)
