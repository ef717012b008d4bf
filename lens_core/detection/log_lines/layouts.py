"""Splitting the part after a format's head into keys and values; one function per layout."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

Pair = tuple[str, str]

_SPACED = re.compile(r"(?<![\w.:/])([A-Za-z_][\w./%-]{0,80}(?: ?\([\w/%]{1,20}\))?)\s{0,8}[:=]\s{0,8}(\S{1,256})")
_LOOSE = re.compile(
    r"(?<![A-Za-z_])([A-Za-z_][\w/.@%-]{0,80}(?: [A-Za-z_][\w/.@%-]{0,80}){0,2})\s{0,4}[:=]?\s{0,4}"
    r"((?:[-+]?\.?\d|[-+]?(?:nan|inf)\b)[^\s|;)]*(?: (?:ms|s|secs?|seconds)\b)?)",
    re.IGNORECASE,
)
_TABS = re.compile(r"\t|\s{2,}")
_LAST_KEY = re.compile(r"[A-Za-z][\w/ ().%-]*$")
_VALUE = re.compile(r"[-+\w.%,/]+")
_LONGEST_KEY = 100
_MAPPED = re.compile(
    r"['\"]([^'\"]{1,200})['\"]\s{0,8}:\s{0,8}(?:'([^']*)'\s{0,8}|\"([^\"]*)\"\s{0,8}|([^,{}\[\]'\"]+))(?=[,}])"
)
_BAR = re.compile(r"[^\[\r]*?(?:(?<=[\s|])|^)(\d{1,18})(?:/(\d{1,18})|/\?|it)?\s{0,8}(?:\[(?=[\d?])|(?=\d{1,4}:\d\d))")


def pipes(before: str, rest: str) -> list[Pair]:
    """`key: value | key value |`; segments before the head count too."""
    pairs: list[Pair] = []
    if "|" in before:
        first, *others = (_last_pair(segment) for segment in before.split("|"))
        if first is not None:  # the line's prefixes stand before its key
            pairs.append((first[0].split()[-1], first[1]))
        pairs += [last for last in others if last is not None]
    for segment in rest.split("|"):
        key, colon, value = segment.partition(":")
        if not colon:
            key, equals, value = segment.partition("=")
            if not equals:
                key, _, value = segment.strip().rpartition(" ")
        if value:
            pairs.append((key, value))
    return pairs


def _last_pair(segment: str) -> Pair | None:
    """The `key: value` at the end of a segment."""
    before, colon, value = segment.rpartition(":")
    key = _LAST_KEY.search(before.rstrip()[-_LONGEST_KEY:]) if colon else None
    return (key.group(), value.strip()) if key is not None and _VALUE.fullmatch(value.strip()) else None


def commas(before: str, rest: str) -> Iterator[Pair]:
    """`key: value, key=value`; a comma without a blank belongs to a number."""
    for segment in rest.replace(",\t", ", ").split(", "):
        key, colon, value = segment.partition(":")
        if not colon or "=" in key:
            key, colon, value = segment.partition("=")
        if colon:
            yield key.strip(), value.strip().rstrip(",")


def spaced(before: str, rest: str) -> list[Pair]:
    """`key: value  key=value`, keys without blanks."""
    return [(key, value.rstrip(",;")) for key, value in _SPACED.findall(rest)]


def loose(before: str, rest: str) -> list[Pair]:
    """`key value, key: value | key=value`, keys of up to three words: what people print themselves."""
    return [(key, value.rstrip(",")) for key, value in _LOOSE.findall(rest)]


def tabs(before: str, rest: str) -> Iterator[Pair]:
    """`key: value<tab>key: value`; a key may hold single blanks, and a value something after its number."""
    for segment in _TABS.split(rest):
        key, colon, value = segment.partition(": ")
        if colon and value.strip():
            yield key.strip(), value.split()[0]


def boxes(before: str, rest: str) -> Iterator[Pair]:
    """`│ key │ value │ key │ value │`."""
    cells = [cell.strip() for cell in rest.split("│")]
    return zip(cells[::2], cells[1::2], strict=False)


def dashes(before: str, rest: str) -> Iterator[Pair]:
    """`key:value - key:value`."""
    for segment in rest.split(" - "):
        key, colon, value = segment.strip().rpartition(":")
        if colon and key and " " not in key:
            yield key, value.split(maxsplit=1)[0] if value.strip() else ""


def groups(before: str, rest: str) -> Iterator[Pair]:
    """Nothing: the head has it all."""
    return iter(())


def mapping(before: str, rest: str) -> list[Pair]:
    """The entries of a Python or JSON dictionary up to its closing brace; a value that may be cut off is left out."""
    return [(key, single or double or bare.rstrip()) for key, single, double, bare in _MAPPED.findall(rest)]


def bar(before: str, rest: str) -> Iterator[Pair]:
    """The counter and the postfix of a progress bar; where it was cut off, its last value is not believed."""
    match = _BAR.match(rest)
    if match is None:
        return
    yield "step_in_epoch", match.group(1)
    if match.group(2):
        yield "steps_per_epoch", match.group(2)
    inner, closed, _ = rest[match.end() :].partition("]")
    pairs = [segment.partition("=") for segment in inner.split(", ")]
    whole = pairs if closed else pairs[:-1]
    for key, equals, value in whole:
        if equals:
            yield key.strip(), value.strip()
        elif key.endswith(" Tflops"):
            yield "tflops", key


LAYOUTS: dict[str, Callable[[str, str], Iterable[Pair]]] = {
    "groups": groups,
    "pipes": pipes,
    "commas": commas,
    "spaced": spaced,
    "loose": loose,
    "dashes": dashes,
    "tabs": tabs,
    "boxes": boxes,
    "mapping": mapping,
    "bar": bar,
}
