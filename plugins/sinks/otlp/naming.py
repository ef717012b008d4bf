"""Names and units in OpenTelemetry of training metrics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

PREFIX = "training."
MAX_NAME = 255
# Dots part what belongs to a namespace; slashes are allowed in names of instruments.
_NOT_ALLOWED = re.compile(r"[^A-Za-z0-9_.\-/]+")


class Name(NamedTuple):
    """A metric's name, its unit (UCUM), and the factor of its values."""

    name: str
    unit: str = ""
    factor: float = 1.0


_LOSS, _EVAL_LOSS, _RATE = Name("loss"), Name("eval.loss"), Name("learning_rate")
TABLE: Mapping[str, Name] = {
    **dict.fromkeys(("loss", "lm_loss", "train_loss", "train/loss", "training/loss"), _LOSS),
    **dict.fromkeys(("eval_loss", "eval/loss", "val_loss", "val/loss", "validation/loss"), _EVAL_LOSS),
    **dict.fromkeys(("lr", "learning_rate", "train/lr", "train/learning_rate"), _RATE),
    **dict.fromkeys(("grad_norm", "train/grad_norm"), Name("grad_norm")),
    "tflops": Name("gpu.throughput", "TFLOP/s"),
    "tokens_per_gpu": Name("gpu.tokens", "{token}/s"),
    "samples_per_second": Name("samples", "{sample}/s"),
    "mfu": Name("gpu.model_flops_utilization", "%"),
    "elapsed_time_per_iteration_ms": Name("iteration.duration", "s", 0.001),
    "mem_usage": Name("gpu.memory.usage", "GBy"),
    "mem_free": Name("gpu.memory.free", "GBy"),
    "mem_total": Name("gpu.memory.limit", "GBy"),
    "mem_usage_ratio": Name("gpu.memory.utilization", "%"),
    "global_batch_size": Name("global_batch_size", "{sample}"),
    "consumed_samples": Name("consumed_samples", "{sample}"),
    "consumed_tokens": Name("consumed_tokens", "{token}"),
    "skipped_iterations_number": Name("skipped_iterations", "{iteration}"),
    "nan_iterations_number": Name("nan_iterations", "{iteration}"),
}


@lru_cache(maxsize=20_000)
def training_metric(metric: str) -> Name:
    """The name, unit and factor of a metric of a training."""
    found = TABLE.get(metric) or Name(_NOT_ALLOWED.sub("_", metric) or "value")
    return found._replace(name=(PREFIX + found.name)[:MAX_NAME])


@lru_cache(maxsize=20_000)
def plain_name(name: str) -> str:
    """A name as an instrument may have it: allowed characters, a letter first."""
    text = _NOT_ALLOWED.sub("_", name)[:MAX_NAME]
    return text if text[:1].isalpha() else f"n{text}"[:MAX_NAME]
