"""fairseq and metaseq, 2018 to now: `key=value` lines, epoch summaries in pipes, JSON with numbers as strings.

The step is `num_updates`; the counter of batches (`450 / 1891`) includes those that overflowed.
"""

from __future__ import annotations

from lens_core import Detector, EventPattern, Field, LogFormat, Mark, hookimpl

_FIELDS = {
    "num_updates": Field("iteration"),
    "gnorm": Field("grad_norm"),
    "oom": Field("oom_count"),
}
_NOT_TRAINING = r"\bvalid\b|\"valid_|\btest_loss|\| (?:valid|test) \|"


class Fairseq(Detector):
    """fairseq and metaseq (Meta)."""

    name = "fairseq"
    layer = "base"
    modules = ("fairseq", "metaseq")
    distributions = ("fairseq", "metaseq")
    project_keywords = ("fairseq", "metaseq")
    formats = (
        LogFormat(
            name="inner",
            words=("epoch", "loss"),
            head=r"\bepoch (?P<epoch>\d+):?\s+(?P<step_in_epoch>\d+) / (?P<steps_per_epoch>\d+) (?=loss=|\w+=)",
            layout="commas",
            fields=_FIELDS,
            needs=("lm_loss",),
            reject=_NOT_TRAINING,
            standalone=False,
            epoch_base=1,
            confidence=0.8,
            example="| epoch 001:    450 / 1891 loss=11.521, nll_loss=10.881, num_updates=445, lr=8.9e-05",
        ),
        LogFormat(
            name="bar",
            words=("epoch", "loss", "num_updates", "it"),
            head=r"\bepoch (?P<epoch>\d+): *(?=\d+%)",
            layout="bar",
            fields=_FIELDS,
            needs=("lm_loss",),
            reject=_NOT_TRAINING,
            standalone=False,
            epoch_base=1,
            confidence=0.8,
            example="epoch 001:  10%|#| 100/1000 [00:10<01:30, 10.0it/s, loss=12.3, num_updates=100, lr=1.25e-05]",
        ),
        LogFormat(
            name="json",
            words=("epoch", "loss", "num_updates"),
            head=r"\{(?=\s*\"epoch\":)",
            layout="mapping",
            fields=_FIELDS,
            needs=("lm_loss",),
            reject=_NOT_TRAINING,
            standalone=False,
            confidence=0.8,
            example='{"epoch": 1, "loss": "25.22", "num_updates": "3", "lr": "6e-05", "gnorm": "131.281"}',
        ),
        LogFormat(
            name="json_prefixed",
            words=("epoch", "train_loss", "train_num_updates"),
            head=r"\{(?=\s*\"epoch\":)",
            layout="mapping",
            fields={
                "train_num_updates": Field("iteration"),
                "train_gnorm": Field("grad_norm"),
                "train_lr": Field("learning_rate"),
                "train_loss_scale": Field("loss_scale"),
            },
            loss=("train_loss",),
            needs=("lm_loss",),
            reject=_NOT_TRAINING,
            standalone=False,
            confidence=0.8,
        ),
        LogFormat(
            name="epoch_summary_old",
            words=("epoch", "train", "loss", "ppl"),
            head=r"\bepoch (?P<epoch>\d+) \| (?=train loss )",
            layout="pipes",
            fields={**_FIELDS, "train ppl": Field("ppl"), "words/s": Field("wps")},
            loss=("train loss",),
            needs=("lm_loss",),
            reject=_NOT_TRAINING,
            standalone=False,
            confidence=0.7,
            example="| epoch 010 | train loss 1.44 | train ppl 2.72 | words/s    961 | lr 0.001000 | gnorm 2.1113",
        ),
        LogFormat(
            name="epoch_summary",
            words=("epoch", "loss", "num_updates", "ppl"),
            head=r"\bepoch (?P<epoch>\d+) \| (?=(?:train_)?loss )",
            layout="pipes",
            fields=_FIELDS,
            needs=("lm_loss",),
            reject=_NOT_TRAINING,
            standalone=False,
            confidence=0.7,
            example="| epoch 008 | loss 6.326 | nll_loss 5.193 | ppl 36.58 | num_updates 21896 | lr 0.000213706",
        ),
    )
    events = (
        EventPattern(
            type="step_skipped",
            words=("overflow", "detected", "setting", "loss", "scale"),
            pattern=r"overflow detected,(?: ignoring gradient,)? setting loss scale to: (?P<loss_scale>[\d.e+-]+)",
        ),
        EventPattern(
            type="training_failed",
            words=("minimum", "loss", "scale", "reached"),
            pattern=r"(?P<reason>Minimum loss scale reached(?: \([\d.e-]+\))?)",
        ),
        EventPattern(
            type="training_started",
            words=("begin", "training", "epoch"),
            pattern=r"\bbegin training epoch (?P<epoch>0*1)\s*$",
        ),
        EventPattern(
            type="epoch_started",
            words=("begin", "training", "epoch"),
            pattern=r"\bbegin training epoch (?P<epoch>\d+)",
        ),
        EventPattern(
            type="checkpoint_saved",
            words=("saved", "checkpoint", "epoch", "updates", "writing"),
            pattern=r"[sS]aved checkpoint (?P<path>\S+) \(epoch (?P<epoch>\d+) @ (?P<iteration>\d+) updates"
            r"(?:, score [^)]{0,80})?\) \(writing took (?P<duration_seconds>[\d.]+)",
        ),
        EventPattern(
            type="checkpoint_saving",
            words=("preparing", "to", "save", "checkpoint", "updates"),
            pattern=r"Preparing to save checkpoint for epoch (?P<epoch>\d+) @ (?P<iteration>\d+) updates",
        ),
        EventPattern(
            type="checkpoint_saving",
            words=("info", "trainer", "saving", "checkpoint", "to"),
            pattern=r"\| INFO \| \w+\.trainer \| Saving checkpoint to (?P<path>\S+)",
        ),
        EventPattern(
            type="checkpoint_saved",
            words=("info", "trainer", "finished", "saving", "checkpoint"),
            pattern=r"\| INFO \| \w+\.trainer \| Finished saving checkpoint to (?P<path>\S+)",
        ),
        EventPattern(
            type="checkpoint_loaded",
            words=("loaded", "checkpoint", "epoch", "updates"),
            pattern=r"[lL]oaded checkpoint (?P<path>\S+) \(epoch (?P<epoch>\d+) @ (?P<iteration>\d+) updates\)",
        ),
        EventPattern(
            type="training_ended",
            words=("stopping", "training", "due", "to"),
            pattern=r"Stopping training due to (?P<reason>.*)",
        ),
        EventPattern(
            type="training_ended",
            words=("done", "training", "in", "seconds"),
            pattern=r"\bdone training in (?P<duration_seconds>[\d.]+) seconds",
        ),
        EventPattern(
            type="training_ended",
            words=("early", "stop", "since", "valid", "performance"),
            pattern=r"(?P<reason>early stop since valid performance .*)",
        ),
        EventPattern(
            type="out_of_memory",
            words=("oom", "ran", "out", "memory"),
            pattern=r"(?P<reason>OOM: Ran out of memory with exception)",
        ),
        EventPattern(
            type="out_of_memory",
            words=("attempting", "to", "recover", "from", "oom"),
            pattern=r"(?P<reason>attempting to recover from OOM in forward/backward pass)",
        ),
        EventPattern(
            type="out_of_memory",
            words=("ran", "out", "of", "memory", "retrying", "batch"),
            pattern=r"(?P<reason>ran out of memory(?: in validation step)?), retrying batch",
        ),
    )
    marks = (
        Mark(words=("valid", "on", "subset"), pattern=r"\bvalid on '[\w-]+' subset", confidence=0.7),
        Mark(words=("valid_loss", "epoch"), pattern=r"\{\"epoch\": \d+, \"valid_", confidence=0.7),
        *(
            Mark(words=(word,), pattern=rf"\| (?:INFO|WARNING|ERROR) \| {word}\b", confidence=0.8)
            for word in ("fairseq", "fairseq_cli", "metaseq", "metaseq_internal")
        ),
        Mark(words=("max", "tokens", "per", "gpu"), pattern=r"\| max tokens per (?:GPU|device) = ", confidence=0.6),
        Mark(words=("training", "on", "gpus"), pattern=r"\| training on \d+ GPUs", confidence=0.6),
        Mark(words=("num", "model", "params"), pattern=r"\| num\. (?:shared )?model params: ", confidence=0.6),
        Mark(words=("train_inner",), pattern=r"\| train_inner \|", confidence=0.75),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [Fairseq]
