"""One spelling for what loops write in many ways, for the general reader: `plain_spelling` of a line.

A number within a call is the number (`tensor(2.31, device='cuda:0')`, `Array(2.31, dtype=float32)`), a name in brackets
the name (`[epoch]: 3`, `(loss) 0.71`), a box drawn with lines one of pipes. Names of counters and losses in other
languages become English, commas of decimals points. The prefix of a logger in brackets that holds a time is left out.
"""

from __future__ import annotations

import re

_NUMBER = r"[-+]?(?:\d[\d.]{0,30}(?:[eE][-+]?\d{1,4})?|nan|inf)"
_CALLED = re.compile(
    r"\b(?:(?:np|jnp|numpy|torch|tf|mx)\.)?(?:[Tt]ensor|[Aa]rray|DeviceArray|[Ff]loat(?:16|32|64)?|u?int(?:8|16|32|64)?)"
    rf"\(\s{{0,4}}\[{{0,2}}\s{{0,4}}({_NUMBER})\s{{0,4}}\]{{0,2}}"
    r"(?:, {0,2}(?:\w{1,20}=)?[^,()]{1,60}(?:\([^()]{0,20}\))?){0,6}\)"
)
_NAMED = re.compile(
    r"(?<![\w\])])[\[(]((?i:epoch|step|iter(?:ation)?|batch|(?:train(?:ing)?[ _])?loss|global[ _]step))[\])]"
    r"(?=\s{0,3}[:=]?\s{0,3}[-+\d.])"
)
# `('Loss: ', 2.31)`: what Python 2's print makes of a label with blanks of its own.
_QUOTED = re.compile(r"(['\"])\s{1,4}(?=[A-Za-z])([\w ./-]{1,40}[:=] ?\1)")
# `epoch/iter: 20/5399` has two counters.
_TWO_COUNTERS = re.compile(r"\b([Ee]poch)/((?i:iter|step|batch)\w{0,12})(\s{0,2}[:=]\s{0,2})(\d{1,9})/(\d{1,12})\b")
_SYMBOL = re.compile(r"(?<=[(\s]):([A-Za-z_]\w{0,30}), (?=[-+\d.])")  # Julia's
# `Training loss (for one batch) at step 100: 2.31`
_REMARK = re.compile(r"\s\((?:for|per|over|in) [a-z ]{1,24}\)(?=\s)")
# The name of a file that is saved is no part of a line's numbers: `Train loss: 12.3 Saving ./model/loss=11.2.ckpt ...`
_SAVING = re.compile(
    r"(?<=[\d.,;|])\s{1,4}(?:=> ?)?[Ss]aving(?: \w{1,16}){0,4} \S{0,200}\.(?:ckpt|pth?|h5|bin)\b[^\d]{0,12}$"
)
# `loss train: 1.98  eval: 2.34`
_IN_PHASES = re.compile(
    r"^(\s{0,8})(loss|acc|accuracy|iou|error) (train)(:\s?[-+\d.e]{1,20},?\s{1,4})(eval|val|valid|test)(?=:\s?[-+\d.])"
)
# `Loss (epoch: 0, step: 100): 2.31`
_PLACED = re.compile(
    r"\b((?:[A-Za-z]{1,16}[ _])?[Ll]oss) \(((?i:epoch|step|iter(?:ation)?|batch)\b[^()]{1,60})\)(?=\s?[:=]\s?[-+\d.])"
)
_JOINED = re.compile(r"^([\s\[(|]{0,8}(?i:epoch|step|iter|iteration|batch|round))[-_](\d{1,12})(?=[:,;|\s])")
_DECIMAL_COMMA = re.compile(r"(?<=[:=])(\s{0,2}[-+]?\d{1,6}),(\d{4,16})(?!\d|,\d)")
_LOSSES = re.compile(r"(?i)\b(loss)(?:es)?:?\s{0,2}\((?=[A-Za-z][\w. ]{0,30}[:=]\s{0,2}[-+.\d])([^()]{1,400})\)")
_NAME_WITHIN = re.compile(r"[A-Za-z][\w. ]{0,30}(?=[:=])")
# `Train 3, loss: 1.78, train acc: 0.81`: the phase counts the epochs.
_PHASE = re.compile(r"^(\s{0,8})(Train|Test|Val(?:id)?) (\d{1,9})(?=, {1,2}(?:\w{1,12}[ _])?loss[:=]\s)")
_LOGGER = re.compile(
    r"^\s{0,8}\[(?![^\[\]]{0,80}\b(?i:step|epoch|iter|batch))(?=[^\[\]]{0,40}\d\d-\d\d[ T]\d\d:\d\d)"
    r"[^\[\]]{1,100}\]\s{0,4}"
)
_BOX = str.maketrans("│┃║█：，；（）、", "|||#:,;(),")
_MARKS_OF_BOX = "│┃║"
_ORDINAL = re.compile(r"第\s?(\d{1,9})\s?(?:个)?(轮|步|批|epoch|step)(?:训练)?")
_OF_ORDINALS = {"轮": "epoch", "步": "step", "批": "batch"}
# The losses that a line of another language names; where all its letters are of another script, nothing else finds it.
FOREIGN_LOSSES = ("损失", "損失", "손실", "потер")
_OF_LANGUAGES = {
    "epoch": ("epoche époque época epoca эпоха 训练轮次 轮次 轮数 エポック 에폭 에포크"),
    "step": ("schritt étape paso passo adım шаг 步数 步骤 ステップ 스텝"),
    "iter": ("итерация 迭代次数 迭代 반복"),
    "batch": "批次 バッチ 배치 батч",
    "train loss": "训练损失 学習損失 訓練損失",
    "val loss": "验证损失 検証損失",
    "loss": ("verlust perte perda pérdida perdida perdita kayıp потери потеря 损失值 损失 損失 손실"),
    "lr": "lernrate 学习率 学習率 학습률",
    "accuracy": ("genauigkeit doğruluk точность 准确率 精度 정확도"),
}
_ENGLISH = {word: english for english, words in _OF_LANGUAGES.items() for word in words.split()}
_FOREIGN = re.compile(
    "|".join(
        rf"\b{re.escape(word)}\b" if word[0] < "⺀" else re.escape(word)
        for word in sorted(_ENGLISH, key=len, reverse=True)
    ),
    re.IGNORECASE,
)
# Letters that are no ASCII; bars and boxes have none.
_LETTERS = re.compile("[\u00c0-\u024f\u0400-\u04ff\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]")
_OF_TRAINING = re.compile(r"(?i)\bloss (?:de |d['’]|di |du )(?:(trein|entr|addestr|train)|(valid))\w{0,16}(?:ção|ón)?")


def plain_spelling(text: str) -> str:
    """A line in the spelling that the general reader knows.

    Each pattern is tried only where a text that it needs stands on the line: most lines need none of them.
    """
    if not text.isascii():
        text = _of_other_scripts(text)
    elif "erlust" in text or "perd" in text or "Perd" in text or "pert" in text or "Pert" in text:
        text = _translate(text)
    if "(" in text:
        text = _without_brackets(text)
    if "poch]" in text or "tep]" in text or "ter]" in text or "oss]" in text or "tch]" in text or "ion]" in text:
        text = _NAMED.sub(r"\1", text)
    if "'" in text or '"' in text:
        text = _QUOTED.sub(r"\1\2", text)
    if " :" in text or "(:" in text:
        text = _SYMBOL.sub(r"\1: ", text)
    if "poch/" in text:
        text = _TWO_COUNTERS.sub(r"\1\3\4, \2\3\5", text)
    if "," in text:
        text = _PHASE.sub(_name_phase, _DECIMAL_COMMA.sub(r"\1.\2", text))
    if " train:" in text:
        text = _IN_PHASES.sub(r"\1\3 \2\4\5 \2", text)
    if "aving" in text:
        text = _SAVING.sub("", text)
    if " @ " in text:
        text = text.replace(" @ ", ", ")
    text = _JOINED.sub(r"\1 \2", text, count=1)
    return _LOGGER.sub("", text) if text.lstrip()[:1] == "[" else text


def _without_brackets(text: str) -> str:
    """A line without calls around its numbers, remarks and brackets around names."""
    if "r(" in text or "y(" in text or "t(" in text or "2(" in text or "4(" in text or "6(" in text:
        text = _CALLED.sub(r"\1", text)
    if "(for " in text or "(per " in text or "(over " in text or "(in " in text:
        text = _REMARK.sub("", text)
    if "oss (" in text or "oss(" in text or "es(" in text or "es (" in text or "oss: (" in text:
        text = _LOSSES.sub(_name_losses, _PLACED.sub(r"\2, \1", text))
    if "poch)" in text or "tep)" in text or "ter)" in text or "oss)" in text or "tch)" in text or "ion)" in text:
        text = _NAMED.sub(r"\1", text)
    return text


def _of_other_scripts(text: str) -> str:
    if (any(mark in text for mark in _MARKS_OF_BOX) and "%|" not in text) or "：" in text or "，" in text:
        text = text.translate(_BOX)
    text = _ORDINAL.sub(lambda match: f" {_OF_ORDINALS.get(match.group(2), match.group(2))} {match.group(1)} ", text)
    return _translate(text) if _LETTERS.search(text) is not None else text


def _translate(text: str) -> str:
    """Names of counters and losses in English."""
    text = _FOREIGN.sub(lambda match: _ENGLISH.get(match.group().lower(), match.group()), text)
    return _OF_TRAINING.sub(lambda match: "train loss" if match.group(1) else "val loss", text)


def _name_losses(match: re.Match[str]) -> str:
    """`Losses(total: 3.2, policy: 2.4)` as `(loss/total: 3.2, loss/policy: 2.4)`."""
    return "(" + _NAME_WITHIN.sub(lambda name: f"loss/{name.group().strip()}", match.group(2)) + ")"


def _name_phase(match: re.Match[str]) -> str:
    blanks, phase, number = match.groups()
    return f"{blanks}epoch {number}" if phase == "Train" else f"{blanks}{phase} epoch {number}"
