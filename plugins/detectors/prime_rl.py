"""prime-rl: `SUCCESS Step 12 | Time: 12.30s | Loss: 0.01 | ... | Peak Mem.: 62.3/80.0 GiB (77.9%)` of the trainer.

The orchestrator says of the same step what its rollouts were worth; its time and throughput are not the trainer's.
"""

from __future__ import annotations

from lens_core import Detector, Field, LogFormat, hookimpl


class PrimeRl(Detector):
    """prime-rl, asynchronous reinforcement learning and fine-tuning."""

    name = "prime_rl"
    layer = "wrapper"
    bases = ("transformers",)
    modules = ("prime_rl",)
    distributions = ("prime-rl",)
    project_keywords = ("prime-rl", "prime_rl")
    formats = (
        LogFormat(
            name="trainer",
            words=("step", "time", "loss", "peak", "mem"),
            head=r"\bStep (?P<iteration>\d+) \| (?=Time: )",
            layout="pipes",
            fields={
                "Time": Field("elapsed_time_per_iteration_ms", "time", 1000.0),
                "Grad. Norm": Field("grad_norm"),
                "Throughput": Field("tokens_per_second"),
                "Peak Mem.": Field(("mem_usage", "mem_total"), "memory"),
            },
            needs=("lm_loss",),
            confidence=0.75,
            example="10:26:59 SUCCESS Step 12 | Time: 12.30s | Loss: 0.0123 | Grad. Norm: 0.3012 | LR: 1.00e-06"
            " | Throughput: 12345 tokens/s | MFU: 12.3% | Peak Mem.: 62.3/80.0 GiB (77.9%)",
        ),
        LogFormat(
            name="orchestrator",
            words=("step", "reward", "throughput", "seq", "length"),
            head=r"\bStep (?P<iteration>\d+) \| (?=.*\bReward: )",
            layout="pipes",
            fields={
                "Time": Field("", "text"),
                "Throughput": Field("", "text"),
                "Reward": Field("reward"),
                "Seq. Length": Field("response_length"),
            },
            loss=(),
            needs=("reward",),
            confidence=0.75,
            example="10:26:59 SUCCESS Step 12 | Time: 30.10s | Reward: 0.5012 | Throughput: 1234.5 tokens/s"
            " | Seq. Length: 512.1 tokens/sample",
        ),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [PrimeRl]
