"""TensorBoard: scalars as they pass the event file writers of `tensorboard` and `tensorboardX`.

`torch.utils.tensorboard`, Lightning's logger and wandb's `sync_tensorboard` all end in one of these two classes. An
event is one protobuf message (tensorflow/core/util/event.proto); it is read by its attributes, so neither protobuf nor
TensorFlow is imported here.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any

from . import runtime, say
from .echo import as_echo, inside
from .session import Session
from .values import Number, as_number

_SESSION = "_lens_hook_session"
_MARK = "_lens_hook_original"
_SCALARS = "scalars"  # the plugin name of scalar summaries that travel as tensors
_CLASS_SCALAR = 1
_FORMATS = {1: "<f", 2: "<d", 3: "<i", 9: "<q"}  # DT_FLOAT, DT_DOUBLE, DT_INT32, DT_INT64
_LISTS = ("float_val", "double_val", "int_val", "int64_val", "bool_val")


def on_event_file_writer(module: Any) -> None:
    """Patch the class `EventFileWriter` of an event writer's module."""
    if not runtime.get_settings().enabled:
        return
    runtime.expect()
    writer = module.EventFileWriter
    original = vars(writer).get("add_event")
    if original is None or hasattr(original, _MARK):
        return
    writer.add_event = _adding(original)


def _adding(original: Callable[..., Any]) -> Callable[..., Any]:
    """`add_event(self, event)`, and its scalars taken once the writer has accepted it."""

    def add_event(self: Any, event: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, event, *args, **kwargs)
        try:
            _log_event(self, event)
        except Exception as error:  # noqa: BLE001 - said once; the user's call goes on
            say.report_failure("missed", "a TensorBoard event was missed", error)
        return result

    setattr(add_event, _MARK, original)
    add_event.__doc__ = original.__doc__
    return add_event


def _log_event(writer: Any, event: Any) -> None:
    if not event.HasField("summary"):
        return
    values = scalars(event.summary)
    hook = runtime.get_runtime()
    if not values or not hook.buffer.on:
        return
    session = session_of(hook, writer, writer.get_logdir())
    if inside:
        values = as_echo(values)
    hook.buffer.append_row((session, values, int(event.step), False, None, None, event.wall_time or time.time()))


def session_of(hook: runtime.Runtime, writer: Any, directory: Any) -> Session:
    """The session of an event writer, named by its directory; made at its first scalar."""
    session: Session | None = writer.__dict__.get(_SESSION)
    if session is None:
        name = directory.decode("utf-8", "replace") if isinstance(directory, bytes) else str(directory)
        session = hook.open_session("tensorflow", name[:500])
        writer.__dict__[_SESSION] = session
    return session


def scalars(summary: Any) -> dict[str, Number]:
    """The scalars of a summary message by tag."""
    found: dict[str, Number] = {}
    for value in summary.value:
        kind = value.WhichOneof("value")
        number: Number | None = None
        if kind == "simple_value":
            number = as_number(value.simple_value)
        elif kind == "tensor" and is_scalar(value.metadata):
            number = _tensor(value.tensor)
        if number is not None:
            found[value.tag] = number
    return found


def is_scalar(metadata: Any) -> bool:
    """Whether a summary's metadata say that it is a scalar."""
    plugin = metadata.plugin_data  # a list of them in tensorboardX, whose messages have no class either
    names = {plugin.plugin_name} if hasattr(plugin, "plugin_name") else {one.plugin_name for one in plugin}
    return _SCALARS in names or getattr(metadata, "data_class", None) == _CLASS_SCALAR


def _tensor(tensor: Any) -> Number | None:
    """The one element of a tensor message, or None."""
    for name in _LISTS:
        elements: Any = getattr(tensor, name, ())
        if len(elements) == 1:
            return as_number(elements[0])
    layout = _FORMATS.get(tensor.dtype)
    content = tensor.tensor_content
    if layout is None or len(content) != struct.calcsize(layout):
        return None
    return as_number(struct.unpack(layout, content)[0])
