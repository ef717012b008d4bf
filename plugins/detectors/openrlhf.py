"""OpenRLHF: tqdm postfixes, three generations of key names, per epoch or episode."""

from __future__ import annotations

from lens_core import Detector, Field, LogFormat, Mark, hookimpl

_FIELDS = {
    "pg": Field("policy_loss"),
    "act_loss": Field("policy_loss"),
    "policy_loss": Field("policy_loss"),
    "cri": Field("critic_loss"),
    "policy_lr": Field("learning_rate"),
    "actor_lr": Field("learning_rate"),
    "act_lr": Field("learning_rate"),
    "rm": Field("reward"),
    "glen": Field("response_length"),
    "gen_len": Field("response_length"),
    "actor_grad_norm": Field("grad_norm"),
}
_LOSS = ("gpt_loss", "loss", "loss_mean", "sft_loss", "train_loss")


class OpenRlhf(Detector):
    """OpenRLHF, on Ray and DeepSpeed."""

    name = "openrlhf"
    layer = "wrapper"
    bases = ("deepspeed", "transformers")
    modules = ("openrlhf",)
    distributions = ("openrlhf",)
    project_keywords = ("openrlhf",)
    formats = (
        LogFormat(
            name="train_step",
            words=("train", "step", "of", "epoch"),
            head=r"\bTrain step of epoch (?P<epoch>\d+): ?",
            layout="bar",
            fields=_FIELDS,
            loss=_LOSS,
            needs=("lm_loss", "learning_rate"),
            confidence=0.75,
            example="Train step of epoch 0:   0%| | 0/17 [00:02<?, gpt_loss=2.04, lr=0, grad_norm=0]",
        ),
        LogFormat(
            name="global_step",
            words=("global", "step"),
            head=r"\bGlobal step (?P<iteration>\d+): \{",
            layout="mapping",
            fields=_FIELDS,
            loss=(),
            needs=("policy_loss", "reward"),
            confidence=0.7,
            example="Global step 12: {'policy_loss': 0.01, 'actor_lr': 5e-07, 'kl': 0.001, 'reward': 0.3}",
        ),
        LogFormat(
            name="episode",
            words=("episode", "it"),
            head=r"\bEpisode \[(?P<episode>\d+)/(?P<total_episodes>\d+)\]: ?",
            layout="bar",
            fields=_FIELDS,
            loss=(),
            needs=("policy_loss", "reward", "kl", "return"),
            confidence=0.75,
            example="Episode [1/1]:  24%| | 2431/10050 [12:59:12<20:32:20, 9.70s/it, policy_loss=0.0432, kl=0.0387]",
        ),
        LogFormat(
            name="train_epoch",
            words=("train", "epoch", "it"),
            head=r"\b(?:(?:Policy|Actor|Critic) )?Train epoch \[(?P<epoch>\d+)/(?P<total_epochs>\d+)\]: ?",
            layout="bar",
            fields=_FIELDS,
            loss=_LOSS,
            needs=("policy_loss", "critic_loss", "learning_rate", "reward", "lm_loss"),
            epoch_base=1,
            confidence=0.75,
            example="Policy Train epoch [1/1]: 100%| | 2/2 [00:33<00:00, 16.68s/it, pg=0, policy_lr=8e-6, grad_norm=0]",
        ),
    )
    marks = (
        Mark(words=("openrlhf",), pattern=r"\bopenrlhf\.", confidence=0.7),
        Mark(words=("episode", "it"), pattern=r"\bEpisode \[\d+/\d+\]:", confidence=0.6),
        Mark(words=("eval", "stage", "of"), pattern=r"\bEval stage of (?:steps|epoch)", confidence=0.6),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [OpenRlhf]
