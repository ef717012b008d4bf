"""Fixtures for everybody who tests a plugin; pytest finds them by the entry point of lens-agent.

A module outside of `lens_core`, because pytest loads it in every environment with lens-agent: nothing of Lens is
imported before a fixture is used.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from lens_core import Component, Context
    from lens_core.testing import FakeClock, HttpReceiver, LensFactory, RunningLens

_HINT = 'this fixture is asynchronous: pip install "pytest-asyncio>=0.24"'


@pytest.fixture
def lens_context(tmp_path: Path) -> Callable[[str], Context]:
    """Make the context of a component, by its name; its folder is there."""
    from lens_core.testing.hosts import make_context

    def make(name: str) -> Context:
        folder = tmp_path / "plugins" / name
        folder.mkdir(parents=True, exist_ok=True)
        return make_context(name, folder)

    return make


@pytest.fixture
def lens_clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """A wall clock that stands still until the test moves it."""
    from lens_core.testing.clock import FakeClock

    clock = FakeClock()
    clock.install(monkeypatch.setattr)
    return clock


@pytest.fixture
def lens_plugins_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder whose `*.py` are plugins of every host that is loaded in this test."""
    import sys

    folder = tmp_path / "single_files"
    folder.mkdir()
    monkeypatch.setenv("LENS_PLUGINS_DIR", str(folder))
    yield folder
    if str(folder) in sys.path:
        sys.path.remove(str(folder))
    for file in folder.glob("*.py"):
        sys.modules.pop(file.stem, None)


try:
    import pytest_asyncio
except ModuleNotFoundError:

    @pytest.fixture
    def lens_server() -> HttpReceiver:
        """Not without pytest-asyncio."""
        pytest.fail(_HINT, pytrace=False)

    @pytest.fixture
    def lens() -> LensFactory:
        """Not without pytest-asyncio."""
        pytest.fail(_HINT, pytrace=False)

    @pytest.fixture
    def lens_store() -> RunningLens:
        """Not without pytest-asyncio."""
        pytest.fail(_HINT, pytrace=False)

else:

    @pytest_asyncio.fixture(name="lens_server")
    async def _lens_server() -> AsyncIterator[HttpReceiver]:
        """A server on loopback that keeps what it gets, follows a script, and misbehaves when told."""
        from lens_core.testing.receiver import HttpReceiver

        async with HttpReceiver() as receiver:
            yield receiver

    @pytest_asyncio.fixture(name="lens")
    async def _lens(tmp_path: Path) -> AsyncIterator[LensFactory]:
        """Start a Lens in this process, with classes of the test beside what is installed; it ends with the test."""
        from lens_core.testing.running import RunningLens, configured

        async with contextlib.AsyncExitStack() as stack:
            started = 0

            async def make(
                *classes: type[Component], config: Mapping[str, Any] | None = None, store: bool = False
            ) -> RunningLens:
                nonlocal started
                started += 1
                folder = tmp_path / f"running_{started}"
                folder.mkdir()
                running = await RunningLens(configured(folder, classes, config, store=store)).started()
                stack.push_async_callback(running.stop)
                return running

            yield make

    @pytest_asyncio.fixture(name="lens_store")
    async def _lens_store(lens: LensFactory) -> RunningLens:
        """A running Lens with its embedded PostgreSQL: what is sent can be asked for by the query routes."""
        return await lens(store=True)
