"""Log lines that only one house prints: a detector that is written in the configuration.

detectors:
  house:
    type: pattern
    line: 'step=(?P<iteration>\\d+) loss=(?P<lm_loss>\\S+)'
    framework: house_trainer
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from lens_core import Context, Detector, Field, LogFormat, hookimpl
from lens_core.logs import TIME_LIMIT_SECONDS, required_words, why_not


class PatternSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the pattern detector."""

    line: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=4096,
            description="a regular expression that is searched in every line; its named groups are the stored metrics, "
            "`iteration` (or `step`) the training step",
        ),
    ]
    framework: Annotated[
        str,
        Meta(pattern=r"^[a-z][a-z0-9_]{0,63}$", examples=["house_trainer"], description="the framework that prints it"),
    ]
    layer: Annotated[Literal["base", "wrapper"], Meta(description="the framework's layer")] = "base"
    confidence: Annotated[float, Meta(gt=0, le=1, description="how sure such a line makes the framework")] = 0.7

    def __post_init__(self) -> None:
        problem = why_not(self.line)
        if problem:
            raise ValueError(f"line: {problem}")


class Pattern(Detector):
    """Lines of your own trainer, by a regular expression with named groups."""

    name = "pattern"
    Settings = PatternSettings

    def __init__(self, settings: PatternSettings, context: Context) -> None:
        super().__init__(settings, context)
        # Declared on the class by other detectors, on each instance by this one.
        vars(self).update(name=context.name, framework=settings.framework, layer=settings.layer)
        self.formats = (
            LogFormat(
                name="line",
                words=required_words(settings.line),
                head=settings.line,
                fields={"step": Field("iteration")},
                standalone=False,
                confidence=settings.confidence,
                time_limit_seconds=TIME_LIMIT_SECONDS,
            ),
        )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [Pattern]
