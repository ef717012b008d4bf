"""The page about goodput: its command gives what it shows, and every bucket is explained."""

from __future__ import annotations

import re
from pathlib import Path

from lens_plugins.analyzers.goodput.facts import BUCKETS

from tests.docs.pages import DOCS, blocks, run_console
from tests.plugins.analyzers.goodput.test_command import FAILED, loaded, stamped, steps


def test_the_commands_of_the_page_print_what_it_shows(tmp_path: Path) -> None:
    lines = [(0, "launching"), *steps(1, 180, 60, 10), (1855, FAILED), (2155, "launching")]
    lines += [(2200, loaded(100)), *steps(101, 300, 2275, 10)]
    (tmp_path / "train.log").write_text(stamped(lines))
    (block,) = blocks("goodput.md", "console")
    words, answer = run_console(block, tmp_path)
    assert "█" in words
    assert '"goodput": 0.7034' in answer


def test_every_bucket_is_explained() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", (DOCS / "goodput.md").read_text(), flags=re.M)
    assert sorted(rows) == sorted(BUCKETS)
