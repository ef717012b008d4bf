"""TensorFlow 2: scalars as they pass `tf.summary`, whose event files are written in C++.

`tf.summary.scalar`, Keras' callback, and the writers of flax and clu end in `write` of
tensorflow/python/ops/summary_ops_v2.py. Inside a `tf.function` that sees symbols instead of numbers: such scalars are
in the event files alone.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from . import runtime, say
from .echo import as_echo, inside
from .tensorboard_source import is_scalar, session_of
from .values import as_number

_MARK = "_lens_hook_original"
_DIRECTORY = "_lens_hook_directory"
_PUBLIC = "tensorflow._api."  # modules named so, and `.summary`, have the same functions for users


def on_summary_ops(module: Any) -> None:
    """Patch the functions of `tensorflow.python.ops.summary_ops_v2`."""
    if not runtime.get_settings().enabled:
        return
    runtime.expect()
    _replace(module, "create_file_writer_v2", "create_file_writer", _creating)
    _replace(module, "write", "write", functools.partial(_writing, module=module))


def _replace(module: Any, name: str, public_name: str, wrapper: Callable[[Any], Any]) -> None:
    """Replace a function unless it is missing or replaced already, also under its public names as far as loaded."""
    original = vars(module).get(name)
    if original is None or hasattr(original, _MARK):
        return
    replacement = functools.wraps(original)(wrapper(original))
    setattr(replacement, _MARK, original)
    setattr(module, name, replacement)
    for path, public in list(sys.modules.items()):
        if path.startswith(_PUBLIC) and path.endswith(".summary") and vars(public).get(public_name) is original:
            setattr(public, public_name, replacement)


def _creating(original: Callable[..., Any]) -> Callable[..., Any]:
    """`create_file_writer(logdir, ...)`: remember where the writer writes to, which it does not say itself."""

    def create_file_writer(logdir: Any, *args: Any, **kwargs: Any) -> Any:
        writer = original(logdir, *args, **kwargs)
        if isinstance(logdir, (str, os.PathLike)):
            writer.__dict__[_DIRECTORY] = os.fspath(logdir)
        return writer

    return create_file_writer


def _writing(original: Callable[..., Any], module: Any) -> Callable[..., Any]:
    """`write(tag, tensor, step=None, metadata=None, ...)`, and its scalar taken once it has been written."""

    def write(tag: Any, tensor: Any, step: Any = None, metadata: Any = None, *more: Any, **options: Any) -> Any:
        result = original(tag, tensor, step, metadata, *more, **options)
        try:
            # The result is True where it was written: there was a writer, and it was to be recorded.
            if hasattr(metadata, "plugin_data") and is_scalar(metadata) and as_number(result):
                _log_tensor(module, str(tag), tensor, step)
        except Exception as error:  # noqa: BLE001 - said once; the user's call goes on
            say.report_failure("missed", "a TensorFlow summary was missed", error)
        return result

    return write


def _log_tensor(module: Any, tag: str, tensor: Any, step: Any) -> None:
    writer = module._summary_state.writer
    directory = writer.__dict__.get(_DIRECTORY)
    number = as_number(tensor)
    hook = runtime.get_runtime()
    if directory is None or number is None or not hook.buffer.on:
        return
    row_step = int(module.get_step() if step is None else step)
    values = as_echo({tag: number}) if inside else {tag: number}
    hook.buffer.append_row((session_of(hook, writer, directory), values, row_step, False, None, None, time.time()))
