"""InternEvo and InternLM's first trainer: `tflops=63.2,step=0,loss=11.6,tgs (tokens/gpu/second)=1424.6,lr=4e-07,...`.

Since autumn 2023 blanks stand in place of the commas, and a gradient's norm is a dictionary of parameter groups.
"""

from __future__ import annotations

from lens_core import Detector, Field, LogFormat, Mark, hookimpl

_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|nan|inf)"


class InternEvo(Detector):
    """InternEvo, on which InternLM was trained."""

    name = "internevo"
    layer = "base"
    modules = ("internlm", "internevo")
    distributions = ("InternEvo",)
    project_keywords = ("internlm", "internevo")
    formats = (
        LogFormat(
            name="step",
            words=("tflops", "step", "loss", "tgs", "tokens", "gpu", "second"),
            head=rf"\btflops=(?P<tflops>{_NUMBER})[, ]step=(?P<iteration>\d+)[, ]loss=(?P<loss>{_NUMBER})[, ]"
            rf"(?:real_tgs={_NUMBER}[, ])?tgs \(tokens/gpu/second\)=(?P<tgs>{_NUMBER})"
            rf"(?:.*?[, ]lr=(?P<lr>{_NUMBER}))?(?:[, ]loss_scale=(?P<loss_scale>{_NUMBER}))?"
            rf"(?:[, ]grad_norm=(?:\{{'[^']*': )?(?P<grad_norm>{_NUMBER}))?"
            r"(?:.*?[, ]num_consumed_tokens=(?P<consumed_tokens>\d+))?"
            rf"(?:.*?[, ]fwd_bwd_time=(?P<fwd_bwd_time>{_NUMBER}))?",
            fields={"tgs": Field("tokens_per_gpu")},
            standalone=False,
            confidence=0.75,
            example="in record_current_batch_training_metrics -- tflops=186.6 step=1 loss=11.63 tgs"
            " (tokens/gpu/second)=3917.95 lr=6e-07 loss_scale=65536.0 grad_norm={'0_default': 23.29, '1_fp32': 0.0}",
        ),
    )
    marks = (
        Mark(
            words=("record_current_batch_training_metrics",),
            pattern=r"\brecord_current_batch_training_metrics\b",
            confidence=0.75,
        ),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [InternEvo]
