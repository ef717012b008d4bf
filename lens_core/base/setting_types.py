"""Types of settings that are written as texts and that msgspec does not know: `Secret` and the paths of pathlib."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import Any, Literal, get_args, get_origin

import msgspec

from .expectations import field_types, is_struct, split_annotation
from .redaction import remember
from .secrets import Secret

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
