"""The words of lines: what stands on a line before any regular expression looks at it."""

from __future__ import annotations

from collections.abc import Sequence

_A, _Z = ord("A"), ord("Z")
# Lower case for letters, blanks for everything but letters and underscores.
_WORDS = bytes(
    code + 32 if _A <= code <= _Z else code if (97 <= code <= 122 or code == 95) else 32 for code in range(256)
)
_WORDS_OF_LINES = _WORDS[:10] + b"\n" + _WORDS[11:]
# Words of many lines, the most common ones first; a declaration is looked for by the rarest of its words.
_COMMON = (
    b"info py to of in is on at for from the and a s time warning debug rank memory size model data out error not be"
    b" train training default process log code nccl gpu seconds total all after before step steps saved saving"
    b" failed done reached named checkpoint g epoch iter loss it with".split()
)
_RARITY = {word: index for index, word in enumerate(_COMMON)}


def words_of(text: str) -> list[bytes]:
    """Runs of letters and underscores, in lower case."""
    try:
        return text.encode().translate(_WORDS).split()
    except UnicodeEncodeError:  # half a surrogate pair
        return text.encode("utf-8", "surrogatepass").translate(_WORDS).split()


def words_of_lines(texts: Sequence[str]) -> list[bytes]:
    """The words of many lines, with blanks between them, a row for each; more rows if a text has several lines."""
    return "\n".join(texts).encode("utf-8", "surrogatepass").translate(_WORDS_OF_LINES).split(b"\n")


def rarest(words: frozenset[bytes]) -> bytes:
    """The word of a declaration that stands on the fewest other lines, as far as one can tell."""
    return max(words, key=lambda word: (_RARITY.get(word, len(_COMMON)), len(word), word))
