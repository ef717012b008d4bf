"""Keras 2 and 3: `938/938 [=====] - 5s 3ms/step - loss: 0.29`, since 3 `938/938 ━━━━━ 5s 3ms/step - loss: 0.29`.

The epoch stands on a line above the bars, `Epoch 2/10`. Keras runs on TensorFlow, JAX and
PyTorch, and comes with TensorFlow whoever loads that.
"""

from __future__ import annotations

from lens_core import Detector, EventPattern, Field, LogFormat, hookimpl


class Keras(Detector):
    """Keras, by what `fit` prints."""

    name = "keras"
    layer = "wrapper"
    is_library = True
    bases = ("tensorflow", "jax")
    modules = ("keras",)
    distributions = ("keras",)
    project_keywords = ("keras",)
    formats = (
        LogFormat(
            name="bar",
            words=("loss", "step"),
            head=r"(?:^|\s)(?P<step_in_epoch>\d+)/(?P<steps_per_epoch>\d+) (?:\[[=>.]+\] |[━ ]{1,100})"
            r"(?:- )?(?:[\d:hms]{1,16} )?(?P<step_time>\d{1,9}[mu]?s)/step - ",
            layout="dashes",
            fields={"step_time": Field("elapsed_time_per_iteration_ms", "time")},
            needs=("lm_loss",),
            epoch_base=1,
            example="1875/1875 [==============================] - 5s 3ms/step - loss: 0.2912 - accuracy: 0.9158",
        ),
    )
    events = (
        EventPattern(
            type="checkpoint_saving",
            words=("epoch", "improved", "from", "to", "saving", "model"),
            pattern=r"\bEpoch (?P<epoch>\d+): \S+ improved from \S+ to \S+ saving model to (?P<path>\S+)",
        ),
        EventPattern(
            type="checkpoint_saving",
            words=("epoch", "saving", "model", "to"),
            pattern=r"\bEpoch (?P<epoch>\d+): saving model to (?P<path>\S+)",
        ),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [Keras]
