from __future__ import annotations

import pytest

from lens_core.config.loading import load_config
from lens_core.detection.detectors import make_detectors
from lens_core.detection.log_lines import LineEngine
from lens_core.plugin_api.components import Detector
from lens_core.plugin_host.host import PluginHost
from tests.lens_core.detection.log_lines.stand import Stand


@pytest.fixture(scope="session")
def detectors() -> list[Detector]:
    """Everything that is installed."""
    return make_detectors(load_config(None, PluginHost.load(), {}).detectors)


@pytest.fixture(scope="session")
def engine(detectors: list[Detector]) -> LineEngine:
    """The engine of everything that is installed."""
    return LineEngine(detectors)


@pytest.fixture
def stand(detectors: list[Detector]) -> Stand:
    """A processor with all detectors, new for each test."""
    return Stand(detectors)
