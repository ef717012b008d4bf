"""The project and the settings by which the list is grouped, from the evidence of any tracker."""

from __future__ import annotations

from typing import Any

import pytest

from lens_core.http.page.grouping import settings_told

CONFIG = {"lr": 0.1, "model": {"width": 8}}
FLAT = {"lr": 0.1, "model.width": 8}


@pytest.mark.parametrize(
    ("facts", "project"),
    [
        ({"wandb": {"project": "night", "config": CONFIG}}, "night"),
        ({"tracker": {"tracker": "mlflow", "experiment": "night"}, "project": "night", "config": CONFIG}, "night"),
        ({"wandb": {"project": "night", "config": CONFIG}, "project": "day"}, "night"),
        ({"wandb": None, "project": 7, "config": CONFIG}, None),
        ({"project": "", "config": CONFIG}, None),
    ],
)
def test_the_project_is_wandbs_or_the_experiment_of_another_tracker(facts: dict[str, Any], project: str | None) -> None:
    found = settings_told([{"facts": facts}, {"facts": {"project": None}}])
    assert (found.project, dict(found.config)) == (project, FLAT)
