"""Pages that are made from the code are what the code says; the index knows every page."""

from __future__ import annotations

import re

from scripts.reference_pages import http_reference, settings_reference
from tests.docs.pages import DOCS


def test_the_settings_are_those_of_the_plugins() -> None:
    assert (DOCS / "settings.md").read_text() == settings_reference(), "run: python scripts/reference_pages.py"


def test_every_setting_has_a_meaning() -> None:
    rows = re.findall(r"^\| `\w+` \|.*\| (.*?) \|$", settings_reference(), flags=re.M)
    assert len(rows) > 150
    assert [meaning for meaning in rows if not re.match(r"(?!–$)\w|`", meaning) or len(meaning) < 5] == []


def test_the_routes_are_those_of_the_openapi_document() -> None:
    assert (DOCS / "http_reference.md").read_text() == http_reference().rstrip("\n") + "\n", (
        "run: python scripts/reference_pages.py"
    )


def test_the_index_names_every_page() -> None:
    named = set(re.findall(r"\]\((\w+\.md)\)", (DOCS / "index.md").read_text()))
    assert {page.name for page in DOCS.glob("*.md")} - {"index.md"} == named
