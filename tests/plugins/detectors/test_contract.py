"""Every built-in detector keeps what the host expects of one."""

from __future__ import annotations

import pytest

from lens_core.config import load_config
from lens_core.detection import make_detectors
from lens_core.plugin_api import Detector
from lens_core.plugin_host import PluginHost
from lens_core.testing import check_detector

DETECTORS = make_detectors(load_config(None, PluginHost.load(), {}).detectors)


@pytest.mark.parametrize("detector", DETECTORS, ids=lambda detector: detector.name)
def test_a_detector_keeps_the_contract(detector: Detector) -> None:
    check_detector(detector)
