"""ms-swift: the Trainer's dictionary with `global_step/max_steps`, and what Megatron-SWIFT adds to Megatron's line."""

from __future__ import annotations

from lens_core import Detector, Mark, hookimpl


class MsSwift(Detector):
    """ms-swift (ModelScope), on the Transformers Trainer or on Megatron."""

    name = "ms_swift"
    layer = "wrapper"
    bases = ("transformers", "transformers_trainer", "trl", "megatron", "deepspeed")
    modules = ("swift",)
    distributions = ("ms-swift",)
    environment = ("SWIFT_DEBUG", "SWIFT_PATCH_CONV3D")
    project_keywords = ("ms-swift", "ms_swift", "megatron-swift")
    marks = (
        Mark(words=("swift",), pattern=r"\[(?:INFO|WARNING):swift\]", refines=("transformers",), confidence=0.8),
        Mark(
            words=("train", "it"),
            pattern=r"^\s*Train: +\d+%\|.*\d+/\d+ \[",
            refines=("transformers",),
            confidence=0.6,
        ),
        Mark(
            words=("global_step", "max_steps"),
            pattern=r"['\"]global_step/max_steps['\"]",
            refines=("transformers",),
            confidence=0.85,
        ),
        Mark(
            words=("train_speed",),
            pattern=r"['\"]train_speed\((?:iter/s|s/it)\)['\"]",
            refines=("transformers",),
            confidence=0.85,
        ),
        Mark(
            words=("iteration", "memory", "gib"),
            pattern=r"\| *memory\(GiB\): *[\d.]+ *\|",
            refines=("megatron",),
            confidence=0.8,
        ),
        Mark(
            words=("iteration", "elapsed", "time", "remaining"),
            pattern=r"\| *elapsed time: [^|]*\| *remaining time: ",
            refines=("megatron",),
            confidence=0.8,
        ),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [MsSwift]
