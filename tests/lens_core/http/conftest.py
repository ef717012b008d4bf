from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.lens_core.http.query_app import QueryApp, running_app


@pytest.fixture
async def asked(tmp_path: Path, postgres_dsn: str) -> AsyncIterator[QueryApp]:
    """The query routes over a store on a fresh database, served on a real socket."""
    async with running_app(tmp_path, postgres_dsn) as app:
        yield app
