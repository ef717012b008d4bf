"""The examples of the pages about logs and detectors are true."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from lens_core.config.loading import parse_config
from lens_core.detection.detectors import make_detectors
from lens_core.detection.log_lines import LineEngine
from lens_core.plugin_host.host import PluginHost
from lens_core.testing import check_detector
from tests.docs.pages import blocks, run_console
from tests.end_to_end.conftest import make_lens
from tests.end_to_end.running_lens import RunningLens

__all__ = ["make_lens"]


def test_the_pages_detector_works() -> None:
    code, *others = blocks("detectors.md", "python")
    names: dict[str, Any] = {}
    exec(code, names)
    for other in others:
        exec(other, {})
    check_detector(names["Acme"])
    engine = LineEngine([names["Acme"]])
    (step,) = engine.read_line(names["Acme"].formats[0].example)
    assert (step.framework, step.iteration) == ("acme", 5)
    assert step.values == {
        "target_iteration": 100.0,
        "lm_loss": 1.25,
        "learning_rate": 1e-5,
        "elapsed_time_per_iteration_ms": 800.0,
    }
    (saved,) = engine.read_line("acme wrote checkpoint /x at step 5")
    assert saved.log_event is not None
    assert (saved.log_event.type, saved.log_event.iteration) == ("checkpoint_saved", 5)


# What the page's first command is shown with: a step of Primus', a checkpoint of Megatron's, and nobody's line.
LINES = """\
[20251202 09:12:08][rank-7/8][INFO ] [--------trainer.py:2560] : iteration 126/ 5000 | elapsed time per iteration \
(ms): 13372.8/13364.7 | hip mem usage/free/total/usage_ratio: 153.81GB/102.17GB/255.98GB/60.09% | lm loss: \
6.548988E-03 |
saving checkpoint at iteration 126 to /ckpt
step: 5  loss: nothing
"""


def test_the_pages_commands_work(make_lens: Callable[..., RunningLens], tmp_path: Path) -> None:
    lens = make_lens(f"sinks: {{out: {{type: jsonl, path: {tmp_path / 'out.jsonl'}}}}}\n").start()
    (tmp_path / "train.log").write_text(LINES)
    (tmp_path / "train.sh").write_text("#!/bin/sh\necho 'iteration 10/ 100 | lm loss: 2.5E+00 |'\n")
    (tmp_path / "train.sh").chmod(0o755)
    for block in blocks("logs.md", "console"):
        run_console(block, tmp_path, {"LENS_URL": lens.url})
    lens.drained()
    assert '"lm_loss":2.5' in (tmp_path / "out.jsonl").read_text()


def test_the_pages_configurations_are_valid() -> None:
    detectors, collectors = blocks("detectors.md", "yaml")[0], blocks("logs.md", "yaml")[0]
    text = detectors + collectors.replace("to: [store]", "to: [out]") + "sinks: {out: {type: jsonl, path: out.jsonl}}\n"
    config = parse_config(text, "page", PluginHost.load(), {}, folder=Path())
    assert set(config.collectors) == {"runs", "pods", "remote"}
    assert "fairseq" not in config.detectors
    (reading,) = LineEngine(make_detectors(config.detectors)).read_line("step=7 loss=0.5")
    assert (reading.framework, reading.iteration, reading.values["lm_loss"]) == ("house_trainer", 7, 0.5)
    assert yaml.safe_load(detectors)["detectors"]["fairseq"] is False
