"""Reads sentences that a checkpoint is being written or was written, in whatever words, where no detector has the line.

`Saving model and optimizer state at iteration 1000 to out/ckpt`, `Model checkpoint of size 4.98 GiB saved to /1.pt`. A
sentence ends in a path, or with the sentence; a word that belongs to no such sentence (`config`, `predictions`) means
that something else is saved.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from .readings import LogEvent

_SAVING = frozenset("saving save snapshotting writing dumping storing".split())
_SAVED = frozenset("saved saves wrote written stored created".split())
_OBJECTS = frozenset("checkpoint checkpoints model models state states weights snapshot parameters".split())
_VERB = re.compile(rf"(?i)(?<![\w-])(?:{'|'.join(sorted(_SAVING | _SAVED))})(?![\w-])")
# Words that such a sentence may hold besides its verb and what is saved.
_BESIDE = frozenset(
    """
    the a an and of its full current latest best new next final last regular training model optimizer scheduler sharded
    global distributed binary proto end-of-epoch trained network runtime ema params dict file files successfully for
    epoch step iteration iter total_iters size to at in into as under path folder directory after num mb gb gib mib kb
    """.split()
)
_BEFORE_SAVED = frozenset("was is were has have had been successfully file state dict of size gib mib gb mb kb".split())
_NO_VERB_BEHIND = frozenset("not to be will can should would if when without before never is".split())
STEPS = frozenset(["step", "iteration", "iter"])
PATH = re.compile(r"[\w~=@.:{}-]{0,80}/[^'\",]{1,400}|[\w~=@-]{1,80}(?:\.[\w=@-]{1,80}){0,8}\.[A-Za-z]\w{0,11}")
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,6})?")
AROUND = " \t\r\n'\"`,:;!()[]<>*=-."
_MAX_WORDS, _MAX_CHARACTERS, _MAX_VERBS = 16, 800, 3
# The words by which a line is found.
CHECKPOINT_VERBS = frozenset(word.encode() for word in _SAVING | _SAVED)
CHECKPOINT_OBJECTS = frozenset(word.encode() for word in _OBJECTS)


def read_checkpoint(text: str) -> LogEvent | None:
    """Return the event of a sentence that a checkpoint is or was written; None where there is none."""
    for index, match in enumerate(_VERB.finditer(text)):
        if index >= _MAX_VERBS:
            break
        before = text[max(0, match.start() - _MAX_CHARACTERS) : match.start()].split()[-_MAX_WORDS:]
        if before and before[-1].strip(AROUND).lower() in _NO_VERB_BEHIND and match.group().lower() not in _SAVED:
            continue
        behind = text[match.end() : match.end() + _MAX_CHARACTERS].split()
        verb = match.group().lower()
        details = _read_behind(behind, is_named_before=verb in _SAVED and _is_about_checkpoint(before))
        if details is not None:
            iteration = details.pop("iteration", None)
            kind = "checkpoint_saved" if verb in _SAVED else "checkpoint_saving"
            return LogEvent(kind, "", iteration, None, details)
    return None


def _read_behind(words: Sequence[str], *, is_named_before: bool) -> dict[str, Any] | None:
    """The path and the step after the verb; None where something else is saved.

    A sentence that names what was saved before its verb has to end in a path.
    """
    has_object = is_named_before
    details: dict[str, Any] = {}
    last = ""
    for printed in words[:_MAX_WORDS]:
        word = printed.partition("path=")[2] if "path=" in printed else printed
        bare = word.strip(AROUND)
        plain = bare.lower()
        if plain in _OBJECTS:
            has_object = True
        elif _NUMBER.fullmatch(plain):
            if last in STEPS and plain.isdigit():
                details.setdefault("iteration", int(plain))
        elif PATH.fullmatch(word.strip(" '\"`,;:()[]<>")) and has_object:
            details["path"] = word.strip(" '\"`,;:()[]<>").rstrip(".")
            return details
        elif bare and plain not in _BESIDE and not plain.startswith("checkpoint("):
            return None
        last = plain
    return (
        details
        if has_object and not is_named_before and len(words) <= _MAX_WORDS and last not in ("to", "in", "into")
        else None
    )


def _is_about_checkpoint(words: Sequence[str]) -> bool:
    """Whether the words before `saved` end in what was saved: `Model checkpoint of size 4.98 GiB has been`."""
    for printed in reversed(words):
        plain = printed.strip(AROUND).lower()
        if plain in _OBJECTS - {"weights", "parameters", "states"}:
            return True
        if plain not in _BEFORE_SAVED and not _NUMBER.fullmatch(plain):
            return False
    return False
