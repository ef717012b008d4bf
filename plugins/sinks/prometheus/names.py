"""Names of training metrics in Prometheus: one table, and a rule for all that is not in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

PREFIX = "lens_training_"


class Name(NamedTuple):
    """The metric's name without prefix, and what its value is multiplied with to be in the unit of the name."""

    suffix: str
    factor: float = 1.0


_LOSS = Name("loss")
_RATE = Name("learning_rate")
TABLE: Mapping[str, Name] = {
    "loss": _LOSS,
    "lm_loss": _LOSS,
    "train_loss": _LOSS,
    "train/loss": _LOSS,
    "training/loss": _LOSS,
    "eval_loss": Name("eval_loss"),
    "eval/loss": Name("eval_loss"),
    "val_loss": Name("eval_loss"),
    "validation/loss": Name("eval_loss"),
    "lr": _RATE,
    "learning_rate": _RATE,
    "train/lr": _RATE,
    "train/learning_rate": _RATE,
    "grad_norm": Name("grad_norm"),
    "train/grad_norm": Name("grad_norm"),
    "tflops": Name("tflops_per_gpu"),
    "tokens_per_gpu": Name("tokens_per_second_per_gpu"),
    "samples_per_second": Name("samples_per_second"),
    "mfu": Name("model_flops_utilization_percent"),
    "elapsed_time_per_iteration_ms": Name("iteration_seconds", 0.001),
    "mem_usage": Name("memory_used_gigabytes"),
    "mem_free": Name("memory_free_gigabytes"),
    "mem_total": Name("memory_total_gigabytes"),
    "mem_usage_ratio": Name("memory_used_percent"),
    "global_batch_size": Name("global_batch_size"),
    "consumed_samples": Name("consumed_samples"),
    "consumed_tokens": Name("consumed_tokens"),
    "loss_scale": Name("loss_scale"),
    "num_zeros": Name("gradient_zeros"),
    "epoch": Name("epoch"),
    "target_iteration": Name("target_iteration"),
    "current_iteration": Name("iteration"),
    "skipped_iterations_number": Name("skipped_iterations"),
    "nan_iterations_number": Name("nan_iterations"),
}
_OTHER = re.compile(r"[^a-zA-Z0-9_]+")


@lru_cache(maxsize=20_000)
def training_name(metric: str) -> tuple[str, float]:
    """The Prometheus name of a training metric, and the factor of its value."""
    found = TABLE.get(metric) or Name(plain(metric).lower() or "value")
    return PREFIX + found.suffix, found.factor


@lru_cache(maxsize=20_000)
def plain(name: str) -> str:
    """A name of nothing but letters, digits and underscores that begins with no digit."""
    text = _OTHER.sub("_", name).strip("_")
    return f"_{text}" if text[:1].isdigit() else text
