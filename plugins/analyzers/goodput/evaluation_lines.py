"""Lines that say that an evaluation runs or has run: no steps, but where time went."""

from __future__ import annotations

from typing import ClassVar

from lens_core import Detector, EventPattern

EVALUATION = "evaluation"


def _mark(words: tuple[str, ...], pattern: str) -> EventPattern:
    return EventPattern(type=EVALUATION, words=words, pattern=pattern, names_framework=False)


class EvaluationLines(Detector):
    """Marks evaluations in a log, each once, for its ledger alone: to the daemon these lines are ordinary ones."""

    name: ClassVar[str] = "evaluation_lines"
    layer: ClassVar[str] = ""
    events = (
        _mark(("validation", "loss", "at", "iteration"), r"\bvalidation loss at iteration\s+(?P<iteration>\d+)"),
        _mark(("evaluating", "iter"), r"\bEvaluating iter 1/\d+"),
        _mark(("evaluating", "samples"), r"\bEvaluating on \d+ samples"),
        _mark(("running", "evaluation"), r"\*{5} Running Evaluation \*{5}"),
        _mark(("eval_runtime",), r"['\"]eval_runtime['\"]\s*:\s*['\"]?(?P<duration_seconds>\d+(?:\.\d+)?)"),
        _mark(("validation", "dataloader"), r"\bValidation DataLoader \d+:\s+100%"),
    )
