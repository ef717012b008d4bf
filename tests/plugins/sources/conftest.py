from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lens_core import Source
from tests.plugins.sources.ingest_app import IngestApp


@pytest.fixture
def ingest_app(tmp_path: Path) -> Callable[..., IngestApp]:
    """Make an application around one source."""

    def make(kind: type[Source], **state: Any) -> IngestApp:
        return IngestApp(kind, tmp_path, **state)

    return make
