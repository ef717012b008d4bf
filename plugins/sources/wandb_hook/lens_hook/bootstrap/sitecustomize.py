"""Runs at the start of every Python process below `lens run`: arm the hook, then be the user's own sitecustomize."""

from __future__ import annotations

import importlib.machinery
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _arm() -> None:
    """Import the package from where this file is; its folder holds other packages, so it stays off `sys.path`."""
    folder = os.path.dirname(os.path.dirname(_HERE))
    sys.path.insert(0, folder)
    try:
        __import__("lens_hook").arm()
    except Exception as error:  # noqa: BLE001 - the user's command must start whatever is wrong with us
        sys.stderr.write(f"lens-hook: not armed: {type(error).__name__}: {error}\n")
    finally:
        sys.path.remove(folder)


def _run_the_users() -> None:
    """Execute the sitecustomize that this one hides, under its own name, so that it sees no difference."""
    path = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is None or spec.loader is None:
        return
    module = sys.modules["sitecustomize"]
    module.__spec__, module.__file__ = spec, spec.origin
    spec.loader.exec_module(module)


_arm()
_run_the_users()
