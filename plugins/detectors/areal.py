"""AReaL: `Epoch 1/10 Step 12/116 Train step 12/1160 done.` and a table of all statistics below it.

The line makes the step's row; the rows of the table join it. What they are about stands first in their names.
"""

from __future__ import annotations

from lens_core import Detector, Field, LogFormat, Mark, hookimpl

_TRAINED = ("grpo_actor", "ppo_actor", "actor", "sft", "rw")
_OTHERS = ("ppo_critic", "critic", "rollout", "timeperf")
_MEANINGS = {
    "lr": "learning_rate",
    "update/lr": "learning_rate",
    "grad_norm": "grad_norm",
    "update/grad_norm": "grad_norm",
    "actor_loss/avg": "policy_loss",
    "update/actor_loss/avg": "policy_loss",
}
# A row of the table may hold several of them.
_FIELDS = {f"{part}/{key}": Field(name) for part in _TRAINED for key, name in _MEANINGS.items()}


class Areal(Detector):
    """AReaL, asynchronous reinforcement learning."""

    name = "areal"
    layer = "wrapper"
    bases = ("megatron", "transformers")
    modules = ("areal",)
    distributions = ("areal",)
    project_keywords = ("areal",)
    formats = (
        LogFormat(
            name="step",
            words=("epoch", "step", "train", "done"),
            head=r"\bEpoch (?P<epoch>\d+)/(?P<total_epochs>\d+) Step \d+/(?P<steps_per_epoch>\d+)"
            r" Train step (?P<iteration>\d+)/(?P<target_iteration>\d+) done\.",
            confidence=0.7,
            example="StatsLogger INFO: Epoch 1/10 Step 12/116 Train step 12/1160 done.",
        ),
        *(
            LogFormat(
                name=part,
                words=(part,),
                head=rf"^\s*│\s*(?={part}/)",
                layout="boxes",
                fields=_FIELDS,
                loss=("sft/loss/avg", "rw/loss/avg"),
                joins="previous",
                confidence=0.3,
                example=f"│ {part}/grad_norm │ 2.0000e+00 │",
            )
            for part in (*_TRAINED, *_OTHERS)
        ),
    )
    marks = (Mark(words=("statslogger", "info"), pattern=r"\bStatsLogger INFO:", confidence=0.6),)


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [Areal]
