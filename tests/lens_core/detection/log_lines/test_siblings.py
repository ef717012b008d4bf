"""Processors of different jobs share what is compiled, and nothing of what they remember."""

from __future__ import annotations

from lens_core import LogLine, Origin, StepMetrics
from lens_core.base.self_metrics import SelfMetrics
from lens_core.detection.log_lines.processor import DetectorProcessor
from lens_core.plugin_api.components import Detector
from tests.lens_core.detection.log_lines.stand import megatron, of


def test_siblings_read_the_same_lines_and_share_no_state(detectors: list[Detector]) -> None:
    first = DetectorProcessor(detectors, SelfMetrics())
    second = first.make_sibling()
    assert second.engine is first.engine
    for step in range(1, 4):
        for processor, job in ((first, "a"), (second, "b")):
            line = LogLine(origin=Origin(workload_uid=job), text=megatron(step), event_time=1000.0 + step)
            done = processor.process([line])
            assert [row.row_step for row in of(StepMetrics, done)] == [step]
            assert done.state_changes
            assert all(f"/{job}" in key for key in done.state_changes), "only its own job"
