"""Pickles of DLRover's message classes as plain data: written by hand, read by an interpreter that can call nothing.

Python's own unpickler imports and calls what a pickle names. This one knows data, and objects whose class is exactly
one of `CLASSES` in `MODULE`; anything else is refused, and an object is never more than a name and its fields.
"""

from __future__ import annotations

import pickletools
import struct
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

import msgspec

from lens_core import LensError

MODULE = "dlrover.python.common.comm"
CLASSES = frozenset(
    {
        "AtorchEvent",
        "BaseRequest",
        "BaseResponse",
        "CheckHardwareResetRequest",
        "CommWorldRequest",
        "DiagnosisAction",
        "DiagnosisReportData",
        "ElasticRunConfig",
        "ElasticRunConfigRequest",
        "Event",
        "GPUStats",
        "GlobalStep",
        "HeartBeat",
        "HeartbeatResponse",
        "JoinRendezvousRequest",
        "KeyValuePair",
        "KeyValuePairs",
        "NodeEvent",
        "NodeFailure",
        "NodeMeta",
        "ParallelConfig",
        "PreCheckRequest",
        "PreCheckResponse",
        "RendezvousParams",
        "RendezvousState",
        "ResourceStats",
        "WaitingNodeNumRequest",
    }
)
MAX_PICKLE_BYTES = 4 * 1024 * 1024
_MAX_OPCODES = 100_000
_MAX_DEPTH = 64
# Python hashes larger whole numbers by a remainder that anybody can make equal for all of them.
_MAX_KEY = 2**60


class PickleError(LensError):
    """A pickle is damaged, too large, or names something that is not one of DLRover's messages."""


class Wire(msgspec.Struct):
    """An object of a message class: the class's name and its fields."""

    name: str
    fields: dict[str, Any] = {}


def dump(value: Wire) -> bytes:
    """A pickle that DLRover reads as an object of its own class."""
    return b"\x80\x04" + _encode(value) + b"."


def _encode(value: Any) -> bytes:
    if isinstance(value, Wire):
        return b"c%b\n%b\n)\x81%bb" % (MODULE.encode(), value.name.encode(), _encode(value.fields))
    if value is None or isinstance(value, bool):
        return {None: b"N", True: b"\x88", False: b"\x89"}[value]
    if isinstance(value, int):
        data = value.to_bytes((value.bit_length() // 8) + 1, "little", signed=True)
        return b"\x8a" + bytes((len(data),)) + data
    if isinstance(value, float):
        return b"G" + struct.pack(">d", value)
    if isinstance(value, str):
        data = value.encode("utf-8", "replace")
        return b"X" + struct.pack("<I", len(data)) + data
    if isinstance(value, bytes):
        return b"B" + struct.pack("<I", len(value)) + value
    if isinstance(value, Mapping):
        return b"}(" + b"".join(_encode(key) + _encode(item) for key, item in value.items()) + b"u"
    if isinstance(value, (list, tuple)):
        return b"](" + b"".join(map(_encode, value)) + b"e"
    raise PickleError(f"a {type(value).__name__} does not belong in a message")


class _Mark:
    """The place on the stack where a collection begins."""


class _Name(str):
    """A class of DLRover's, by its name."""


def load(data: bytes) -> Wire:
    """The object that a pickle holds. Raises PickleError."""
    if len(data) > MAX_PICKLE_BYTES:
        raise PickleError(f"a message of {len(data)} bytes; at most {MAX_PICKLE_BYTES} are read")
    try:
        found = _Reader().read(data)
    except PickleError:
        raise
    # Python's reader of opcodes warns about some damage, which may be an error where warnings are.
    except (ValueError, LookupError, TypeError, AttributeError, struct.error, RecursionError, Warning) as error:
        raise PickleError(f"not a readable pickle: {error}") from None
    if not isinstance(found, Wire):
        raise PickleError(f"holds a {type(found).__name__}, not a message")
    _check_size(found)
    return found


def _check_size(found: Wire) -> None:
    """Refuse what is larger written out than it was pickled: one object may be in many places, and in itself."""
    waiting: list[tuple[Any, int]] = [(found, 0)]
    seen = 0
    while waiting:
        value, depth = waiting.pop()
        seen += 1
        if seen > _MAX_OPCODES or depth > _MAX_DEPTH:
            raise PickleError(f"holds more than {_MAX_OPCODES} values, or is nested more than {_MAX_DEPTH} levels deep")
        parts: Iterable[Any] = ()
        if isinstance(value, Wire):
            parts = value.fields.values()
        elif isinstance(value, dict):
            parts = value.values()
        elif isinstance(value, (list, tuple)):
            parts = value
        waiting.extend((part, depth + 1) for part in islice(parts, _MAX_OPCODES))
        if len(waiting) > 2 * _MAX_OPCODES:
            raise PickleError(f"holds more than {_MAX_OPCODES} values")


class _Reader:
    """A stack machine for the opcodes that plain data and objects need."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def read(self, data: bytes) -> Any:
        for number, (opcode, argument, _) in enumerate(pickletools.genops(data)):
            if number > _MAX_OPCODES:
                raise PickleError(f"more than {_MAX_OPCODES} steps")
            if opcode.name == "STOP":
                return self._stack.pop()
            step = _STEPS.get(opcode.name)
            if step is None:
                raise PickleError(f"the step {opcode.name} does not belong in a message")
            step(self, argument)
        raise PickleError("ends too early")

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def _since_mark(self) -> list[Any]:
        marks = (index for index in range(len(self._stack) - 1, -1, -1) if self._stack[index] is _Mark)
        place = next(marks, None)
        if place is None:
            raise PickleError("a collection ends that did not begin")
        items = self._stack[place + 1 :]
        del self._stack[place:]
        return items

    def memoize(self, key: int | None) -> None:
        self._memo[len(self._memo) if key is None else int(key)] = self._stack[-1]

    def recall(self, key: int) -> None:
        self._stack.append(self._memo[int(key)])

    def tuple_of(self, count: int | None) -> None:
        items = self._since_mark() if count is None else self._stack[len(self._stack) - count :]
        if count:
            del self._stack[-count:]
        self._stack.append(tuple(items))

    def set_items(self, single: bool) -> None:
        items = [self._stack.pop() for _ in range(2)][::-1] if single else self._since_mark()
        target: dict[Any, Any] = _expect(self._stack[-1], dict)
        for key in items[::2]:
            _check_key(key)
        target.update(zip(items[::2], items[1::2], strict=True))

    def append(self, single: bool) -> None:
        items = [self._stack.pop()] if single else self._since_mark()
        target: list[Any] = _expect(self._stack[-1], list)
        target.extend(items)

    def name(self, module: str, name: str) -> None:
        if module != MODULE or name not in CLASSES:
            raise PickleError(f"{module}.{name} is not a message of DLRover's that is taken")
        self._stack.append(_Name(name))

    def stack_name(self) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        self.name(_expect(module, str), _expect(name, str))

    def make(self) -> None:
        arguments, name = self._stack.pop(), self._stack.pop()
        if arguments != () or not isinstance(name, _Name):
            raise PickleError("an object is made in a way that messages are not")
        self._stack.append(Wire(str(name), {}))

    def build(self) -> None:
        state = _expect(self._stack.pop(), dict)
        target: Wire = _expect(self._stack[-1], Wire)
        target.fields.update({_expect(key, str): value for key, value in state.items()})


def _check_key(key: Any) -> None:
    is_whole = isinstance(key, int) and abs(key) <= _MAX_KEY
    if not (key is None or is_whole or isinstance(key, (str, bytes))):
        raise PickleError(f"a {type(key).__name__} is no key of a message's dictionary")


def _expect(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise PickleError(f"a {kind.__name__} was expected, not a {type(value).__name__}")
    return value


_Step = Callable[[_Reader, Any], None]


def _constants() -> dict[str, _Step]:
    plain = "BININT BININT1 BININT2 LONG1 LONG4 BINFLOAT SHORT_BINUNICODE BINUNICODE BINUNICODE8 INT LONG FLOAT UNICODE"
    steps: dict[str, _Step] = dict.fromkeys((*plain.split(), "SHORT_BINBYTES", "BINBYTES", "BINBYTES8"), _Reader.push)
    steps["NONE"] = lambda reader, _: reader.push(None)
    steps["NEWTRUE"] = lambda reader, _: reader.push(True)
    steps["NEWFALSE"] = lambda reader, _: reader.push(False)
    steps["EMPTY_DICT"] = lambda reader, _: reader.push({})
    steps["EMPTY_LIST"] = lambda reader, _: reader.push([])
    steps["EMPTY_TUPLE"] = lambda reader, _: reader.push(())
    steps["MARK"] = lambda reader, _: reader.push(_Mark)
    return steps


_STEPS: dict[str, _Step] = {
    **_constants(),
    "PROTO": lambda reader, _: None,
    "FRAME": lambda reader, _: None,
    "MEMOIZE": lambda reader, _: reader.memoize(None),
    "PUT": _Reader.memoize,
    "BINPUT": _Reader.memoize,
    "LONG_BINPUT": _Reader.memoize,
    "GET": _Reader.recall,
    "BINGET": _Reader.recall,
    "LONG_BINGET": _Reader.recall,
    "TUPLE": lambda reader, _: reader.tuple_of(None),
    "TUPLE1": lambda reader, _: reader.tuple_of(1),
    "TUPLE2": lambda reader, _: reader.tuple_of(2),
    "TUPLE3": lambda reader, _: reader.tuple_of(3),
    "SETITEM": lambda reader, _: reader.set_items(True),
    "SETITEMS": lambda reader, _: reader.set_items(False),
    "APPEND": lambda reader, _: reader.append(True),
    "APPENDS": lambda reader, _: reader.append(False),
    "GLOBAL": lambda reader, argument: reader.name(*argument.split(" ", 1)),
    "STACK_GLOBAL": lambda reader, _: reader.stack_name(),
    "NEWOBJ": lambda reader, _: reader.make(),
    "BUILD": lambda reader, _: reader.build(),
}
