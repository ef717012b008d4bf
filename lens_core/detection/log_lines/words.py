"""The words of lines: what stands on a line before any regular expression looks at it."""

from __future__ import annotations

from collections.abc import Sequence

_A, _Z = ord("A"), ord("Z")
# Lower case for letters, blanks for everything but letters and underscores.
_WORDS = bytes(
    code + 32 if _A <= code <= _Z else code if (97 <= code <= 122 or code == 95) else 32 for code in range(256)
)
# Words of many lines, the most common ones first; a declaration is looked for by the rarest of its words.
_COMMON = (
    b"info py to of in is on at for from the and a s time warning debug rank memory size model data out error not be"
    b" train training default process log code nccl gpu seconds total all after before step steps saved saving"
    b" failed done reached named checkpoint g epoch iter loss it with".split()
)
# Prefixes that loggers, launchers and containers add to a line.
OF_PREFIXES = frozenset(
    b"info debug warning error root py pid ip rank default stdout stderr worker log node host".split()
)
_RARITY = {word: index for index, word in enumerate(_COMMON)}


def row_of(text: str) -> bytes:
    """A line's letters in lower case and underscores, blanks for all else: runs of them are its words."""
    try:
        return text.encode().translate(_WORDS)
    except UnicodeEncodeError:  # half a surrogate pair
        return text.encode("utf-8", "surrogatepass").translate(_WORDS)


def rows_of(texts: Sequence[str]) -> list[bytes]:
    """The row of each line."""
    try:
        return [text.encode().translate(_WORDS) for text in texts]
    except UnicodeEncodeError:
        return [row_of(text) for text in texts]


def rarest(words: frozenset[bytes]) -> bytes:
    """The word of a declaration that stands on the fewest other lines, as far as one can tell."""
    return max(words, key=lambda word: (_RARITY.get(word, len(_COMMON)), len(word), word))
