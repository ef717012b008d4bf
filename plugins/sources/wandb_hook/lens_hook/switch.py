"""`lens hook enable | disable | status`: the start files of this Python environment."""

from __future__ import annotations

import contextlib
import os
import sys
import sysconfig

from . import VARIABLES, __version__

PTH = "lens_hook.pth"
START = "lens_hook.start"
START_TEXT = "lens_hook:arm_from_environment\n"


def pth_text(folder: str | None = None) -> str:
    """The one line of the `.pth`: silent if the package is gone, next to free if no variable asks for Lens.

    `folder` is added to `sys.path` first, for a package that does not lie beside the `.pth`.
    """
    path = f"__import__('sys').path.append({folder!r}); " if folder else ""
    armed = f"any(map(os.environ.__contains__, '{' '.join(VARIABLES)}'.split())) and __import__('lens_hook').arm()"
    return f'import os; exec("""try:\\n    {path}{armed}\\nexcept Exception:\\n    pass""")\n'


def site_folder() -> str:
    """Return the folder of this environment's packages and start files."""
    return sysconfig.get_paths()["purelib"]


def enable(folder: str | None = None) -> dict[str, object]:
    """Write the start files into the environment (or `folder`); raises OSError. Returns the new status."""
    target = folder or site_folder()
    package_parent = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    beside = os.path.realpath(package_parent) == os.path.realpath(target)
    # An editable install puts its own folder on the path, but perhaps after our line has run.
    _replace_file(os.path.join(target, PTH), pth_text(None if beside else package_parent))
    # A .start file takes the place of the .pth's line from Python 3.15 on; it needs the package beside it.
    if beside:
        _replace_file(os.path.join(target, START), START_TEXT)
    return status(folder)


def disable(folder: str | None = None) -> dict[str, object]:
    """Remove the start files; raises OSError. Returns the new status."""
    for name in (PTH, START):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder or site_folder(), name))
    return status(folder)


def status(folder: str | None = None) -> dict[str, object]:
    """Whether the hook starts with this environment's Python, and what would arm it now."""
    target = folder or site_folder()
    set_now = [name for name in VARIABLES if name in os.environ]
    off = os.environ.get("PRIMUS_LENS_WANDB_HOOK", "").strip().lower() in ("false", "0", "no", "off")
    enabled = os.path.exists(os.path.join(target, PTH)) or os.path.exists(os.path.join(target, START))
    return {
        "enabled": enabled,
        "folder": target,
        "version": __version__,
        "python": sys.executable,
        "variables": set_now,
        "armed": enabled and bool(set_now) and not off,
    }


def _replace_file(path: str, text: str) -> None:
    """Write a whole file or none of it: a Python process may start at any moment."""
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "w", encoding="ascii") as file:
            file.write(text)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):  # the first error is the one to report
            os.unlink(temporary)
        raise
