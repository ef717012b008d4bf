"""The types that settings may have, and the words for what they expect."""

from __future__ import annotations

import enum
import functools
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from .redaction import Secret, remember

_PLAIN_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    Secret: "a secret text",
    bytes: "text",
}
_SENTENCE_END = re.compile(r"\.(?:\s|$)")


def split_annotation(kind: Any) -> tuple[Any, tuple[msgspec.Meta, ...]]:
    """A type without its `Annotated`, and the msgspec.Meta that were in it."""
    if get_origin(kind) is Annotated:
        inner, *notes = get_args(kind)
        bare, metas = split_annotation(inner)
        return bare, (*metas, *(note for note in notes if isinstance(note, msgspec.Meta)))
    return kind, ()


def members(kind: Any) -> tuple[Any, ...]:
    """The alternatives of a union, or the type alone."""
    if get_origin(kind) in (Union, types.UnionType):
        return get_args(kind)
    return (kind,)


def is_struct(kind: Any) -> bool:
    """Whether the type is a msgspec.Struct class."""
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def is_mapping(kind: Any) -> bool:
    """Whether the type is a dict or a Mapping, with or without parameters."""
    origin = get_origin(kind) or kind
    return isinstance(origin, type) and issubclass(origin, Mapping) and not issubclass(origin, str)


def is_sequence(kind: Any) -> bool:
    """Whether the type is a list, a tuple, a set or a Sequence of something."""
    origin = get_origin(kind) or kind
    if not isinstance(origin, type) or issubclass(origin, (str, bytes)):
        return False
    return issubclass(origin, (Sequence, set, frozenset))


def is_secret(kind: Any) -> bool:
    """Whether a value of this type must not be shown."""
    bare, _ = split_annotation(kind)
    if bare is Secret:
        return True
    return any(is_secret(member) for member in (*get_args(bare), *members(bare)) if member is not bare)


def choices(kind: Any) -> list[Any]:
    """The values that a Literal or an Enum allows; empty for other types."""
    found: list[Any] = []
    for member in members(split_annotation(kind)[0]):
        if get_origin(member) is Literal:
            found += get_args(member)
        elif isinstance(member, type) and issubclass(member, enum.Enum):
            found += [item.value for item in member]
    return found


def describe_type(kind: Any) -> str:
    """A type in words: `a whole number of at least 1`, `text`, `a list of text`, `one of: disk, memory`."""
    bare, metas = split_annotation(kind)
    allowed = choices(bare)
    if allowed:
        return "one of: " + ", ".join(str(value) for value in allowed)
    words = " or ".join(_describe_bare(member) for member in members(bare) if member is not type(None))
    return words + "".join(_describe_limits(meta) for meta in metas)


def _describe_bare(kind: Any) -> str:
    kind, metas = split_annotation(kind)
    if is_struct(kind):
        return "settings (a mapping)"
    if is_mapping(kind):
        arguments = get_args(kind)
        return f"a mapping of names to {describe_type(arguments[1])}" if len(arguments) == 2 else "a mapping"
    if is_sequence(kind):
        arguments = tuple(argument for argument in get_args(kind) if argument is not ...)
        return f"a list of {describe_type(arguments[0])}" if arguments else "a list"
    if isinstance(kind, type) and issubclass(kind, PurePath):
        return "a path"
    words = _PLAIN_WORDS.get(kind, getattr(kind, "__name__", str(kind)))
    return words + "".join(_describe_limits(meta) for meta in metas)


def _describe_limits(meta: msgspec.Meta) -> str:
    parts = []
    for limit, words in ((meta.ge, "of at least"), (meta.gt, "above"), (meta.le, "of at most"), (meta.lt, "below")):
        if limit is not None:
            parts.append(f"{words} {limit:g}" if isinstance(limit, float) else f"{words} {limit}")
    if meta.min_length is not None:
        parts.append("that is not empty" if meta.min_length == 1 else f"of {meta.min_length} or more")
    if meta.max_length is not None:
        parts.append(f"of {meta.max_length} or fewer")
    if meta.pattern is not None:
        parts.append(f"like {meta.examples[0]}" if meta.examples else f"matching {meta.pattern}")
    return "".join(f" {' and '.join(parts)}" if parts else "")


@functools.lru_cache(maxsize=1024)
def field_types(settings: type[msgspec.Struct]) -> Mapping[str, Any]:
    """The settings' fields by the name that a file uses, with their annotated types.

    Resolving annotations is most of what loading plugins costs, so it is done once for each class.
    """
    hints = typing.get_type_hints(settings, include_extras=True)
    names = zip(settings.__struct_encode_fields__, settings.__struct_fields__, strict=True)
    return types.MappingProxyType({encoded: hints[name] for encoded, name in names})


def required_fields(settings: type[msgspec.Struct]) -> frozenset[str]:
    """The fields without a default, by the name that a file uses; resolves no annotation."""
    defaults = settings.__struct_defaults__
    without = len(settings.__struct_encode_fields__) - len(defaults)
    optional = zip(settings.__struct_encode_fields__[without:], defaults, strict=True)
    missing = (name for name, default in optional if default is msgspec.NODEFAULT)
    return frozenset((*settings.__struct_encode_fields__[:without], *missing))


def field_documentation(settings: type[msgspec.Struct]) -> dict[str, str]:
    """Return the meaning of each field: its msgspec.Meta description, else the class docstring's text after its name.

    In a docstring a field stands in backquotes, before a colon or as the beginning of a clause, alone or with others:
    `url`: where to. `user`, `password`: the login. `limit` is how many are kept.
    """
    types = field_types(settings)
    documented = _documented(" ".join((settings.__doc__ or "").split()), [*types])
    for name, kind in types.items():
        descriptions = [meta.description for meta in split_annotation(kind)[1] if meta.description]
        if descriptions:
            documented[name] = descriptions[-1]
    return documented


def _documented(text: str, names: Sequence[str]) -> dict[str, str]:
    if not names:
        return {}
    pieces = re.split(rf"`({'|'.join(map(re.escape, names))})`", text)
    found: dict[str, str] = {}
    together: list[str] = []
    for name, after in zip(pieces[1::2], pieces[2::2], strict=True):
        together.append(name)
        if after.strip() in (",", "and", ", and"):
            continue
        words = re.sub(r"^(?::|,| is| are)\s+", "", _SENTENCE_END.split(after)[0])
        for one in together:
            found.setdefault(one, words.strip().rstrip(".,;"))
        together = []
    return found


_PLAIN = frozenset({bool, int, float, str, bytes, list, dict, set, tuple, type(None)})


def is_text_type(kind: Any) -> bool:
    """Whether this is one of them."""
    return isinstance(kind, type) and issubclass(kind, (Secret, PurePath))


def from_text(kind: type, value: Any) -> Any:
    """A `dec_hook` for msgspec; raises NotImplementedError for other types, TypeError for what is no text."""
    if not is_text_type(kind):
        raise NotImplementedError(f"no configuration can give a {kind.__name__}")
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {type(value).__name__}")
    if issubclass(kind, Secret):
        remember(value)
    return kind(value)


def to_text(value: Any) -> str:
    """An `enc_hook` for msgspec, secrets revealed; raises NotImplementedError for other types."""
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, PurePath):
        return str(value)
    raise NotImplementedError(f"a setting of type {type(value).__name__} has no text")


def schema_of(kind: type) -> dict[str, Any]:
    """A `schema_hook` for msgspec; raises NotImplementedError for other types."""
    if not is_text_type(kind):
        raise NotImplementedError(f"no JSON schema for {kind!r}")
    return {"type": "string", "writeOnly": True} if issubclass(kind, Secret) else {"type": "string"}


def foreign_types(settings: type[msgspec.Struct]) -> list[str]:
    """The names of types in settings, at any depth, that no configuration can give."""
    return [kind.__qualname__ for kind in dict.fromkeys(_foreign([settings], set()))]


def _foreign(kinds: Iterable[Any], seen: set[type]) -> Iterator[type]:
    for kind in kinds:
        bare, _ = split_annotation(kind)
        if is_struct(bare):
            if bare not in seen:
                seen.add(bare)
                yield from _foreign(field_types(bare).values(), seen)
        elif get_origin(bare) is not None:
            yield from _foreign(() if get_origin(bare) is Literal else get_args(bare), seen)
        elif isinstance(bare, type) and bare not in _PLAIN and not is_text_type(bare) and _is_custom(bare):
            yield bare


def _is_custom(kind: type) -> bool:
    from msgspec import inspect  # takes longer than all the rest, and is hardly ever needed

    return isinstance(inspect.type_info(kind), inspect.CustomType)
