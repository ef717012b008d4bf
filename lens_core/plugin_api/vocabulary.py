"""The words that frameworks print for the same things, and the names under which Lens stores them (contract, 8)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .log_formats import Field

_MS = Field("elapsed_time_per_iteration_ms", "time")
_SECONDS = Field("elapsed_time_per_iteration_ms", "time", 1000.0)
_MEMORY_PARTS = Field(("mem_usage", "mem_free", "mem_total", "mem_usage_ratio"), "memory")
_TFLOPS = Field("tflops", "compute")
_TEXT = Field("", "text")

VOCABULARY: Mapping[str, Field] = {
    "iteration": Field("iteration"),
    "consumed_samples": Field("consumed_samples"),
    "consumed_tokens": Field("consumed_tokens"),
    "elapsed_time_per_iteration(ms)": _MS,
    "elapsed_time_per_iteration_ms": _MS,
    "time_per_iteration_ms": _MS,
    "elapsed_time_per_iteration(s)": _SECONDS,
    "train_step_timing_in_s": _SECONDS,
    "iter_time(s)": _SECONDS,
    "iteration_time": _SECONDS,
    "step_time": _SECONDS,
    "mem_usages": Field("mem_usage_ratio", "percent", 100.0),
    "hip_mem_usage/free/total/usage_ratio": _MEMORY_PARTS,
    "rocm_mem_usage/free/total/usage_ratio": _MEMORY_PARTS,
    "mem_usage/free/total/usage_ratio": _MEMORY_PARTS,
    "memory_usage/free/total": Field(("mem_usage", "mem_active"), "memory"),
    "memory(gib)": Field("mem_usage", "memory"),
    "throughput_per_gpu(tflop/s/gpu)": _TFLOPS,
    "compute_per_gpu(tflop/s/gpu)": _TFLOPS,
    "model_tflop/s/gpu": _TFLOPS,
    "tflop/s/gpu": _TFLOPS,
    "tflops_per_gpu": _TFLOPS,
    "tflops": _TFLOPS,
    "approx_flops_per_gpu": _TFLOPS,
    "model_tflops_per_gpu": _TFLOPS,
    "tokens_per_gpu(tokens/s/gpu)": Field("tokens_per_gpu"),
    "tokens/s/gpu": Field("tokens_per_gpu"),
    "tokens/s/gpu_inst/harmonic_mean": Field("tokens_per_gpu"),
    "tokens_per_second_per_gpu(tok/s/gpu)": Field("tokens_per_gpu"),
    "tokens_per_gpu_per_second(tgs)": Field("tokens_per_gpu"),
    "tokens_per_sec_per_gpu": Field("tokens_per_gpu"),
    "tokens_per_second_per_gpu": Field("tokens_per_gpu"),
    "tgs": Field("tokens_per_gpu"),
    "tokens/gpu/sec": Field("tokens_per_gpu"),
    "interval_tokens_per_second_per_device": Field("tokens_per_gpu"),
    "interval_hardware_tflops_per_device": _TFLOPS,
    "current_lr": Field("learning_rate"),
    "cur_lr": Field("learning_rate"),
    "samples_per_second": Field("samples_per_second"),
    "samples/sec": Field("samples_per_second"),
    "samples_per_sec": Field("samples_per_second"),
    "learning_rate": Field("learning_rate"),
    "lr": Field("learning_rate"),
    "global_batch_size": Field("global_batch_size"),
    "lm_loss": Field("lm_loss"),
    "loss_scale": Field("loss_scale"),
    "grad_norm": Field("grad_norm"),
    "total_grad_norm": Field("grad_norm"),
    "gradient_norm": Field("grad_norm"),
    "gnorm": Field("grad_norm"),
    "num_zeros": Field("num_zeros"),
    "params_norm": Field("params_norm"),
    "number_of_skipped_iterations": Field("skipped_iterations_number"),
    "number_of_nan_iterations": Field("nan_iterations_number"),
    "mfu": Field("mfu", "percent"),
    "epoch": Field("epoch"),
    "epochs": Field("epoch"),
    "target_iteration": Field("target_iteration"),
    "eta": _TEXT,
    "v_num": _TEXT,
    "elapsed_time": _TEXT,
    "remaining_time": _TEXT,
    "percentage": _TEXT,
}

# Memory of another rank than the one that prints: kept, but never taken for this rank's.
_OTHER_RANK = re.compile(r"rank-\d+_(?:\w+_)?max_mem_usage/usage_ratio")
_OTHER_RANK_FIELD = Field(("max_mem_usage", "max_mem_usage_ratio"), "memory")


def normalise(key: str) -> str:
    """A printed key in its plainest form: `Elapsed time per iteration (ms)` is `elapsed_time_per_iteration(ms)`."""
    return "_".join(key.lower().split()).replace("_(", "(").replace("lm-loss", "lm_loss")


def lookup(key: str, fields: Mapping[str, Field]) -> Field | None:
    """Return the meaning of a normalised key: the format's own fields first, then those that all formats share."""
    found = fields.get(key) or VOCABULARY.get(key)
    if found is None and _OTHER_RANK.fullmatch(key):
        return _OTHER_RANK_FIELD
    return found
