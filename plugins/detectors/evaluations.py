"""Evaluations, as frameworks and loops of one's own announce or report them: no steps, but where time went.

A line counts once per evaluation as far as it can be told: the first or the last of a progress bar, never each of it.
These lines name no framework.
"""

from __future__ import annotations

from lens_core import Detector, EventPattern, hookimpl


def _mark(words: tuple[str, ...], pattern: str) -> EventPattern:
    return EventPattern(type="evaluation", words=words, pattern=pattern, names_framework=False)


_MEGATRON = (
    _mark(("validation", "loss", "at", "iteration"), r"\bvalidation loss at iteration\s+(?P<iteration>\d+)"),
    _mark(("validation", "results", "at", "iteration"), r"\bvalidation results at iteration\s+(?P<iteration>\d+)"),
    _mark(("evaluating", "iter"), r"\bEvaluating iter 1/\d+"),
    _mark(("evaluating", "samples"), r"\bEvaluating on \d+ samples"),
)
_TRANSFORMERS = (
    _mark(("running", "evaluation"), r"\*{5} Running Evaluation \*{5}"),
    _mark(("running", "prediction"), r"\*{5} Running Prediction \*{5}"),
    _mark(("evaluating", "perplexity"), r"\*{5} Evaluating perplexity\b"),
    _mark(("eval_runtime",), r"['\"]eval_runtime['\"]\s*:\s*['\"]?(?P<duration_seconds>\d+(?:\.\d+)?)"),
)
_LIGHTNING = (
    _mark(("validation", "dataloader"), r"\bValidation DataLoader \d+:\s+(?:0|100)%"),
    _mark(("validation", "iteration"), r"\bValidation: iteration 1/\d+"),
    _mark(("validating",), r"\bValidating:\s+0%"),
)
_OTHERS = (
    _mark(("begin", "validation", "on", "subset"), r"\bbegin validation on \S+ subset"),  # fairseq
    _mark(("valid", "on", "subset"), r"\bvalid on '\w+' subset \| "),
    _mark(
        ("step", "train", "loss", "val"), r"\bstep (?P<iteration>\d+): train loss [\d.]+, val loss [\d.]+"
    ),  # nanoGPT
    _mark(("validate", "step", "loss"), r"\bvalidate step:\s+(?P<iteration>\d+)\s+loss:"),  # torchtitan
    _mark(("validating",), r"^(?:.{0,200}\s)?Validating \.\.\.\s*$"),  # LitGPT
    _mark(("eval", "metrics", "after", "step"), r"\beval metrics after step: (?P<iteration>\d+)"),  # MaxText
    _mark(("running", "evaluation", "for"), r"\bRunning evaluation for '"),  # OLMo
    _mark(("running", "evals"), r"\bRunning \S{1,80} evals\b"),
    _mark(("validation", "generation", "end"), r"\bvalidation generation end\b"),  # verl
    *(
        _mark(("eval", unit), rf"\beval\s+{unit.title()}\s+\d+:\s+(?:0|100)%")  # Composer
        for unit in ("epoch", "batch")
    ),
)
# Loops of people's own, which write it in plain words.
_PLAIN = tuple(
    _mark((verb, noun), rf"(?i)(?:^|[\s\]:>|-]){verb} (?:the |an? )?{noun}\b(?! (?:sets?|data|dataset|loss))")
    for verb in ("starting", "start", "begin", "beginning", "running")
    for noun in ("evaluation", "validation")
)


class Evaluations(Detector):
    """Evaluations that a log announces or reports; while one runs, silence is no stall."""

    name = "evaluations"
    layer = ""
    events = (*_MEGATRON, *_TRANSFORMERS, *_LIGHTNING, *_OTHERS, *_PLAIN)


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [Evaluations]
