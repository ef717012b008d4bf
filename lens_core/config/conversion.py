"""Tree → settings (msgspec Structs); unlike msgspec's own conversion it goes on after the first problem."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, TypeVar, get_args

import msgspec

from ..base.redaction import Secret, remember
from ..base.setting_types import (
    choices,
    describe_type,
    field_types,
    from_text,
    is_mapping,
    is_secret,
    is_sequence,
    is_struct,
    members,
    required_fields,
)
from ..base.setting_types import split_annotation as split
from .document import Node
from .problems import Problems, number_hint, suggestion

AnyStruct = TypeVar("AnyStruct", bound=msgspec.Struct)


class Failed:
    """The placeholder of a value that has a problem."""


FAILED = Failed()


def to_struct(
    node: Node,
    settings: type[AnyStruct],
    path: str,
    problems: Problems,
    *,
    also: tuple[str, ...] = (),
) -> AnyStruct | Failed:
    """A mapping as a settings object. `path` names it in messages; `also` are keys that somebody else reads.

    A `__post_init__` sees only values that are right by themselves: made with a default in the place of a faulty one,
    it could complain of a combination that nobody has written.
    """
    if node.broken:
        return FAILED
    if node.value is None:
        node = Node({}, node.place, keys={})
    if not isinstance(node.value, dict):
        problems.append_error(node.place, f"{path}: expected settings (a mapping), got {node.shape}")
        return FAILED
    types = field_types(settings)
    known = [*types, *also]
    for key in node.value:
        if key not in known:
            message = f"{path}: unknown key {key}; {suggestion(key, known, otherwise='there are')}"
            problems.append_error(
                node.key_place(key), message if known else f"{path}: unknown key {key}; it has no settings"
            )
    values: dict[str, Any] = {}
    required = required_fields(settings)
    for name, attribute in zip(settings.__struct_encode_fields__, settings.__struct_fields__, strict=True):
        if name in node.value:
            values[attribute] = convert(node.value[name], types[name], f"{path}.{name}", problems)
        elif name in required:
            problems.append_error(node.place, f"{path}: {name} is missing; it is {describe_type(types[name])}")
            values[attribute] = FAILED
    if any(value is FAILED for value in values.values()):
        return FAILED
    return _build_settings(settings, values, node, path, problems)


def fields_given(settings: msgspec.Struct, node: Node) -> dict[str, Any]:
    """The fields that a file gives, of settings that were made of this node; the others have only their defaults."""
    names = zip(settings.__struct_encode_fields__, settings.__struct_fields__, strict=True)
    return {attribute: getattr(settings, attribute) for name, attribute in names if name in (node.value or {})}


def _build_settings(
    settings: type[AnyStruct], values: dict[str, Any], node: Node, path: str, problems: Problems
) -> AnyStruct | Failed:
    try:
        return settings(**values)
    except (ValueError, TypeError) as error:
        text = _without_values(" ".join(str(error).split()), node, values)
        field, colon, rest = text.partition(": ")
        if colon and field in node.value:
            problems.append_error(node.value[field].place, f"{path}.{field}: {rest}")
        else:
            problems.append_error(node.place, f"{path}: {text}")
        return FAILED


def _without_values(text: str, node: Node, values: dict[str, Any]) -> str:
    """A plugin's own message without secrets and without what came from variables and files."""
    hidden = {value.reveal() for value in values.values() if isinstance(value, Secret)} | set(_expanded(node))
    for value in sorted(hidden, key=len, reverse=True):
        text = text.replace(value, "***") if value else text
    return text


def _expanded(node: Node) -> Iterator[str]:
    children = node.value.values() if isinstance(node.value, dict) else node.value
    if isinstance(node.value, (dict, list)):
        for child in children:
            yield from _expanded(child)
    elif isinstance(node.value, str) and node.value != node.written:
        yield node.value


def convert(node: Node, kind: Any, path: str, problems: Problems) -> Any:
    """A node as a value of this type, or FAILED with the problems noted."""
    if node.broken:
        return FAILED
    bare, metas = split(kind)
    options = [split(member)[0] for member in members(bare)]
    if node.value is None and type(None) in options:
        if node.is_empty:
            known = [option for option in options if option is not type(None)]
            words = " or ".join(map(describe_type, known))
            problems.append_error(
                node.place, f"{path}: nothing stands after the colon; write {words}, or remove the key"
            )
            return FAILED
        return None
    if isinstance(node.value, dict):
        structs = [option for option in options if is_struct(option)]
        if len(structs) == 1:
            found: Any = to_struct(node, structs[0], path, problems)
            return found
        inner = next((option for option in options if is_mapping(option)), None)
        if inner is not None:
            return _checked(node, _convert_mapping(node, inner, path, problems), kind, metas, path, problems)
    if isinstance(node.value, list):
        inner = next((option for option in options if is_sequence(option)), None)
        if inner is not None:
            return _checked(node, _sequence(node, inner, path, problems), kind, metas, path, problems)
    if Secret in options and _can_be_secret(node):
        text = node.value if isinstance(node.value, str) else node.written
        remember(text)
        return Secret(text)
    return _leaf(node, kind, path, problems)


def _can_be_secret(node: Node) -> bool:
    return isinstance(node.value, (str, int, float)) and not isinstance(node.value, bool)


def _convert_mapping(node: Node, kind: Any, path: str, problems: Problems) -> Any:
    arguments = get_args(kind)
    inner = arguments[1] if len(arguments) == 2 else Any
    values = {key: convert(child, inner, f"{path}.{key}", problems) for key, child in node.value.items()}
    return FAILED if any(value is FAILED for value in values.values()) else values


def _sequence(node: Node, kind: Any, path: str, problems: Problems) -> Any:
    arguments = [argument for argument in get_args(kind) if argument is not ...]
    inner = arguments[0] if arguments else Any
    values = [convert(child, inner, f"{path}[{index}]", problems) for index, child in enumerate(node.value)]
    return FAILED if any(value is FAILED for value in values) else values


def _checked(node: Node, value: Any, kind: Any, metas: tuple[msgspec.Meta, ...], path: str, problems: Problems) -> Any:
    """The container in the type that is asked for (tuple, set …) and with its limits checked."""
    if value is FAILED:
        return FAILED
    try:
        return msgspec.convert(value, kind, strict=False, dec_hook=_keep_converted)
    except msgspec.ValidationError:
        problems.append_error(node.place, f"{path}: expected {describe_type(kind)}, got {len(value)}")
        return FAILED


def _leaf(node: Node, kind: Any, path: str, problems: Problems) -> Any:
    plain = to_plain(node)
    if isinstance(plain, float) and not math.isfinite(plain):
        problems.append_error(node.place, f"{path}: expected {describe_type(kind)}, got {node.shape}")
        return FAILED
    try:
        return msgspec.convert(plain, kind, strict=False, dec_hook=_keep_converted)
    except msgspec.ValidationError:
        problems.append_error(node.place, f"{path}: {_expected(node, kind, path)}")
        return FAILED


def _expected(node: Node, kind: Any, path: str) -> str:
    if is_secret(kind):
        return f"expected {describe_type(kind)}, got something else"
    got = f"expected {describe_type(kind)}, got {node.shape}"
    allowed = [str(choice) for choice in choices(kind)]
    if allowed and isinstance(node.value, str):
        close = suggestion(node.value, allowed)
        return f"{got}; {close}" if close.startswith("did you mean") else got
    options = [split(member)[0] for member in members(split(kind)[0])]
    if str in options and isinstance(node.value, (int, float)):
        return f"{got}; put it in quotes"
    if bool in options and node.written.lower() in ("yes", "no", "on", "off"):
        return f"{got}; write {'true' if node.written.lower() in ('yes', 'on') else 'false'}"
    if isinstance(node.value, str) and not {int, float}.isdisjoint(options):
        hint = number_hint(path.rpartition(".")[2], node.written)
        return f"{got}; {hint}" if hint else got
    if node.value is None:
        return f"{got}; write it after the colon, or remove the key"
    return got


def _keep_converted(kind: type, value: Any) -> Any:
    """Values that are converted already (secrets, settings inside lists) stay as they are."""
    return value if isinstance(value, kind) else from_text(kind, value)


def to_plain(node: Node) -> Any:
    """The tree as ordinary dicts, lists and scalars."""
    if isinstance(node.value, dict):
        return {key: to_plain(child) for key, child in node.value.items()}
    if isinstance(node.value, list):
        return [to_plain(child) for child in node.value]
    return node.value
