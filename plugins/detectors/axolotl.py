"""Axolotl: the Trainer's dictionary with memory, perplexity and token counts; its own logger's lines."""

from __future__ import annotations

from lens_core import Detector, EventPattern, Mark, hookimpl

_SHARED = ("transformers",)


class Axolotl(Detector):
    """Axolotl, on the Transformers Trainer."""

    name = "axolotl"
    layer = "wrapper"
    bases = ("transformers", "transformers_trainer", "trl", "deepspeed")
    modules = ("axolotl",)
    distributions = ("axolotl",)
    environment = ("AXOLOTL_NCCL_TIMEOUT", "AXOLOTL_DATASET_PROCESSES")
    config_keys = ("axolotl_config_path",)
    project_keywords = ("axolotl",)
    events = (
        EventPattern(
            type="training_started",
            words=("axolotl", "starting", "trainer"),
            pattern=r"\[axolotl\..*\bStarting trainer\.\.\.",
            confidence=0.8,
        ),
        EventPattern(
            type="config",
            words=("maximum", "number", "of", "steps", "set"),
            pattern=r"\[axolotl\..*Maximum number of steps set at (?P<target_iteration>\d+)",
            confidence=0.8,
        ),
        EventPattern(
            type="training_ended",
            words=("training", "completed", "saving", "trained", "model"),
            pattern=r"Training [cC]ompleted!+ Saving (?:pre-)?trained model to (?P<path>\S*[^\s.])",
            confidence=0.7,
        ),
    )
    marks = (
        Mark(words=("memory", "max_mem_active"), pattern=r"['\"]memory/max_mem_", refines=_SHARED, confidence=0.85),
        Mark(words=("memory", "max_active"), pattern=r"['\"]memory/max_active", refines=_SHARED, confidence=0.85),
        Mark(words=("memory", "max_allocated"), pattern=r"['\"]memory/max_alloc", refines=_SHARED, confidence=0.85),
        Mark(words=("tokens", "trainable"), pattern=r"['\"]tokens/trainable['\"]", refines=_SHARED, confidence=0.85),
        Mark(words=("tokens", "train_per_sec_per_gpu"), pattern=r"['\"]tokens/", refines=_SHARED, confidence=0.85),
        Mark(
            words=("tokens_per_second_per_gpu", "loss", "epoch"),
            pattern=r"['\"]tokens_per_second_per_gpu['\"]",
            refines=_SHARED,
            confidence=0.8,
        ),
        Mark(words=("axolotl",), pattern=r"\[axolotl\.", refines=_SHARED, confidence=0.9),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [Axolotl]
