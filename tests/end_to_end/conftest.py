from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.end_to_end.running_lens import RunningLens


@pytest.fixture
def make_lens(tmp_path: Path) -> Iterator[Callable[..., RunningLens]]:
    """Make daemons that are ended with the test; `name` is that of the data directory."""
    made: list[RunningLens] = []

    def make(config: str | None = None, name: str = "lens") -> RunningLens:
        made.append(RunningLens(tmp_path / name, config))
        return made[-1]

    yield make
    for lens in made:
        lens.end()


@pytest.fixture
def lens(make_lens: Callable[..., RunningLens]) -> RunningLens:
    """A daemon on its embedded default."""
    return make_lens().start()


@pytest.fixture
def lens_on(make_lens: Callable[..., RunningLens], postgres_dsn: str) -> Callable[..., RunningLens]:
    """Make a daemon that stores in the session's PostgreSQL; started."""

    def make(more: str = "", name: str = "lens") -> RunningLens:
        return make_lens(f'sinks:\n  store: {{type: postgresql, dsn: "{postgres_dsn}"}}\n{more}', name).start()

    return make
