from __future__ import annotations

import io

import pytest
from rich.console import Console

from lens_core.cli.screen import can_redraw, pictures, progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("lens_core.cli.screen.time.monotonic", lambda: now[0])
    return now


def test_work_in_a_pipe_is_told_in_lines_on_standard_error(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with progress("Sending again", 2000) as show:
        for done in (0, 500, 1000, 1500):
            show(done)
            clock[0] += 3
    with progress("Records read", None) as show:
        clock[0] += 6
        show(12345)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == ["Sending again: 1,000 of 2,000 …", "Records read: 12,345 …"]


def test_what_is_done_at_once_is_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("Sending again", 1) as show:
        show(1)
    assert capsys.readouterr().err == ""


def test_pictures_are_lines_where_the_cursor_cannot_move(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80)
    assert not can_redraw(console)
    with pictures(console, whole_screen=True) as show:
        for index in ("one", "two", "three"):
            show(index)
            clock[0] += 3
    assert out.getvalue() == "one\nthree\n"


def test_pictures_stand_in_one_place_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    out = io.StringIO()
    with pictures(Console(file=out, force_terminal=True, width=80), whole_screen=True) as show:
        show("one")
        show("two")
    assert out.getvalue().startswith("\x1b[?1049h")
    assert "two" in out.getvalue()
    assert out.getvalue().endswith("\x1b[?1049l")
