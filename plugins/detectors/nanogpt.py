"""nanoGPT and its relatives (llama2.c, nanochat style): `iter N: loss X, time Xms, mfu X%` and `N | loss X | ...`.

`mfu -100.00%` means not measured yet. `step N: train loss X, val loss X` is an evaluation.
"""

from __future__ import annotations

from lens_core import Detector, EventPattern, Field, LogFormat, Mark, hookimpl

_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|nan|inf)"
_FIELDS = {
    "time": Field("elapsed_time_per_iteration_ms", "time"),
    "dt": Field("elapsed_time_per_iteration_ms", "time"),
    "norm": Field("grad_norm"),
    "tok_sec": Field("tokens_per_second"),
    "tok/sec": Field("tokens_per_second"),
    "tok/s": Field("tokens_per_second"),
    "train_time": Field("", "text"),
    "total time": Field("", "text"),
    "step_avg": Field("elapsed_time_per_iteration_ms", "time"),
}


class NanoGpt(Detector):
    """nanoGPT and its relatives."""

    name = "nanogpt"
    layer = "base"
    project_keywords = ("nanogpt", "owt")
    formats = (
        LogFormat(
            name="iter",
            words=("iter", "loss", "time"),
            head=rf"\biter (?P<iteration>\d+): loss (?P<loss>{_NUMBER}), time (?P<time>{_NUMBER} ?m?s)"
            rf"(?:, mfu (?P<mfu>[\d.]+%))?",
            fields=_FIELDS,
            confidence=0.65,
            example="iter 2920: loss 3.9883, time 1099.34ms, mfu 15.34%",
        ),
        LogFormat(
            name="columns",
            words=("loss", "lr", "ms"),
            head=rf"(?:^|\s)(?P<iteration>\d+)(?:/(?P<target_iteration>\d+))? \| loss (?P<loss>{_NUMBER}) \|"
            rf" lr (?P<lr>{_NUMBER}) \| (?P<time>{_NUMBER}ms)(?: \| mfu (?P<mfu>[\d.]+%))?",
            fields=_FIELDS,
            confidence=0.5,
            example="100000 | loss nan | lr 0.000000e+00 | 2006.12ms | mfu 1.68%",
        ),
        LogFormat(
            name="nanochat",
            words=("step", "loss", "dt", "tok", "sec"),
            head=r"\bstep +(?P<iteration>\d+)(?:/(?P<target_iteration>\d+))?(?: \([\d.]+%\))? \|",
            layout="pipes",
            fields=_FIELDS,
            needs=("lm_loss",),
            confidence=0.5,
            example="step 00010/21400 (0.05%) | loss: 8.1 | lrm: 1.00 | dt: 400.00ms | tok/sec: 1,310,720 | mfu: 48.5",
        ),
        LogFormat(
            name="llm_c",
            words=("step", "loss", "norm", "lr", "ms", "tok", "s"),
            head=rf"\bstep +(?P<iteration>\d+)/(?P<target_iteration>\d+) \| (?:train )?loss (?P<loss>{_NUMBER})"
            rf"(?: [^|]*)?\| norm (?P<norm>{_NUMBER})(?: [^|]*)?\| lr (?P<lr>{_NUMBER}) \| (?P<time>{_NUMBER} ms) \|"
            rf"(?: (?P<mfu>{_NUMBER}%)[^|]*\|)? (?P<tok_sec>{_NUMBER}) tok/s",
            fields=_FIELDS,
            confidence=0.55,
            example="step 1/19560 | loss 9.5 (+nanz)| norm 1.3 (+nanz)| lr 8e-07 | 123.4 ms | 45.6% bf16 MFU | 4 tok/s",
        ),
        LogFormat(
            name="speedrun",
            words=("step", "train_loss", "train_time"),
            head=r"\bstep:(?P<iteration>\d+)/(?P<target_iteration>\d+) (?=train_loss:)",
            layout="spaced",
            fields=_FIELDS,
            loss=("train_loss",),
            confidence=0.5,
            example="step:10/1750 train_loss:7.8258 train_time:2720ms step_avg:272.01ms",
        ),
    )
    events = (
        EventPattern(
            type="checkpoint_saving",
            words=("saving", "checkpoint", "to"),
            pattern=r"^[\s\d:-]*saving checkpoint to (?P<path>\S+)\s*$",
        ),
    )
    marks = (
        Mark(
            words=("num", "decayed", "parameter", "tensors"), pattern=r"num (?:non-)?decayed parameter", confidence=0.6
        ),
        Mark(
            words=("tokens", "per", "iteration", "will", "be"), pattern=r"tokens per iteration will be", confidence=0.6
        ),
        Mark(words=("compiling", "the", "model", "takes"), pattern=r"takes a ~minute", confidence=0.6),
        Mark(words=("step", "train", "loss", "val"), pattern=r"step \d+: train loss \S+, val loss", confidence=0.55),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [NanoGpt]
