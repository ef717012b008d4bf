"""Compiles the hot path of remote write where Cython and a C compiler are there; else the wheel is plain Python.

Everything else about the distribution is in pyproject.toml.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sysconfig
import tempfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.errors import CCompilerError, CompileError, ExecError, PlatformError

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
    except ImportError:
        return []
    if not can_compile():
        return []
    source = copied_source()
    # No failure of the compiler may fail the installation.
    extension = Extension(f"{PACKAGE}._forward", [source], optional=True)
    return list(cythonize([extension], compiler_directives=DIRECTIVES, quiet=True))


def copied_source() -> str:
    """A copy of forward.py that knows what it was built from: forms.py compares that, so that no old form is used."""
    folder = Path("build/cython", *PACKAGE.split("."))
    folder.mkdir(parents=True, exist_ok=True)
    for depth in range(len(PACKAGE.split("."))):
        (folder.parents[depth - 1] if depth else folder).joinpath("__init__.py").touch()
    text = (SOURCES / "forward.py").read_text()
    digest = hashlib.sha256(text.encode()).hexdigest()
    (folder / "_forward.py").write_text(f'{text}\n\nBUILT_FROM = "{digest}"\n')
    shutil.copyfile(SOURCES / "forward.pxd", folder / "_forward.pxd")
    return str(folder / "_forward.py")


def can_compile() -> bool:
    """Whether there is a C compiler with Python's headers; without one the wheel is one for every platform."""
    from setuptools._distutils.ccompiler import new_compiler
    from setuptools._distutils.sysconfig import customize_compiler

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text("#include <Python.h>\n")
        compiler = new_compiler()
        try:
            customize_compiler(compiler)
            compiler.compile([str(source)], folder, include_dirs=[sysconfig.get_path("include")])
        except (CCompilerError, CompileError, ExecError, PlatformError, OSError):
            return False
    return True


setup(ext_modules=[] if os.environ.get("LENS_PURE_PYTHON") else extensions())
