"""Training loops that people copy from examples and small libraries; they name no framework.

PyTorch's tutorials and examples, torchvision, detectron2, timm, OpenCLIP, DINOv2, torchtune, llama-recipes,
slime, icefall, TensorFlow's first examples, Darknet, CatBoost, RLlib, spaCy. A form is here only if the general reader
cannot read it as well.
"""

from __future__ import annotations

from lens_core import Detector, Field, LogFormat, Table, hookimpl

_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|nan|inf)"
_SECONDS = Field("elapsed_time_per_iteration_ms", "time", 1000.0)
_LOADING = Field("data_loading_time_ms", "time", 1000.0)


_OF_RLLIB = (
    *("episode_reward_mean", "episode_return_mean", "episode_len_mean", "cur_lr", "policy_loss", "vf_loss"),
    *("total_loss", "vf_explained_var"),
)


class CommonLoops(Detector):
    """Step lines of widely copied training loops."""

    name = "common_loops"
    layer = ""
    formats = (
        LogFormat(
            name="darknet",
            words=("avg", "rate", "seconds", "images"),
            head=rf"(?:^|\s)(?P<iteration>\d{{1,12}}): (?P<loss>{_NUMBER}), (?P<loss_avg>{_NUMBER}) avg(?: loss)?,"
            rf" (?P<lr>{_NUMBER}) rate, (?P<time>{_NUMBER}) seconds, (?P<samples>\d{{1,18}}) images",
            fields={"time": _SECONDS, "samples": Field("consumed_samples"), "loss_avg": Field("lm_loss_avg")},
            confidence=0.3,
            example="9798: 0.370096, 0.451929 avg, 0.001000 rate, 3.300000 seconds, 627072 images",
        ),
        LogFormat(
            name="catboost",
            words=("learn", "total", "remaining"),
            head=rf"(?:^|\s)(?P<iteration>\d{{1,12}}):\s{{1,8}}learn:? (?P<loss>{_NUMBER})"
            rf"(?:\s{{1,8}}test:? (?P<test>{_NUMBER})\s{{1,8}}best(?:Test|:)? {_NUMBER} \(\d{{1,12}}\))?"
            r"\s{1,8}total: ",
            fields={"test": Field("test/loss")},
            confidence=0.3,
            example="100:\tlearn: 0.3651\ttest: 0.4712\tbest: 0.4712 (100)\ttotal: 5.1s\tremaining: 45s",
        ),
        LogFormat(
            name="xlm",
            words=("s", "words"),
            head=rf"(?:^|\s)(?P<iteration>\d{{1,9}}) - {{1,8}}(?P<samples>{_NUMBER}) [a-z]{{2,16}}/s"
            rf" - {{1,8}}(?P<tokens>{_NUMBER}) words/s -"
            rf" {{1,8}}(?=[A-Z][\w-]{{1,40}}: {{1,8}}(?P<loss>{_NUMBER}))",
            layout="loose",
            fields={
                "model lr": Field("learning_rate"),
                "samples": Field("samples_per_second"),
                "tokens": Field("tokens_per_second"),
            },
            confidence=0.3,
            example="INFO - 01/02/20 10:00:00 - 0:01:23 -    5 -  123.45 sent/s -  5678.90 words/s - MLM-en:  7.1234",
        ),
        LogFormat(
            name="wenet",
            words=("train", "batch", "loss", "rank"),
            head=r"\bTRAIN (?:\| steps/sec {1,8}[\d.]{1,12}\| )?"
            r"Batch (?P<epoch>\d{1,9})/(?P<step_in_epoch>\d{1,12}) (?=loss )",
            layout="loose",
            needs=("lm_loss",),
            confidence=0.3,
            example="DEBUG TRAIN Batch 0/100 loss 112.12 loss_att 90.1 loss_ctc 162.1 lr 0.0004 rank 0",
        ),
        LogFormat(  # Dopamine's iteration stands on a line above
            name="dopamine",
            words=("average", "undiscounted", "return", "training", "episode"),
            head=rf"\bAverage undiscounted return per training episode: (?P<return>{_NUMBER})",
            fields={"return": Field("train/return")},
            confidence=0.3,
            example="Average undiscounted return per training episode: -19.82",
        ),
        LogFormat(
            name="dopamine_evaluation",
            words=("average", "undiscounted", "return", "evaluation", "episode"),
            head=rf"\bAverage undiscounted return per evaluation episode: (?P<return>{_NUMBER})",
            fields={"return": Field("eval/return")},
            joins="beside",
            confidence=0.3,
            example="Average undiscounted return per evaluation episode: -18.45",
        ),
        LogFormat(
            name="deeplearning4j",
            words=("score", "at", "iteration", "is"),
            head=rf"\bScore at iteration (?P<iteration>\d{{1,12}}) is (?P<loss>{_NUMBER})",
            confidence=0.3,
            example="o.d.o.l.ScoreIterationListener - Score at iteration 120 is 0.8123",
        ),
        LogFormat(
            name="tesseract",
            words=("at", "iteration", "mean", "rms"),
            head=r"\bAt iteration (?P<iteration>\d{1,12})/\d{1,12}/\d{1,12}, (?=[Mm]ean rms=)",
            layout="commas",
            loss=(),
            confidence=0.3,
            example="At iteration 1200/1200/1200, Mean rms=1.234%, delta=3.123%, char train=9.123%",
        ),
        LogFormat(
            name="yolact",
            words=("t", "eta", "timer"),
            head=r"(?:^|\s)\[ {0,8}(?P<epoch>\d{1,9})\] {1,12}(?P<iteration>\d{1,12}) \|\| (?=[A-Z]: )",
            layout="pipes",
            fields={"timer": _SECONDS, "ETA": Field("", "text")},
            loss=("T",),
            needs=("lm_loss",),
            confidence=0.3,
            example="[  0]     10 || B: 5.123 | C: 10.123 | T: 22.4 || ETA: 1 day, 2:03:04 || timer: 0.512",
        ),
        # A page of YAML: keys in the order of the alphabet, so that the step comes after its numbers.
        *(
            LogFormat(
                name=f"rllib_{key}",
                words=(key,),
                head=rf"^\s{{{2 if key.startswith('episode') else 8},40}}{key}: (?P<{key}>{_NUMBER})\s{{0,8}}$",
                fields={key: Field("learning_rate" if key == "cur_lr" else key)},
                loss=(),
                is_alone=True,
                joins="next",
                confidence=0.3,
                example=f"          {key}: 22.577",
            )
            for key in _OF_RLLIB
        ),
        LogFormat(
            name="rllib",
            words=("training_iteration",),
            head=r"^\s{2,40}training_iteration: (?P<iteration>\d{1,12})\s{0,8}$",
            is_alone=True,
            confidence=0.3,
            example="  training_iteration: 1",
        ),
        LogFormat(
            name="quickstart",
            words=("loss",),
            head=rf"(?:^|\s)loss: (?P<loss>{_NUMBER}) +\[ *(?P<samples>\d+)/(?P<samples_per_epoch>\d+)\]",
            fields={"samples": Field("samples_in_epoch")},
            confidence=0.3,
            example="loss: 2.303494  [   64/60000]",
        ),
        LogFormat(
            name="icefall",
            words=("epoch", "batch", "loss", "tot_loss", "frames"),
            head=r"\bEpoch (?P<epoch>\d+), batch (?P<step_in_epoch>\d+), loss\["
            rf"loss=(?P<loss>{_NUMBER}),.{{0,200}}?tot_loss\[loss=(?P<tot_loss>{_NUMBER}),"
            rf"(?:.{{0,200}}?\bbatch size: (?P<batch>\d+))?(?:.{{0,200}}?\blr: (?P<lr>{_NUMBER}))?",
            fields={"batch": Field("global_batch_size")},
            confidence=0.3,
            example="Epoch 1, batch 50, loss[loss=0.3, over 490.00 frames. ], tot_loss[loss=0.40, over 9000.0 frames.],"
            " batch size: 13, lr: 2.95e-03",
        ),
        LogFormat(
            name="train_epoch",
            words=("train", "epoch", "loss"),
            head=r"\bTrain Epoch: (?P<epoch>\d+) \[\s*(?P<samples>\d+)/(?P<samples_per_epoch>\d+)"
            rf" \(\s*[\d.]+%\)\]\s+Loss: (?P<loss>{_NUMBER})",
            fields={"samples": Field("samples_in_epoch")},
            confidence=0.3,
            example="Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.297471",
        ),
        LogFormat(
            name="open_clip",
            words=("train", "epoch", "data", "batch", "lr", "loss"),
            head=r"\bTrain Epoch: (?P<epoch>\d+) \[\s*(?P<samples>\d+)/(?P<samples_per_epoch>\d+) \(\s*[\d.]+%\)\]"
            rf" Data \(t\): (?P<data>{_NUMBER}) Batch \(t\): (?P<time>{_NUMBER})"
            rf"(?:, (?P<rate>{_NUMBER})/s)?[ ,/][^L]{{0,80}}LR: (?P<lr>{_NUMBER})"
            rf" .{{0,400}}?\bLoss: (?P<loss>{_NUMBER}(?: \({_NUMBER}\))?)",
            fields={
                "samples": Field("samples_in_epoch"),
                "data": _LOADING,
                "time": _SECONDS,
                "rate": Field("samples_per_second"),
            },
            confidence=0.3,
            example="Train Epoch: 0 [1024/9000 (1%)] Data (t): 0.1 Batch (t): 0.4, 1122/s LR: 0.0001 Loss: 6.9 (6.9)",
        ),
        LogFormat(
            name="meters",
            words=("epoch", "time", "data", "loss"),
            head=r"\bEpoch: ?\[(?P<epoch>\d+)\]\[\s*(?P<step_in_epoch>\d+)/(?P<steps_per_epoch>\d+)\]"
            rf"\s+Time\s+(?P<time>{_NUMBER})\s[^D]{{0,80}}\bData\s+(?P<data>{_NUMBER})"
            rf"\s.{{0,200}}?\bLoss\s+(?P<loss>{_NUMBER}(?: \(\s*{_NUMBER}\))?)",
            fields={"data": _LOADING, "time": _SECONDS},
            epoch_base=1,
            confidence=0.3,
            example="Epoch: [0][ 10/5005]\tTime  0.505 ( 0.612)\tData  0.100 ( 0.2)\tLoss 6.9e+00 (7.0e+00)",
        ),
        LogFormat(
            name="timm",
            words=("train", "loss", "time", "lr", "data"),
            head=r"\bTrain: (?P<epoch>\d+) \[\s*(?P<step_in_epoch>\d+)/(?P<steps_per_epoch>\d+) \(\s*\d+%\)\]\s+"
            rf"Loss: *(?P<loss>{_NUMBER}(?: \({_NUMBER}\))?)\s+Time: (?P<time>{_NUMBER})s, *(?P<rate>{_NUMBER})/s"
            rf".*?LR: (?P<lr>{_NUMBER})",
            fields={"time": _SECONDS, "rate": Field("samples_per_second")},
            confidence=0.3,
            example="Train: 0 [  50/1251 (  4%)]  Loss: 6.95 (6.96)  Time: 0.401s, 2550.1/s  LR: 1.0e-05  Data: 0.01",
        ),
        LogFormat(
            name="dino",
            words=("training", "eta", "lr", "total_loss", "time"),
            head=r"\bTraining\s+\[\s*(?P<iteration>\d+)/(?P<target_iteration>\d+)\]\s+",
            layout="spaced",
            fields={"mem": Field("mem_usage", "memory", 1 / 1024), "time": _SECONDS, "data": _LOADING},
            loss=("total_loss",),
            needs=("lm_loss",),
            confidence=0.3,
            example="Training  [   10/125000]  eta: 2:03:04  lr: 0.0001 (0.0001)  total_loss: 12.1 (12.3)  time: 0.5",
        ),
        LogFormat(
            name="torchtune",
            words=("loss", "it", "s"),
            head=rf"(?:^|\s)(?P<epoch>\d+)\|(?P<iteration>\d+)\|Loss: (?P<loss>{_NUMBER})",
            confidence=0.3,
            example="1|10|Loss: 1.234:  10%|#         | 10/100 [00:10<01:30,  1.0it/s]",
        ),
        LogFormat(
            name="espnet",
            words=("train", "batch", "loss", "train_time"),
            head=r"\b(?P<epoch>\d+)epoch:train:\d+-(?P<step_in_epoch>\d+)batch: ",
            layout="commas",
            fields={"train_time": _SECONDS, "iter_time": _LOADING, "optim0_lr0": Field("learning_rate")},
            needs=("lm_loss",),
            standalone=False,
            epoch_base=1,
            confidence=0.3,
            example="1epoch:train:201-300batch: iter_time=0.422, loss=3.916, optim0_lr0=2.530e-05, train_time=2.032",
        ),
        LogFormat(
            name="mlx",
            words=("iter", "train", "loss", "learning", "rate", "it", "sec"),
            head=rf"\bIter (?P<iteration>\d+): Train loss (?P<loss>{_NUMBER}), Learning Rate (?P<lr>{_NUMBER}),"
            rf" It/sec {_NUMBER}, Tokens/sec (?P<rate>{_NUMBER})(?:, Trained Tokens (?P<tokens>\d+))?"
            r"(?:, Peak mem (?P<memory>[\d.]+ ?GB))?",
            fields={
                "rate": Field("tokens_per_second"),
                "tokens": Field("consumed_tokens"),
                "memory": Field("mem_usage", "memory"),
            },
            confidence=0.3,
            example="Iter 860: Train loss 0.413, Learning Rate 1.000e-06, It/sec 0.247, Tokens/sec 159.343",
        ),
        LogFormat(
            name="lerobot",
            words=("step", "smpl", "loss", "lr"),
            head=r"\bstep:(?P<iteration>[\d.]+[KM]?) (?=smpl:)",
            layout="spaced",
            fields={
                "smpl": Field("consumed_samples"),
                "grdn": Field("grad_norm"),
                "updt_s": _SECONDS,
                "data_s": _LOADING,
            },
            needs=("lm_loss",),
            confidence=0.3,
            example="step:200 smpl:2K ep:3 epch:0.05 loss:0.123 grdn:1.5 lr:1.0e-05 updt_s:0.1 data_s:0.01",
        ),
        LogFormat(
            name="json_stats",
            words=("json_stats", "iter", "loss"),
            head=r"\bjson_stats: \{",
            layout="mapping",
            fields={"iter": Field("iteration"), "time": _SECONDS, "mem": Field("mem_usage", "memory", 1 / 1024)},
            needs=("lm_loss",),
            confidence=0.3,
            example='json_stats: {"iter": 55080, "loss": 0.024404, "lr": 0.000025, "time": 0.266505}',
        ),
        LogFormat(
            name="slime_perf",
            words=("perf",),
            head=r"\bperf (?P<iteration>\d+): \{(?=\s*'perf/)",
            layout="mapping",
            confidence=0.3,
            example="perf 2: {'perf/train_time': 2.84, 'perf/step_time': 14.18}",
        ),
        LogFormat(
            name="slime",
            words=("step", "train", "loss", "grad_norm"),
            head=r"\bstep (?P<iteration>\d+): \{(?=\s*'train/)",
            layout="mapping",
            fields={"train/grad_norm": Field("grad_norm"), "train/lr-pg_0": Field("learning_rate")},
            loss=("train/loss",),
            needs=("lm_loss",),
            confidence=0.3,
            example="step 12: {'train/loss': 0.1, 'train/grad_norm': 0.3, 'train/lr-pg_0': 1e-06}",
        ),
        LogFormat(
            name="tensorflow_examples",
            words=("step", "loss", "examples", "sec", "batch"),
            head=rf"\bstep (?P<iteration>\d+), loss = (?P<loss>{_NUMBER})"
            rf" \((?P<rate>{_NUMBER}) examples/sec; (?P<time>{_NUMBER}) sec/batch\)",
            fields={
                "rate": Field("samples_per_second"),
                "time": _SECONDS,
            },
            confidence=0.3,
            example="step 660, loss = 2.85 (729.8 examples/sec; 0.175 sec/batch)",
        ),
        LogFormat(
            name="metric_logger",
            words=("epoch", "lr", "time", "max", "mem"),
            head=r"\bEpoch: \[(?P<epoch>\d+)\]\s+\[\s*(?P<step_in_epoch>\d+)/(?P<steps_per_epoch>\d+)\]\s+",
            layout="spaced",
            fields={
                "mem": Field("mem_usage", "memory", 1 / 1024),
                "time": _SECONDS,
                "data": _LOADING,
                "eta": Field("", "text"),
            },
            loss=("loss", "closs", "train_loss", "total_loss"),
            needs=("lm_loss", "learning_rate"),
            epoch_base=1,
            confidence=0.3,
            example="Epoch: [2]  [1480/1504]  lr: 0.000005  closs: 0.8662 (0.8558)  time: 4.3713  max mem: 51710",
        ),
        LogFormat(
            name="detectron2",
            words=("eta", "iter", "total_loss"),
            head=r"\biter: (?P<iteration>\d+) +(?=total_loss: )",
            layout="spaced",
            fields={
                "time": _SECONDS,
                "data_time": _LOADING,
                "max_mem": Field("mem_usage", "memory", 1 / 1024),
                "last_time": Field("", "text"),
                "last_data_time": Field("", "text"),
            },
            loss=("total_loss",),
            needs=("lm_loss",),
            standalone=False,
            confidence=0.3,
            example="eta: 1 day, 2:03:04  iter: 19  total_loss: 4.123  time: 0.3  lr: 0.0004  max_mem: 3456M",
        ),
    )
    tables = (
        Table(
            name="spacy",
            words=("loss", "score"),
            header=r"^E {2,12}# {2,12}(?:W {2,12})?LOSS [A-Z][\w .]{0,400}SCORE\s{0,40}$",
            row=r"^ {0,20}(?P<cells>\d{1,9}(?: {1,24}\d[\d.]{0,24}){2,40})\s{0,40}$",
            separator="  ",
            fields={"e": Field("epoch"), "#": Field("iteration")},
            loss=("loss ner", "loss tagger", "loss parser", "loss textcat", "loss tok2vec", "loss transformer"),
        ),
        Table(
            name="chainer",
            words=("iteration", "main", "loss"),
            header=r"^(?:epoch\s{1,40})?iteration\s{1,40}(?:lr\s{1,40})?main/[\w/ ]{1,2000}",
            # A column that has no value in this row leaves a gap, after which columns cannot be told apart.
            row=r"^\s{0,40}(?P<cells>\d{1,9}\s{2,40}\d[\d.e-]{0,16}(?:\s{1,16}[-+\d.e]{1,24}){1,12})(?:\s{17}|\s{0,16}$)",
            loose=True,
            loss=("main/loss",),
            needs=("lm_loss",),
        ),
        Table(
            name="vowpal_wabbit",
            words=("last", "counter", "weight", "label", "predict", "features"),
            header=r"^loss\s+last\s+counter\s+weight\s+label\s+predict\s+features\s*$",
            row=r"\s{0,8}(?P<cells>[-+\d.e]{1,20}\s+[-+\d.e]{1,20}\s+\d{1,12}\s+[\d.]{1,16}\s+\S{1,40}\s+\S{1,40}\s+\d{1,9})\s*$",
            fields={
                "counter": Field("iteration"),
                "last": Field("loss_since_last"),
                "weight": Field("example_weight"),
                **{name: Field(name, "text") for name in ("label", "predict")},
            },
            needs=("lm_loss",),
        ),
        *(
            Table(
                name=f"deepmd_{counter}",
                words=(counter, word, "lr"),
                header=rf"(?<=[# ]){counter} {{1,16}}{measure}_[\w ]{{1,400}}$",
                row=r"\s{0,16}(?P<cells>\d{1,12}(?:\s+(?:[-+]?\d[\d.]{0,12}e[-+]\d\d|nan)){2,24})\s*$",
                fields={counter: Field("iteration")},
                loss=(),
            )
            for counter, measure, word in (("step", "rmse", "rmse_trn"), ("batch", "l2", "l"))
        ),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [CommonLoops]
