from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.plugins.sinks.datadog.intake import Intake, running


@pytest.fixture
def intake() -> Iterator[Intake]:
    """A strict intake on loopback."""
    with running(Intake()) as found:
        yield found
