"""Compiles the hot path of remote write where Cython and a C compiler are there; else the wheel is plain Python.

Everything else about the distribution is in pyproject.toml.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup

PACKAGE = "lens_plugins.sources.remote_write"
SOURCES = Path("plugins/sources/remote_write")
# Every index and every slice of `bytes` is checked; negative indices do not occur.
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": True,
    "wraparound": False,
    "cdivision": True,
    "annotation_typing": False,
}


def extensions() -> list[Extension]:
    """The compiled form of forward.py, under a name of its own beside it; none where it cannot be built."""
    try:
        from Cython.Build import cythonize
        from Cython.Compiler.Errors import CompileError
    except ImportError:
        return []
    if not can_compile():
        return []
    source = copied_source()
    # Neither a failure of the C compiler nor one of Cython, whichever version is there, may fail the installation.
    extension = Extension(f"{PACKAGE}._forward", [source], optional=True)
    try:
        return list(cythonize([extension], compiler_directives=DIRECTIVES, quiet=True))
    except CompileError as error:
        print(f"warning: remote write runs interpreted, because Cython cannot compile it: {error}", file=sys.stderr)
        return []


def copied_source() -> str:
    """A copy of forward.py that knows what it was built from: forms.py compares that, so that no old form is used."""
    folder = Path("build/cython", *PACKAGE.split("."))
    folder.mkdir(parents=True, exist_ok=True)
    # Cython finds by these files to which package the module belongs.
    for package in (folder, *folder.parents[: PACKAGE.count(".")]):
        (package / "__init__.py").touch()
    text = (SOURCES / "forward.py").read_text()
    digest = hashlib.sha256(text.encode()).hexdigest()
    contents = {
        "_forward.py": f'{text}\n\nBUILT_FROM = "{digest}"\n',
        "_forward.pxd": (SOURCES / "forward.pxd").read_text(),
    }
    for name, content in contents.items():
        file = folder / name
        # Installers run this file several times; what has not changed is not compiled again.
        if not file.exists() or file.read_text() != content:
            file.write_text(content)
    return str(folder / "_forward.py")


def can_compile() -> bool:
    """Whether there is a C compiler with Python's headers; without one the wheel is one for every platform."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    command = [*compiler, f"-I{sysconfig.get_path('include')}", "-fsyntax-only", "-x", "c", "-"]
    try:
        return subprocess.run(command, input=b"#include <Python.h>\n", capture_output=True, check=False).returncode == 0
    except OSError:
        return False


setup(ext_modules=[] if os.environ.get("LENS_PURE_PYTHON") else extensions())
