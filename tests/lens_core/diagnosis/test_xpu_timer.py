"""XPU timer's text: samples by labels and values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lens_core.diagnosis.xpu_timer import hang_flags, samples_only

NAME = "XPU_TIMER_COMMON_HANG"


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        (f'{NAME}{{rank="3",local_rank="1"}} 1', {"3": True}),
        (f'{NAME}{{rank="NOT_SET",local_rank="1"}} 1', {"1": True}),
        (f'{NAME}{{job_name="a b, c",pod_name="x\\"}} 1",rank="2"}} 0', {"2": False}),
        (f'{NAME}{{rank="0"}} +Inf 1800000000001', {"0": True}),
        (f'{NAME}{{rank="0"}} NaN', {}),
        (f"{NAME} 1", {"#0": True}),
        (f'{NAME}_COUNT{{rank="0"}} 1', {}),
        (f'# {NAME}{{rank="0"}} 1', {}),
        (f'{NAME}{{rank="0"}} 0\n{NAME}{{rank="0"}} 1', {"0": True}),
        ("", {}),
    ],
)
def test_flags(text: str, flags: dict[str, bool]) -> None:
    assert hang_flags(text).by_rank == flags


def test_lines_that_cannot_be_read_are_counted_and_lose_no_neighbour() -> None:
    found = hang_flags(f'{NAME}{{rank="0" 1\n{NAME}{{rank="1"}} 1\n{NAME}{{rank="2"}} one\n')
    assert found.by_rank == {"1": True}
    assert found.unreadable == 2


@given(st.text(st.sampled_from('XPU_TIMER_COMMON_HANG{}rank="=,01. \n\\#'), max_size=200))
def test_any_text_is_read(text: str) -> None:
    found = hang_flags(text)
    assert all(isinstance(flag, bool) for flag in found.by_rank.values())
    assert hang_flags(NAME + text).unreadable >= 0
    assert all(line.startswith("XPU_TIMER_") for line in samples_only(text).splitlines())
