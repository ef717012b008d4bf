"""TRL: SFT, DPO, GRPO and the older PPO and RLOO, all on the Trainer's dictionary; PPO's has no `loss`."""

from __future__ import annotations

from lens_core import Detector, Field, LogFormat, Mark, hookimpl

_SHARED = ("transformers",)


class Trl(Detector):
    """TRL: reinforcement learning and preference training on the Transformers Trainer."""

    name = "trl"
    layer = "wrapper"
    bases = ("transformers", "transformers_trainer", "deepspeed")
    modules = ("trl",)
    distributions = ("trl",)
    project_keywords = ("trl",)
    formats = (
        LogFormat(
            name="policy",
            words=("objective", "kl", "episode"),
            head=r"\{(?=\s*['\"](?:eps|objective/kl)['\"])",
            layout="mapping",
            fields={"loss/policy_avg": Field("policy_loss"), "loss/value_avg": Field("value_loss")},
            loss=(),
            needs=("learning_rate", "policy_loss", "episode"),
            confidence=0.75,
            example="{'eps': 1, 'objective/kl': 10.5, 'loss/policy_avg': 0.0009, 'lr': 2.06e-06, 'episode': 816}",
        ),
    )
    marks = (
        Mark(words=("completions",), pattern=r"['\"]completions/", refines=_SHARED, confidence=0.7),
        Mark(words=("reward", "kl"), pattern=r"['\"]reward['\"]:", refines=_SHARED, confidence=0.65),
        Mark(words=("reward", "reward_std"), pattern=r"['\"]reward_std['\"]:", refines=_SHARED, confidence=0.65),
        Mark(words=("rewards", "chosen"), pattern=r"['\"]rewards/chosen['\"]:", refines=_SHARED, confidence=0.65),
        Mark(
            words=("mean_token_accuracy",), pattern=r"['\"]mean_token_accuracy['\"]:", refines=_SHARED, confidence=0.65
        ),
        Mark(words=("num_tokens", "loss"), pattern=r"['\"]num_tokens['\"]:", refines=_SHARED, confidence=0.65),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [Trl]
