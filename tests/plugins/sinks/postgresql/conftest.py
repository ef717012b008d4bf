from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.sinks.postgresql.support import Spool, running_store


@pytest.fixture
async def store(tmp_path: Path, postgres_dsn: str) -> AsyncIterator[Any]:
    """A store on a fresh database."""
    async with running_store(tmp_path, postgres_dsn) as started:
        yield started


@pytest.fixture
def spool(store: Any) -> Spool:
    """A sender that gives batches to the store."""
    return Spool(store)
