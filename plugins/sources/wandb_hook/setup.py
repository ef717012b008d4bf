"""Puts `lens_hook.pth` and `lens_hook.start` at the root of the wheel, which pyproject.toml alone cannot say."""

from __future__ import annotations

import os

from setuptools import setup  # type: ignore[import-untyped]
from setuptools.command.build_py import build_py  # type: ignore[import-untyped]

START_FILES = ("lens_hook.pth", "lens_hook.start")


class BuildWithStartFiles(build_py):  # type: ignore[misc]
    """build_py that also copies the two start files beside the package."""

    def run(self) -> None:
        super().run()
        if getattr(self, "editable_mode", False):
            return  # an editable install is switched on by `python -m lens_hook enable`
        for name in START_FILES:
            self.copy_file(name, os.path.join(self.build_lib, name))

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        outputs: list[str] = super().get_outputs(include_bytecode)
        return outputs + [os.path.join(self.build_lib, name) for name in START_FILES]


setup(cmdclass={"build_py": BuildWithStartFiles})
