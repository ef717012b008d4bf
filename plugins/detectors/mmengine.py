"""MMEngine (and mmcv 1.x before it): detection, segmentation, xtuner. `memory` is MB, `time` seconds per step."""

from __future__ import annotations

from lens_core import Detector, EventPattern, Field, LogFormat, Mark, hookimpl

_FIELDS = {
    "memory": Field("mem_usage", "memory", 1 / 1024),
    "time": Field("elapsed_time_per_iteration_ms", "time", 1000.0),
    "data_time": Field("data_loading_time_ms", "time", 1000.0),
    "tokens_per_sec": Field("tokens_per_gpu"),
    "eta": Field("", "text"),
}


class MMEngine(Detector):
    """OpenMMLab's MMEngine and mmcv runners."""

    name = "mmengine"
    layer = "wrapper"
    modules = ("mmengine", "mmcv")
    distributions = ("mmengine", "mmcv")
    project_keywords = ("mmengine", "mmdet", "mmseg", "xtuner")
    formats = (
        LogFormat(
            name="epoch",
            words=("epoch", "train", "lr", "time"),
            head=r"\bEpoch\(train\)\s+\[(?P<epoch>\d+)\]\[\s*(?P<step_in_epoch>\d+)/(?P<steps_per_epoch>\d+)\]",
            layout="spaced",
            fields=_FIELDS,
            epoch_base=1,
            standalone=False,
            confidence=0.8,
            example="Epoch(train) [1][240/735]  lr: 1.9813e-04  time: 2.8874  memory: 10762  loss: 2.5128",
        ),
        LogFormat(
            name="iter",
            words=("iter", "train", "lr", "time"),
            head=r"\bIter\(train\)\s+\[\s*(?P<iteration>\d+)/(?P<target_iteration>\d+)\]",
            layout="spaced",
            fields=_FIELDS,
            standalone=False,
            confidence=0.8,
            example="Iter(train) [   50/40000]  lr: 9.9891e-03  time: 0.8793  memory: 10445  loss: 2.1633",
        ),
        LogFormat(
            name="mmcv",
            words=("epoch", "lr", "time", "data_time"),
            head=r"\bEpoch \[(?P<epoch>\d+)\]\[\s*(?P<step_in_epoch>\d+)/(?P<steps_per_epoch>\d+)\]\s+",
            layout="commas",
            fields=_FIELDS,
            epoch_base=1,
            standalone=False,
            confidence=0.75,
            example="mmdet - INFO - Epoch [3][50/1749]\tlr: 2.000e-02, time: 1.899, data_time: 0.046, loss: 0.7",
        ),
        LogFormat(
            name="mmcv_iter",
            words=("iter", "lr", "time", "data_time"),
            head=r"\bIter \[\s*(?P<iteration>\d+)/(?P<target_iteration>\d+)\]\s+",
            layout="commas",
            fields=_FIELDS,
            standalone=False,
            confidence=0.75,
        ),
        LogFormat(
            name="xtuner",
            words=("xtuner", "epoch", "step", "lr", "time"),
            head=r"\(?Epoch (?P<epoch>\d+)\)? Step (?P<iteration>\d+)/(?P<target_iteration>\d+)\s+",
            layout="spaced",
            fields={
                **_FIELDS,
                "tgs": Field("tokens_per_gpu"),
                "max_memory": Field("mem_usage", "memory"),
            },
            loss=("loss", "reduced_llm_loss", "total_loss"),
            standalone=False,
            confidence=0.75,
            example="[XTuner][INFO] [Train] (Epoch 1) Step 10/1000  lr: 0.00002  loss: 1.2  time: 2.34s",
        ),
    )
    events = (
        EventPattern(
            type="checkpoint_saving",
            words=("saving", "checkpoint", "at", "epochs"),
            pattern=r"Saving checkpoint at (?P<epoch>\d+) epochs",
        ),
        EventPattern(
            type="checkpoint_saving",
            words=("saving", "checkpoint", "at", "iterations"),
            pattern=r"Saving checkpoint at (?P<iteration>\d+) iterations",
        ),
        EventPattern(
            type="checkpoint_loaded",
            words=("resumed", "epoch", "iter"),
            pattern=r"resumed epoch: (?P<epoch>\d+), iter: (?P<iteration>\d+)",
        ),
    )
    marks = (
        Mark(words=("mmengine",), pattern=r"- mmengine - (?:INFO|WARNING|ERROR) -", confidence=0.85),
        *(
            Mark(words=(name,), pattern=rf"- {name}\w* - (?:INFO|WARNING|ERROR) -", confidence=0.75)
            for name in ("mmcv", "mmdet", "mmseg", "mmcls", "mmpretrain", "mmaction", "mmpose", "mmocr", "mmrotate")
        ),
        Mark(words=("xtuner",), pattern=r"\[XTuner\]", confidence=0.7),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [MMEngine]
