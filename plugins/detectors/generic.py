"""Step lines of small frameworks and of people's own loops that nobody else claims; they name no framework."""

from __future__ import annotations

from lens_core import Detector, EventPattern, Field, LogFormat, hookimpl

_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)"
_COUNTED = {"step_in_epoch": Field("iteration"), "steps_per_epoch": Field("target_iteration")}
_BAR_LOSS = ("loss", "avr_loss", "step_loss", "train_loss")


class Generic(Detector):
    """Step lines of TensorFlow 1, cosmos-rl, torchvision's MetricLogger, NeMo-RL and the like."""

    name = "generic"
    layer = ""
    formats = (
        LogFormat(
            name="step_of_total",
            words=("step", "loss", "iteration", "time"),
            head=r"\bStep: (?P<iteration>\d+)/(?P<target_iteration>\d+), ",
            layout="commas",
            needs=("lm_loss",),
            confidence=0.3,
            example="Step: 826/4725, Loss: -0.01001, Learning rate: 2.00000e-06, Iteration time: 80.240s, Reward: 1.5",
        ),
        LogFormat(
            name="tensorflow_examples",
            words=("step", "loss", "examples", "sec", "batch"),
            head=rf"\bstep (?P<iteration>\d+), loss = (?P<loss>{_NUMBER})"
            rf" \((?P<rate>{_NUMBER}) examples/sec; (?P<time>{_NUMBER}) sec/batch\)",
            fields={
                "rate": Field("samples_per_second"),
                "time": Field("elapsed_time_per_iteration_ms", "time", 1000.0),
            },
            confidence=0.3,
            example="step 660, loss = 2.85 (729.8 examples/sec; 0.175 sec/batch)",
        ),
        LogFormat(
            name="tensorflow_estimator",
            words=("tensorflow", "loss", "step"),
            head=rf"\bINFO:tensorflow:loss = (?P<loss>{_NUMBER}), step = (?P<iteration>\d+)"
            rf"(?: \((?P<window>{_NUMBER}) sec\))?",
            fields={"window": Field("window_seconds")},
            confidence=0.3,
            example="INFO:tensorflow:loss = 1.8717, step = 31601 (182.200 sec)",
        ),
        LogFormat(
            name="metric_logger",
            words=("epoch", "lr", "time", "max", "mem"),
            head=r"\bEpoch: \[(?P<epoch>\d+)\]\s+\[\s*(?P<step_in_epoch>\d+)/(?P<steps_per_epoch>\d+)\]\s+",
            layout="spaced",
            fields={
                "mem": Field("mem_usage", "memory", 1 / 1024),
                "time": Field("elapsed_time_per_iteration_ms", "time", 1000.0),
                "data": Field("data_loading_time_ms", "time", 1000.0),
                "eta": Field("", "text"),
            },
            loss=("loss", "closs", "train_loss", "total_loss"),
            needs=("lm_loss", "learning_rate"),
            confidence=0.3,
            example="Epoch: [2]  [1480/1504]  lr: 0.000005  closs: 0.8662 (0.8558)  time: 4.3713  max mem: 51710",
        ),
        LogFormat(
            name="detectron2",
            words=("eta", "iter", "total_loss"),
            head=r"\biter: (?P<iteration>\d+) +(?=total_loss: )",
            layout="spaced",
            fields={
                "time": Field("elapsed_time_per_iteration_ms", "time", 1000.0),
                "data_time": Field("data_loading_time_ms", "time", 1000.0),
                "max_mem": Field("mem_usage", "memory", 1 / 1024),
                "last_time": Field("", "text"),
                "last_data_time": Field("", "text"),
            },
            loss=("total_loss",),
            needs=("lm_loss",),
            standalone=False,
            confidence=0.3,
            example="eta: 1 day, 2:03:04  iter: 19  total_loss: 4.123  time: 0.3  lr: 0.0004  max_mem: 3456M",
        ),
        LogFormat(
            name="steps_bar",
            words=("steps", "it", "s"),
            head=r"(?:\bSteps|\bsteps): ?(?= *\d+%\|)",
            layout="bar",
            fields=_COUNTED,
            loss=_BAR_LOSS,
            needs=("lm_loss",),
            confidence=0.3,
            example="Steps:  10%| | 100/1000 [01:00<09:00,  1.66it/s, lr=1e-5, step_loss=0.05]",
        ),
        LogFormat(
            name="plain_bar",
            words=("loss", "it", "s"),
            head=r"(?:^|[\s:])(?=\d+%\|[^|\[]*\| *\d+/\d+ \[[^\]]*\bloss=)",
            layout="bar",
            fields=_COUNTED,
            loss=_BAR_LOSS,
            needs=("lm_loss",),
            confidence=0.2,
            example=" 10%|#         | 100/1000 [01:00<09:00,  1.66it/s, loss=0.05]",
        ),
        LogFormat(
            name="keras",
            words=("loss", "step"),
            head=r"(?:^|\s)(?P<step_in_epoch>\d+)/(?P<steps_per_epoch>\d+) (?:\[[=>.]+\]|[━ ]+)"
            r"(?: \S+)? - [^-]*?(?P<step_time>\d+m?s)/step - (?=.*\bloss: )",
            layout="dashes",
            fields={"step_time": Field("elapsed_time_per_iteration_ms", "time")},
            needs=("lm_loss",),
            confidence=0.3,
            example="1875/1875 [==============================] - 5s 3ms/step - loss: 0.2912 - accuracy: 0.9158",
        ),
    )
    events = (
        EventPattern(
            type="loss_not_finite",
            words=("loss", "is", "stopping", "training"),
            pattern=r"(?P<reason>Loss is (?:nan|inf|NaN|Inf)), stopping training",
        ),
        EventPattern(
            type="loss_not_finite",
            words=("loss", "is", "nan"),
            pattern=r"(?P<reason>\b[lL]oss is (?:NaN|nan))(?! or)",
        ),
        EventPattern(
            type="loss_not_finite",
            words=("non", "finite", "loss"),
            pattern=r"(?P<reason>\b[nN]on-finite loss)",
        ),
        *(
            EventPattern(
                type="loss_not_finite",
                words=("nan", "loss", word),
                pattern=rf"(?P<reason>\b(?:nan|NaN|Nan|NAN) loss {word})",
            )
            for word in ("detected", "encountered", "found")
        ),
        EventPattern(
            type="checkpoint_saving",
            words=("tensorflow", "saving", "checkpoints", "for", "into"),
            pattern=r"Saving checkpoints for (?P<iteration>\d+) into (?P<path>\S*\w)",
        ),
        EventPattern(
            type="checkpoint_saving",
            words=("writing", "checkpoint", "step"),
            pattern=r"^Writing checkpoint (?P<path>\S+) at step (?P<iteration>\d+)\s*$",
        ),
        EventPattern(
            type="checkpoint_saved",
            words=("saved", "checkpoint", "step"),
            pattern=r"^Saved checkpoint to (?P<path>\S+) at step (?P<iteration>\d+)\s*$",
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
    return [Generic]
