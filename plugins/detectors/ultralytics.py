"""Ultralytics YOLO: rows without labels under a header, many carriage-return updates per epoch, the last one counts.

v5 prints box, obj and cls, newer ones box_loss, cls_loss and dfl_loss; segmentation and poses have more columns.
"""

from __future__ import annotations

from lens_core import Detector, EventPattern, Field, LogFormat, Mark, Table, hookimpl

_NUMBER = r"(?:[-+]?[\d.]+(?:[eE][-+]?\d+)?|nan|inf)"
_FIELDS = {
    "epoch": Field(("epoch", "total_epochs")),
    "gpu_mem": Field("mem_usage", "memory"),
    "box": Field("box_loss"),
    "obj": Field("obj_loss"),
    "cls": Field("cls_loss"),
    "dfl": Field("dfl_loss"),
    "instances": Field("instances"),
    "labels": Field("instances"),
    "size": Field("image_size"),
    "img_size": Field("image_size"),
}


class Ultralytics(Detector):
    """Ultralytics YOLO, v5 to now."""

    name = "ultralytics"
    layer = "wrapper"
    modules = ("ultralytics", "yolov5")
    distributions = ("ultralytics",)
    environment = ("YOLO_CONFIG_DIR",)
    project_keywords = ("ultralytics", "yolo")
    formats = (
        LogFormat(
            name="row",
            words=("g", "it"),
            head=r"^\s*(?P<epoch>\d+/\d+)\s+(?P<gpu_mem>\d*(?:\.\d+)?[GM])\s+"
            rf"(?P<box_loss>{_NUMBER})\s+(?P<cls_loss>{_NUMBER})\s+(?P<dfl_loss>{_NUMBER})\s+"
            r"(?P<instances>\d+)\s+(?P<size>\d+):\s+\d+%",
            fields=_FIELDS,
            confidence=0.7,
            example=" 1/300 14.3G      1.736      1.162       1.18         32  800: 100%| 9/9 [03:23<00:00, 1.9it/s]",
        ),
        LogFormat(
            name="row_of_more",
            words=("g", "it"),
            head=r"^\s*(?P<epoch>\d+/\d+)\s+(?P<gpu_mem>\d*(?:\.\d+)?[GM])\s+"
            rf"(?:{_NUMBER}\s+){{2,9}}(?P<size>\d+):\s+\d+%",
            fields=_FIELDS,
            confidence=0.65,
        ),
    )
    tables = (
        Table(
            name="rows",
            words=("epoch", "gpu_mem"),
            header=r"^\s*Epoch\s+(?:GPU_mem|gpu_mem)(?:\s+\w+){3,}\s*$",
            row=r"^\s*(?P<cells>\d+/\d+\s+\d*(?:\.\d+)?[GM](?:\s+(?:[-+\d.eE]+|nan|inf)){3,40}):\s+\d+%",
            loose=True,
            fields=_FIELDS,
            needs=("mem_usage",),
            confidence=0.7,
        ),
    )
    events = (
        EventPattern(
            type="training_started",
            words=("starting", "training", "for", "epochs"),
            pattern=r"Starting training for (?P<total_epochs>\d+) epochs\.\.\.",
        ),
        EventPattern(
            type="training_ended",
            words=("epochs", "completed", "in", "hours"),
            pattern=r"(?<!\d)(?P<epochs>\d{1,9}) epochs completed in (?P<duration_hours>[\d.]+) hours",
        ),
        EventPattern(
            type="training_ended",
            words=("earlystopping", "training", "stopped"),
            pattern=r"EarlyStopping: (?P<reason>Training stopped early[^.]*)",
        ),
    )
    marks = (
        Mark(words=("epoch", "gpu_mem"), pattern=r"Epoch\s+(?:GPU_mem|gpu_mem)\s", confidence=0.7),
        Mark(
            words=("class", "images", "instances", "box"),
            pattern=r"Class\s+Images\s+Instances\s+Box\(P",
            confidence=0.7,
        ),
        Mark(words=("all",), pattern=r"^\s{10,}all\s+\d+\s+\d+(?:\s+[\d.e-]+){4,}\s*$", confidence=0.6),
        Mark(
            words=("class", "images", "labels", "map"),
            pattern=r"Class\s+Images\s+(?:Labels|Targets|Instances)\s+P\s+R\s+mAP",
            confidence=0.7,
        ),
        Mark(words=("optimizer", "stripped", "from"), pattern=r"Optimizer stripped from", confidence=0.7),
        Mark(words=("ultralytics", "python", "torch"), pattern=r"Ultralytics (?:YOLO\S+|[\d.]+) ", confidence=0.85),
        Mark(words=("yolov", "torch"), pattern=r"\bYOLOv5 .*torch[ -]\d", confidence=0.8),
        Mark(words=("trainer", "task", "mode", "train"), pattern=r"\btrainer: task=\w+, mode=train", confidence=0.8),
        Mark(words=("engine", "trainer"), pattern=r"\bengine[/\\]trainer: ", confidence=0.7),
        Mark(words=("logging", "results", "to"), pattern=r"^\s*Logging results to ", confidence=0.5),
        Mark(words=("image", "sizes", "train", "val"), pattern=r"Image sizes \d+ train, \d+ val", confidence=0.7),
        Mark(words=("scanning", "images", "corrupt"), pattern=r"\b(?:train|val): Scanning ", confidence=0.7),
        Mark(words=("plotting", "labels", "to"), pattern=r"Plotting labels to ", confidence=0.7),
        Mark(words=("transferred", "items", "from"), pattern=r"Transferred \d+/\d+ items from", confidence=0.7),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [Ultralytics]
