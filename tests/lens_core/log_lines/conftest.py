from __future__ import annotations

import pytest

from lens_core.config import load_config
from lens_core.detection import make_detectors
from lens_core.log_lines import LineEngine
from lens_core.plugin_host import PluginHost


@pytest.fixture(scope="session")
def engine() -> LineEngine:
    """The engine of everything that is installed."""
    return LineEngine(make_detectors(load_config(None, PluginHost.load(), {}).detectors))
