"""TensorFlow's estimators and slim: `INFO:tensorflow:loss = 1.87, step = 31601 (182.200 sec)`.

TensorFlow 2 trains by Keras (in a file of its own). It is a library to most that load it.
"""

from __future__ import annotations

from lens_core import Detector, EventPattern, Field, LogFormat, hookimpl

_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|nan|inf)"


class TensorFlow(Detector):
    """TensorFlow, by what its estimators and slim print."""

    name = "tensorflow"
    layer = "base"
    is_library = True
    modules = ("tensorflow",)
    distributions = ("tensorflow",)
    environment = ("TF_CONFIG",)
    project_keywords = ("tensorflow",)
    formats = (
        LogFormat(
            name="estimator",
            words=("tensorflow", "loss", "step"),
            head=rf"\bINFO:tensorflow:loss = (?P<loss>{_NUMBER}), step = (?P<iteration>\d+)"
            rf"(?: \((?P<window>{_NUMBER}) sec\))?",
            fields={"window": Field("window_seconds")},
            example="INFO:tensorflow:loss = 1.8717, step = 31601 (182.200 sec)",
        ),
        LogFormat(
            name="slim",
            words=("tensorflow", "global", "step", "loss", "sec"),
            head=rf"\bglobal step (?P<iteration>\d+): loss = (?P<loss>{_NUMBER}) \((?P<time>{_NUMBER}) sec/step\)",
            fields={"time": Field("elapsed_time_per_iteration_ms", "time", 1000.0)},
            standalone=False,
            example="INFO:tensorflow:global step 10: loss = 1.2345 (0.512 sec/step)",
        ),
    )
    events = (
        EventPattern(
            type="checkpoint_saving",
            words=("tensorflow", "saving", "checkpoints", "for", "into"),
            pattern=r"Saving checkpoints for (?P<iteration>\d+) into (?P<path>\S*\w)",
        ),
        EventPattern(
            type="loss_not_finite",
            words=("model", "diverged", "loss", "nan"),
            pattern=r"(?P<reason>Model diverged with loss = NaN)",
        ),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [TensorFlow]
