"""Other work than a training's step, for the general reader: lines whose counters and numbers look like one.

Evaluations, checkpoints, stages of a pipeline (`Step [1/5] Quantize: loss=0.3`), networks and disks that are measured
(`iter 3 read 512 MB/s loss 0`), and sentences.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# Words before the counter of a line that is not a step of training.
OTHER_WORK = re.compile(
    r"(?i)\b(?:val|valid|validat\w+|eval|evaluat\w+|test|testing|sanity|final|best|summary"
    r"|average(?! (?:\w{1,12}[ _])?(?:loss|cost|reward|return)s?\b)|finder|finding|trial|search|loading|loaded"
    r"|resum(?:e|ed|ing)|saved?|saving|restor(?:e|ed|ing)|config|args|arguments|options|hyper-?parameters"
    r"|skip(?:ped|ping)?|early|no|not|quanti[sz]\w*|calibrat\w+|until|after|every|warmup|from)\b"
)
# nanoGPT's estimate over held-out batches: its training loss is of other batches than those of the step.
_ESTIMATE = re.compile(r"\bstep \d{1,12}: train loss [^\s,]{1,24}, val loss [^\s,]{1,24}\s*$")
# The name of a checkpoint may hold its step and loss.
_FILE = re.compile(r"\.(?:ckpt|pth?|bin|safetensors|h5|keras|npz|pkl|distcp)\b")
_CALL = re.compile(r"[A-Za-z_]\w{0,60}\((?:[A-Za-z_]\w{0,60}=|\s*$)|^>>> ")
_SIGN = re.compile(r"[A-Za-z]\t[-+]?\d|[:=|,;(\[/{]|\S(?: -+ |  )\S|\bis [-+]?\d{1,12}\.\d")
# `print("step", step, "loss", loss)`: names and numbers in turn, at least two of each, and nothing else.
# The same with names of two words, at least three of them: `global step 200 learning rate 0.5 perplexity 1720.6`.
_BARE_NAMES = re.compile(
    r"\s*(?:(?!(?:\w{1,20} )?(?:at|for|got|in|is|of|on|the|to|was|with)\b)"
    r"[A-Za-z][\w/.%-]{0,40}(?: [A-Za-z][\w/.%-]{0,40})? {1,4}"
    r"[-+]?(?:\d[\d.]*(?:e[-+]?\d+)?|nan|inf)(?:%|m?s)?(?:\s+|$)){3,20}",
    re.I,
)
_BARE_PAIRS = re.compile(
    r"\s*(?:[A-Za-z_][\w/.%]{0,60} {1,4}[-+]?(?:\d[\d.]*(?:e[-+]?\d+)?|nan|inf)(?:%|m?s)?(?:\s+|$)){2,20}", re.I
)
# A verb of model preparation right after a counter and its total is the stage's name; `Quantize loss` is a loss.
_STAGE = re.compile(
    r"(?i)(?<!\d)\d{1,9} {0,2}(?:/|of) {0,2}\d{1,9} {0,2}[\])]?[:.,>\s-]{1,6}(?:now )?"
    r"(?P<verb>(?!optimi|(?!re)[a-z]{0,12}size\b)[a-z]{2,16}i[sz](?:e[sd]?|ing|ation)|calibrat\w{1,4}|compil\w{1,6}|convert\w{0,4}|export\w{0,4}"
    r"|prun(?:e[sd]?|ing)|download\w{0,4}|upload\w{0,4}|load(?:ed|ing)?|sav(?:ed?|ing)|prepar\w{1,8}|profil\w{1,4}"
    r"|benchmark\w{0,4}|deploy\w{0,6}|packag\w{1,4}|extract\w{0,4}|build(?:ing)?|merg(?:e[sd]?|ing)|tun(?:e|ing)"
    r"|fus(?:e[sd]?|ing)|pars(?:e[sd]?|ing)|clean\w{0,4}|check\w{0,4}|verif\w{1,8}|fetch\w{0,4}|encod(?:e[sd]?|ing))"
    r"\b(?![ _-]?loss)"
)
# A stage of a pipeline names its work after the counter: `Step 3/5: Running tests (loss=0)`.
_NAMED_STAGE = re.compile(
    r"(?i)^\W{0,8}(?:step|stage) {0,2}\[?\d{1,12} {0,2}(?:/|of) {0,2}\d{1,12}\]? {0,2}[:.-]{1,2} {1,4}"
    r"(?P<work>(?!\w{0,12}(?:train|tun|optimi|learn|epoch|loss|updat))[a-z]{3,20}(?: [a-z]{2,20}){0,5}) {1,2}\("
)
# Words of a numerical solver, whose iterations have a cost or an error; a loss beside them is a training's.
_OF_SOLVER = re.compile(
    r"(?i)(?<![a-z])(?:residuals?|resid|chi2|inf_pr|inf_du|tolerance|newton|line[- ]search|step[- ]length|objective gap"
    r"|duality gap|primal|dual|constraint violation)(?![a-z])"
)
_PRICE = re.compile(
    r"(?i)\bcosts?[:= ]{1,3}\d[\d.,]{0,12} ?(?:usd|eur|gbp|dollars?|credits)\b|\bcosts?[:= ]{1,3}[$\u20ac]"
)
_OF_CHAIN = frozenset(
    "block blocks slot slots validator validators stake stakes staked balance miner miners shard peers height".split()
)
_CHAIN = re.compile(r"(?i)\b(?:blocks|validators?|stak(?:e|es|ed|ing)|miners?|mempool|blockchain)\b")
_PACKETS = re.compile(r"(?i)\b(?:packets?|pkts?|ping|datagrams?)\b")
_LOST = re.compile(r"(?i)\b(?:packet|pkt|frame|path|link|signal|insertion|return|round-?trip|connection)s?[ _-]?loss")
_TRAFFIC = frozenset(
    """
    read write reads writes sent send received recv receive rx tx packet packets pkts iops rtt ping jitter bandwidth
    dropped retransmits transferred
    """.split()
)
_BANDWIDTH = re.compile(r"\d ?[KMGT]?i?(?:B|b|bit|byte)s?(?:/s|ps)(?:ec)?\b")


def why_no_step(text: str, before: str, measures: Mapping[str, str]) -> str:
    """Say why a line cannot be a step of a training, whatever its numbers are; empty if it may.

    `before` are the words before its first counter, `measures` its numbers by their names.
    """
    if before and (other := OTHER_WORK.search(before)):
        return f"`{other.group()}` stands before its counter: that is other work than a training's step"
    if (stage := _STAGE.search(text)) is not None:
        return f"`{stage.group('verb')}` stands behind its counter: that is a stage of a pipeline"
    if (stage := _NAMED_STAGE.search(text)) is not None:
        return f"`{stage.group('work')}` stands behind its counter: that is a stage of a pipeline"
    if _is_of_chain(text, measures):
        return "it is about a blockchain, where `reward` and `epoch` are something else"
    if _is_of_traffic(text, measures):
        return "it measures a network or a disk, where `loss` is something else"
    has_loss = any("loss" in name.lower() for name in measures)
    if not has_loss and (solver := _OF_SOLVER.search(text)) is not None:
        return f"`{solver.group()}` is of a solver, whose iterations are no training's"
    if not has_loss and _PRICE.search(text):
        return "its cost is a price"
    if _ESTIMATE.search(text):
        return "it is an estimate over batches that are held back"
    if _FILE.search(text):
        return "it names a file of a checkpoint"
    if _CALL.search(text):
        return "it is a call in a program's code"
    is_separated = _SIGN.search(text) or _BARE_PAIRS.fullmatch(text) or _BARE_NAMES.fullmatch(text)
    return "" if is_separated else "nothing separates its names from its numbers"


def _is_of_chain(text: str, measures: Mapping[str, str]) -> bool:
    """Whether numbers are of the blocks, validators or stakes of a blockchain."""
    words = {word for name in measures for word in name.lower().replace("_", " ").split()}
    is_named = not words.isdisjoint(_OF_CHAIN) or _CHAIN.search(text) is not None
    return is_named and not any("loss" in word for word in words)


def _is_of_traffic(text: str, measures: Mapping[str, str]) -> bool:
    """Whether the loss of a line is of packets: its name says so, or it is whole beside what a network measures."""
    losses = {name: number for name, number in measures.items() if "loss" in name.lower()}
    if not losses:
        return False
    if _LOST.search(text):
        return True
    is_whole = all("." not in number or number.endswith("%") for number in losses.values())
    words = {word for name in measures for word in name.lower().replace("_", " ").split()}
    is_share = all(number.endswith("%") for number in losses.values())
    if (is_whole and _PACKETS.search(text)) or (is_share and _BANDWIDTH.search(text)):
        return True
    return (is_whole or _BANDWIDTH.search(text) is not None) and not _TRAFFIC.isdisjoint(words)
