"""LLaMA-Factory: the Trainer's dictionary, and `trainer_log.jsonl`, older ones with nulls."""

from __future__ import annotations

from lens_core import Detector, Field, LogFormat, Mark, hookimpl


class LlamaFactory(Detector):
    """LLaMA-Factory, on the Transformers Trainer."""

    name = "llama_factory"
    layer = "wrapper"
    bases = ("transformers", "transformers_trainer", "trl", "deepspeed")
    modules = ("llamafactory",)
    distributions = ("llamafactory",)
    environment = ("LLAMABOARD_ENABLED", "LLAMAFACTORY_VERBOSITY", "USE_LLAMAFACTORY")
    project_keywords = ("llamafactory", "llama-factory", "llama_factory")
    formats = (
        LogFormat(
            name="trainer_log",
            words=("current_steps", "total_steps"),
            head=r"\{(?=\s*\"current_steps\")",
            layout="mapping",
            fields={
                "current_steps": Field("iteration"),
                "total_steps": Field("target_iteration"),
                "throughput": Field("tokens_per_second"),
                "vram_allocated": Field("mem_usage", "memory"),
                "vram_reserved": Field("mem_reserved", "memory"),
                "total_tokens": Field("consumed_tokens"),
                "percentage": Field("", "text"),
            },
            needs=("iteration",),
            confidence=0.8,
            example='{"current_steps": 10, "total_steps": 100, "loss": 1.5, "lr": 1e-05, "epoch": 0.1}',
        ),
    )
    marks = (
        Mark(
            words=("current_steps", "total_steps"),
            pattern=r"\"current_steps\":",
            refines=("transformers",),
            confidence=0.8,
        ),
        *(
            Mark(
                words=(module,),
                pattern=r"\[(?:INFO|WARNING)\|\d{4}-\d\d-\d\d [\d:]+\] [\w./]+:\d+ >>",
                refines=("transformers",),
                confidence=0.6,
            )
            for module in ("modelcard", "configuration_utils", "tokenization_utils_base", "modeling_utils")
        ),
        Mark(words=("metric", "to", "plot"), pattern=r"No metric \w+ to plot", confidence=0.6),
        Mark(words=("llamafactory",), pattern=r"\bllamafactory\b", refines=("transformers",), confidence=0.8),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [LlamaFactory]
