"""Clients and readings that the diagnosis tests share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[4]


class RecordingClient:
    """A client as anybody writes one: it keeps what it is given."""

    def __init__(self) -> None:
        self.reports: list[Any] = []

    def report_diagnosis_agent_metrics(self, data: Any) -> None:
        """Keep a report."""
        self.reports.append(data)

    def of_type(self, data_type: str) -> list[Any]:
        """The reports of one type."""
        return [report for report in self.reports if report.data_type == data_type]


class FailingClient:
    """A client whose master is away."""

    def report_diagnosis_agent_metrics(self, data: Any) -> None:
        """Fail."""
        raise ConnectionRefusedError("Connection refused")


def example(name: str) -> str:
    """A code block of the documentation, by the name in the comment before it."""
    text = (ROOT / "docs" / "diagnosis.md").read_text()
    found = re.search(rf"<!-- example: {name} -->\n```python\n(.*?)```", text, re.DOTALL)
    assert found, f"there is no example {name}"
    return found[1]
