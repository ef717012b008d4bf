"""NeMo AutoModel: `step 10 | epoch 0 | loss 2.12 | grad_norm 1.23 | mem 20.1 GiB | tps 1234.5(154.3/gpu) | ...`."""

from __future__ import annotations

from lens_core import Detector, Field, LogFormat, Mark, hookimpl

_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|nan|inf)"


class NemoAutomodel(Detector):
    """NeMo AutoModel: models of Hugging Face on PyTorch's own parallelism."""

    name = "nemo_automodel"
    layer = "wrapper"
    bases = ("transformers",)
    modules = ("nemo_automodel",)
    distributions = ("nemo-automodel",)
    project_keywords = ("automodel",)
    formats = (
        LogFormat(
            name="step",
            words=("step", "epoch", "loss", "mem", "tps", "num_label_tokens"),
            head=rf"\bstep (?P<iteration>\d+) \| epoch (?P<epoch>\d+) \| loss (?P<loss>{_NUMBER}) \|"
            rf"(?: [^|]{{0,80}}\|){{0,4}}? grad_norm (?P<grad_norm>{_NUMBER}) \|"
            rf"(?: lr (?P<lr>{_NUMBER}) \|)?(?: mem (?P<mem>[\d.]+ GiB) \|)?(?: [^|]{{0,80}}\|){{0,4}}?"
            rf" tps (?P<rate>{_NUMBER})(?:\((?P<tokens_per_gpu>{_NUMBER})/gpu\))? \| num_label_tokens"
            r" (?P<num_label_tokens>\d+)",
            layout="groups",
            fields={"rate": Field("tokens_per_second"), "mem": Field("mem_usage", "memory")},
            confidence=0.75,
            example="step 10 | epoch 0 | loss 2.1234 | grad_norm 1.2345 | lr 1.00e-05 | mem 20.12 GiB"
            " | tps 1234.56(154.32/gpu) | num_label_tokens 5000",
        ),
    )
    marks = (Mark(words=("nemo_automodel",), pattern=r"\bnemo_automodel\b", confidence=0.7),)


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [NemoAutomodel]
