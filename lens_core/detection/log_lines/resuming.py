"""Reads sentences that training goes on from a checkpoint, in whatever words, where no detector has the line.

`Resuming training from step 1,000`, `Loaded checkpoint out/step_500.pt (iteration 500)`. Such a sentence names a step,
a path, or that it is a checkpoint. A word that belongs to no such sentence (`best`, `pretrained`, `dataloader`) means
that something else is loaded.
"""

from __future__ import annotations

import re
from typing import Any

from .checkpoints import AROUND, PATH, STEPS
from .readings import LogEvent

_RESUMING = frozenset("resume resumes resumed resuming".split())
_CONTINUING = frozenset("continue continues continued continuing".split())
_LOADING = frozenset("loaded reloaded".split())
_RESTORING = frozenset(["restored"])
# The words by which a line is found: the first by themselves, the others beside what is loaded.
RESUMING_VERBS = frozenset(word.encode() for word in _RESUMING | _CONTINUING | _RESTORING)
LOADING_VERBS = frozenset(word.encode() for word in _LOADING)
_VERB = re.compile(
    rf"(?i)(?<![\w-])(?:{'|'.join(sorted(_RESUMING | _CONTINUING | _LOADING | _RESTORING))})(?![\w-]|:\s)"
)
_OBJECTS = frozenset("checkpoint checkpoints ckpt snapshot".split())
LOADED_OBJECTS = frozenset(word.encode() for word in _OBJECTS)
_TRAINING = frozenset("training train run experiment job".split())
_BESIDE = frozenset(
    """
    the a an and of its full current latest last previous saved existing found global model optimizer scheduler trainer
    state states epoch successfully from at in path file dir directory folder it now already with mode session
    """.split()
)
# Said of what may happen, or of what did not.
_NO_VERB_BEHIND = frozenset(
    """
    not to be can cannot could should would might may if when without before
    never unable failed please of or is
    """.split()
)
# A checkpoint that is loaded for this is not trained on. One whose loss is told is described.
_OTHER_ENDS = frozenset(
    """
    evaluation evaluate evaluating eval inference testing test prediction generation sampling validation export
    finetuning fine-tuning initialization failed failure error
    """.split()
)
_NOTHING = frozenset("scratch none null false true nothing -1".split())
_COUNT = re.compile(r"(\d{1,3}(?:,\d{3}){1,4}|\d{1,15})")
_NAMED_COUNT = re.compile(r"(?i)(?:global_?)?(?:step|iteration|iter)s?[=:_-](\d{1,15})$")
_MAX_WORDS, _MAX_CHARACTERS, _MAX_VERBS = 16, 800, 3


def read_resuming(text: str) -> LogEvent | None:
    """Return the event of a sentence that a checkpoint was taken up to train on; None where there is none."""
    for index, match in enumerate(_VERB.finditer(text)):
        if index >= _MAX_VERBS:
            break
        before = text[max(0, match.start() - _MAX_CHARACTERS) : match.start()].split()
        if before and before[-1].strip(AROUND).lower() in _NO_VERB_BEHIND:
            continue
        sentence = _Sentence(match.group().lower())
        words = text[match.end() : match.end() + _MAX_CHARACTERS].split()[:_MAX_WORDS]
        is_read = all(sentence.read_word(printed) for printed in words)
        others = [printed.strip(AROUND).lower() for printed in words]
        if not _OTHER_ENDS.isdisjoint(others) or any("loss" in word for word in others):
            continue
        # A sentence that goes on with results describes the checkpoint.
        if sentence.is_whole and (is_read or not sentence.is_loading):
            iteration = sentence.details.pop("iteration", None)
            return LogEvent("checkpoint_loaded", "", iteration, None, sentence.details)
    return None


class _Sentence:
    """The words after a verb, as far as they were read."""

    def __init__(self, verb: str) -> None:
        self._verb = verb
        self._has_object = self._has_training = self._has_from = False
        self._last = ""
        self.details: dict[str, Any] = {}

    def read_word(self, printed: str) -> bool:
        """Take in the next word; False where the sentence ends before it."""
        bare = printed.strip(AROUND)
        plain = bare.lower()
        named = _NAMED_COUNT.match(bare)
        count = _COUNT.fullmatch(bare)
        if count is not None:
            if self._last in STEPS:
                self.details.setdefault("iteration", int(count.group().replace(",", "")))
        elif named is not None:
            self.details.setdefault("iteration", int(named.group(1)))
        elif plain in _NOTHING:
            self._has_from = self._has_object = False
            return False
        elif plain in _OBJECTS:
            self._has_object = True
        elif plain in _TRAINING:
            self._has_training = True
        elif plain in STEPS or plain in _BESIDE or not bare:
            self._has_from = self._has_from or plain in ("from", "at")
        elif "path" not in self.details and self._takes_path(printed.strip(" '\"`,;:()[]<>")):
            self.details["path"] = printed.strip(" '\"`,;:()[]<>").rstrip(".")
        else:
            return False
        self._last = plain
        return True

    def _takes_path(self, word: str) -> bool:
        """Whether a word is where the checkpoint is: a path, or any name after `resuming training from`."""
        if PATH.fullmatch(word) is not None:
            return True
        return self._verb in _RESUMING and self._has_training and self._last == "from" and not word[:1].isdigit()

    @property
    def is_loading(self) -> bool:
        """Whether the verb says only that something was loaded."""
        return self._verb in _LOADING

    @property
    def is_whole(self) -> bool:
        """Whether the words say that training goes on from somewhere."""
        names_place = bool(self.details)
        if self.is_loading:
            return self._has_object and names_place
        if self._verb in _RESTORING:
            named = str(self.details.get("path", "")).lower()
            has_object = self._has_object or "ckpt" in named or "checkpoint" in named
            return self._has_from and (has_object or "iteration" in self.details)
        if self._verb in _CONTINUING:
            return self._has_from and (self._has_training or self._has_object) and names_place
        return self._has_from and (names_place or self._has_object)
