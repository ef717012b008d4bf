from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.plugins.collectors.mlflow.tracking_server import RealServer, real_server


@pytest.fixture(scope="session")
def mlflow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """A real tracking server, which the tests of a process share."""
    with real_server(tmp_path_factory.mktemp("mlflow")) as server:
        yield server
