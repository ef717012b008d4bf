"""Acme Trainer for Lens: how it is recognised, and what its log lines say."""

from __future__ import annotations

from lens_core import Detector, EventPattern, LogFormat, hookimpl


class Acme(Detector):
    """Acme Trainer, a wrapper around Megatron."""

    name = "acme"
    layer = "wrapper"
    bases = ("megatron",)
    modules = ("acme_trainer",)
    environment = ("ACME_CONFIG",)
    project_keywords = ("acme",)
    formats = (
        LogFormat(
            name="step",
            words=("acme", "step"),
            head=r"\[acme\] step (?P<iteration>\d+)/(?P<target_iteration>\d+) \|",
            layout="pipes",
            example="[acme] step 10/500 | loss: 2.31 | lr: 1e-4 | grad_norm: 0.8",
        ),
    )
    events = (
        EventPattern(
            type="checkpoint_saved",
            words=("acme", "checkpoint", "written"),
            pattern=r"\[acme\] checkpoint written to (?P<path>\S+)",
            example="[acme] checkpoint written to /ckpt/10",
        ),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """What this distribution brings."""
    return [Acme]
