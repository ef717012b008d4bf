"""Runs a detector on a line or on evidence, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from ..detection.detectors import EvidenceRules
from ..detection.log_lines.engine import Declares, LineEngine
from ..detection.log_lines.readings import Reading
from ..model.records import Detection, Evidence, Origin
from ..plugin_api.components import Detector


def read_line(detector: Detector | type[Detector], line: str) -> list[Reading]:
    """Return the readings of this detector alone for a line; empty when the line is nobody's."""
    return list(LineEngine([cast(Declares, detector)]).read_line(line))


def evidence(
    *,
    modules: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    config: Mapping[str, Any] | None = None,
    project: str = "",
    workload_uid: str = "job",
) -> Evidence:
    """Evidence as the hook reports it: loaded modules with their versions, variables, the run's configuration."""
    facts: dict[str, Any] = {
        "modules": dict(modules or {}),
        "environment": dict(environment or {}),
        "wandb": {"project": project, "config": dict(config or {})},
    }
    return Evidence(origin=Origin(workload_uid=workload_uid), source="wandb", facts=facts)


def detections(detectors: Detector | type[Detector] | Sequence[Detector], found: Evidence) -> list[Detection]:
    """The opinions that detectors have about evidence, one for each method by which it shows a framework."""
    several = detectors if isinstance(detectors, Sequence) else [cast(Detector, detectors)]
    return EvidenceRules(several).detect(found)
