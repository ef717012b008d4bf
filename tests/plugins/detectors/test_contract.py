"""Every built-in detector keeps what the host expects of one."""

from __future__ import annotations

import time

import pytest

from lens_core.config.loading import load_config
from lens_core.detection.detectors import make_detectors
from lens_core.detection.log_lines import Context, LineEngine
from lens_core.plugin_api.components import Detector
from lens_core.plugin_host.host import PluginHost
from lens_core.testing import check_detector
from tests.durations import is_within

DETECTORS = make_detectors(load_config(None, PluginHost.load(), {}).detectors)


@pytest.mark.parametrize("detector", DETECTORS, ids=lambda detector: detector.name)
def test_a_detector_keeps_the_contract(detector: Detector) -> None:
    check_detector(detector)


@pytest.mark.parametrize("filler", [".", "x-y/", "[", "1/2 [", "'a': 1, ", ",", "\t", "a=1, ", "0,"])
def test_no_line_takes_long_however_it_is_made(filler: str) -> None:
    engine = LineEngine(DETECTORS)
    heads = {" ".join(item.words) for kind in DETECTORS for item in kind.formats}
    heads |= {" ".join(item.words) for kind in DETECTORS for item in kind.events}
    heads |= {" ".join(item.words) for kind in DETECTORS for item in kind.marks}
    heads |= {item.example for kind in DETECTORS for item in kind.formats}
    for head in heads:
        started = time.process_time()
        engine.read_line(f"{head} {filler * (16_000 // len(filler))} {head}!", Context())
        assert is_within(time.process_time() - started, 0.5), head
