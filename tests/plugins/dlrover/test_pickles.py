"""Pickles as data: what DLRover writes is read, what it must not hold is refused, and nothing is ever called."""

from __future__ import annotations

import contextlib
import pickle
import pickletools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lens_plugins.dlrover import PickleError, Wire, dump, load
from lens_plugins.dlrover.pickles import CLASSES, MODULE

values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**100), 2**100)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8"))
    | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), inner, max_size=4)
        | st.builds(
            Wire, st.sampled_from(sorted(CLASSES)), st.dictionaries(st.text("abc_", max_size=5), inner, max_size=3)
        )
    ),
    max_leaves=20,
)
messages = st.builds(
    Wire, st.sampled_from(sorted(CLASSES)), st.dictionaries(st.text("abc_", max_size=5), values, max_size=4)
)


@given(messages)
def test_what_is_written_is_read(message: Wire) -> None:
    assert load(dump(message)) == message


class Reference(pickle.Unpickler):
    """Python's own reader, with stand-ins for DLRover's classes."""

    def find_class(self, module: str, name: str) -> Any:
        assert module == MODULE
        return type(name, (), {})


@given(messages)
def test_pythons_own_reader_agrees(message: Wire) -> None:
    import io

    def plain(value: Any) -> Any:
        if type(value).__module__ == __name__ and not isinstance(value, Wire):
            return Wire(type(value).__name__, {key: plain(item) for key, item in vars(value).items()})
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        return [plain(item) for item in value] if isinstance(value, list) else value

    assert plain(Reference(io.BytesIO(dump(message))).load()) == message


@pytest.mark.parametrize("protocol", range(3, pickle.HIGHEST_PROTOCOL + 1))
def test_what_python_writes_is_read(protocol: int) -> None:
    text = pickle.dumps({"a": [1, 2.5, "x", b"y", None, True, (1, 2)], "b": {"c": "größe"}}, protocol)
    state = text[2:-1] if protocol < 4 else text[11:-1]
    body = b"\x80\x04c" + MODULE.encode() + b"\nHeartBeat\n)\x81" + state + b"b."
    assert load(body).fields["b"] == {"c": "größe"}


def reduce_to(function: Any, *arguments: Any) -> bytes:
    class Evil:
        def __reduce__(self) -> Any:
            return function, arguments

    return pickle.dumps(Evil())


@pytest.mark.parametrize(
    "body",
    [
        reduce_to(eval, "1/0"),
        reduce_to(print, "called"),
        pickle.dumps(pickletools.genops),
        b"c" + MODULE.encode() + b"\nos.system\n.",
        b"c" + MODULE.encode() + b"\npickle.loads\n(S'x'\ntR.",
        b"\x80\x04\x8c" + bytes([len(MODULE)]) + MODULE.encode() + b"\x8c\x0apickle.dump\x93.",
        b"c" + MODULE.encode() + b"\nHeartBeat\n(I1\ntR.",
        b"c" + MODULE.encode() + b"\nHeartBeat\nN}b.",
        b"]r\xff\xff\xff\x7f.",
        b"\x80\x04X\xff\xff\xff\x7fabc.",
        b"(" * 1000 + b".",
        b"",
        b"N.",
        pickle.dumps({"a": 1}),
        b"x" * (5 << 20),
    ],
)
def test_everything_else_is_refused(body: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PickleError):
        load(body)
    assert capsys.readouterr().out == ""


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_an_error(body: bytes) -> None:
    with contextlib.suppress(PickleError):
        load(body)


@given(messages, st.data())
def test_damaged_messages_are_a_message_or_an_error(message: Wire, data: st.DataObject) -> None:
    body = bytearray(dump(message))
    body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(PickleError):
        load(bytes(body))
