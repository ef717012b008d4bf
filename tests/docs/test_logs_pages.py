"""What the pages about logs and detectors show is what happens."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from lens_core.config import parse_config
from lens_core.detection import make_detectors
from lens_core.log_lines import LineEngine
from lens_core.plugin_host import PluginHost
from lens_core.testing import check_detector

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def test_the_pages_detector_works() -> None:
    (code,) = blocks("detectors.md", "python")
    names: dict[str, Any] = {}
    exec(code, names)
    check_detector(names["Acme"])
    engine = LineEngine([names["Acme"]])
    (step,) = engine.read(names["Acme"].formats[0].example)
    assert (step.framework, step.iteration) == ("acme", 5)
    assert step.values == {
        "target_iteration": 100.0,
        "lm_loss": 1.25,
        "learning_rate": 1e-5,
        "elapsed_time_per_iteration_ms": 800.0,
    }
    (saved,) = engine.read("acme wrote checkpoint /x at step 5")
    assert saved.happening is not None
    assert (saved.happening.type, saved.happening.iteration) == ("checkpoint_saved", 5)


def test_the_pages_configurations_are_valid() -> None:
    detectors, collectors = blocks("detectors.md", "yaml")[0], blocks("logs.md", "yaml")[0]
    text = detectors + collectors.replace("to: [store]", "to: [out]") + "sinks: {out: {type: jsonl, path: out.jsonl}}\n"
    config = parse_config(text, "page", PluginHost.load(), {}, folder=Path())
    assert set(config.collectors) == {"runs", "pods", "remote"}
    assert "fairseq" not in config.detectors
    (reading,) = LineEngine(make_detectors(config.detectors)).read("step=7 loss=0.5")
    assert (reading.framework, reading.iteration, reading.values["lm_loss"]) == ("house_trainer", 7, 0.5)
    assert yaml.safe_load(detectors)["detectors"]["fairseq"] is False
