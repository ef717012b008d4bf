"""`lens plugin new` and `lens plugin check`, as commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from lens_core.cli import main


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        main(["plugin", *arguments])
    out, err = capsys.readouterr()
    return int(caught.value.code or 0), out, err


def test_new_writes_a_distribution_and_says_what_is_next(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = run(capsys, "new", "acme", "--kind", "sink")
    assert code == 0
    assert "  lens-acme/src/lens_acme/__init__.py\n" in out
    assert '  cd lens-acme\n  pip install -e ".[test]" && pytest' in out
    assert "Then write your sink in src/lens_acme/__init__.py.\n" in out
    code, _, err = run(capsys, "new", "acme", "--kind", "sink")
    assert (code, err) == (1, "lens: lens-acme is there already and is not empty\n")


def test_the_name_of_another_plugin_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = run(capsys, "new", "jsonl", "--kind", "sink", "--dir", str(tmp_path / "x"))
    assert (code, err) == (1, "lens: the name jsonl is taken by lens-agent; choose another\n")
    assert not (tmp_path / "x").exists()


def test_a_kind_that_there_is_not_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "new", "acme", "--kind", "processor")
    assert code == 2
    assert "'processor' is not one of" in err


def test_check_looks_at_an_installed_one(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "check", "jsonl", "--strict")
    assert code == 0, out
    assert out.splitlines()[-1] == "In order"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nobody", "no installed plugin and no distribution is called nobody"),
        ("nowhere.py", "there is no file nowhere.py"),
    ],
)
def test_what_is_not_there_is_said(capsys: pytest.CaptureFixture[str], name: str, said: str) -> None:
    code, _, err = run(capsys, "check", name)
    assert code == 1
    assert said in err
