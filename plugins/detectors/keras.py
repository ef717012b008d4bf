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
        # Keras 1 and early 2 print a time alone; `verbose=2` prints a line an epoch, with the time in either place.
        *(
            LogFormat(
                name=f"epoch_{word}",
                words=("s", "loss", word),
                # The length of the first epoch may be unknown.
                head=r"(?:^|\s)(?:(?P<step_in_epoch>\d{1,12})/(?:(?P<steps_per_epoch>\d{1,12})|Unknown)"
                r" (?:\[={1,60}\] )?)?"
                r"- \d{1,9}m?s(?:(?: -)? (?P<step_time>\d{1,9}[mu]?s)/(?:step|sample|epoch))? - (?=[a-z])",
                layout="dashes",
                fields={"step_time": Field("elapsed_time_per_iteration_ms", "time")},
                needs=("lm_loss",),
                epoch_base=1,
                confidence=0.5,
                example=f"469/469 - 3s - loss: 0.2675 - {word}: 0.9158",
            )
            # A word beside the loss: what has none is too like other lines to be tried on all of them.
            for word in ("acc", "accuracy", "mae", "mse", "val_loss", "step", "epoch", "sample")
        ),
        LogFormat(
            name="under_way",
            words=("eta", "loss"),
            head=r"(?:^|\s)(?P<step_in_epoch>\d{1,12})/(?P<steps_per_epoch>\d{1,12}) \[[=>.]+\]"
            r" - ETA: [\d:smh]{1,16} - ",
            layout="dashes",
            needs=("lm_loss",),
            epoch_base=1,
            confidence=0.5,
            example=" 1280/60000 [..............................] - ETA: 45s - loss: 1.2675 - acc: 0.6158",
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
