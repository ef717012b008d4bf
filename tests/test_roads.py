"""The roads of ARCHITECTURE.md lead through functions that exist, and through few files."""

from __future__ import annotations

import importlib
import re
from operator import attrgetter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MOST_FILES = {
    "A wandb body becomes a row": 15,
    "A log line becomes step metrics": 12,
    "Bytes of remote write are forwarded": 12,
    "`metrics/data` is answered": 12,
}
STEP = re.compile(r"`([\w.]+)`\s+\(`([\w/]+\.py)`\)")


def roads() -> dict[str, list[tuple[str, str]]]:
    """Return the steps (name, file) of each road by its title."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    section = text.split("## The four roads\n")[1].split("\n## ")[0]
    parts = re.split(r"^### (.*)$", section, flags=re.M)[1:]
    return {title: STEP.findall(steps) for title, steps in zip(parts[::2], parts[1::2], strict=True)}


def test_all_four_are_told() -> None:
    assert roads().keys() == MOST_FILES.keys()
    assert min(map(len, roads().values())) >= 4


@pytest.mark.parametrize("road", MOST_FILES)
def test_every_name_on_a_road_exists_and_the_files_are_few(road: str) -> None:
    steps = roads()[road]
    for name, file in steps:
        module = importlib.import_module(
            re.sub(r"^plugins/", "lens_plugins/", file).removesuffix(".py").replace("/", ".")
        )
        found = attrgetter(name)(module)
        assert found.__module__.removesuffix("._forward") == module.__name__ or "forward" in file, (
            f"{name} is not of {file}"
        )
    assert len({file for _, file in steps}) <= MOST_FILES[road]
