from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.plugins.collectors.wandb_cloud.wandb_server import WandbServer, serving, table


@pytest.fixture
def wandb_server() -> Iterator[WandbServer]:
    """A W&B server with the sixty runs of the table."""
    with serving(WandbServer(table(time.time()))) as server:
        yield server
