"""Addresses and tokens that people get wrong are said in words, before anything is asked."""

from __future__ import annotations

import contextlib
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from lens_core.base.bearer import bearer_header
from lens_core.base.errors import LensError
from lens_core.cli import checks, cli
from lens_core.cli.client import daemon_address

WRONG = [
    "",
    "lens:8080",
    "ftp://lens",
    "http://",
    "http://[::1",
    "http://::1:8080",
    "http://lens:port",
    "http://lens:99999",
    "http://le ns:8080",
    "http://lens:8080\n",
]


@pytest.mark.parametrize("url", WRONG)
def test_what_is_no_address_is_said(url: str) -> None:
    with pytest.raises(LensError, match="is no address of a daemon; write http"):
        daemon_address(url)
    (finding,) = checks.network(url)
    assert (finding.step, finding.state) == ("network", "failed")
    assert finding.remedy == "correct PRIMUS_LENS_API_BASE_URL or --url"


@pytest.mark.parametrize("url", ["http://lens:8080", "https://[::1]:8080", "http://10.0.0.1", "https://a.b/prefix"])
def test_an_address_stays_and_loses_the_path_of_the_api(url: str) -> None:
    assert {daemon_address(url), daemon_address(f"{url}/"), daemon_address(f"{url}/api/v1/")} == {url}


@given(st.text(max_size=40))
def test_any_text_is_an_address_or_said(text: str) -> None:
    for url in (text, f"http://{text}"):
        with contextlib.suppress(LensError):
            assert httpx.URL(daemon_address(url)).raw_host


@given(st.from_regex(r"[!-~]{8,40}", fullmatch=True), st.sampled_from(["", " ", "\n", "\r\n", "\t"]))
def test_space_around_a_token_does_not_count(token: str, space: str) -> None:
    """Kubernetes' secrets that were made from a file end with a line break."""
    assert bearer_header({"X": f"{space}{token}{space}"}, "X") == {"Authorization": f"Bearer {token}"}


@given(st.text(min_size=8, max_size=40).filter(lambda text: not (text.isascii() and text.isprintable())))
def test_a_token_that_no_header_can_hold_is_said_and_not_shown(token: str) -> None:
    inside = f"secret{token}secret"
    with pytest.raises(LensError, match="X holds characters that no token has") as raised:
        bearer_header({"X": inside}, "X")
    assert token not in str(raised.value)


@pytest.mark.parametrize(
    "address", ["", "lens", ":8080", "::1:8080", "127.0.0.1:x", "127.0.0.1:99999", "http://lens:80"]
)
def test_an_address_to_listen_on_that_is_none_is_wrong_usage(address: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["up", "--listen", address, "--data-dir", str(tmp_path)])
    assert done.exit_code == 2
    assert "Invalid value for --listen: " in done.output
    assert "is no address; write HOST:PORT" in " ".join(done.output.split())


def test_no_token_is_no_header() -> None:
    assert bearer_header({}, "X") == bearer_header({"X": " \n"}, "X") == {}


def test_doctor_names_the_variable_of_a_broken_token() -> None:
    (finding,) = checks.sending("http://127.0.0.1:1", {"PRIMUS_LENS_API_TOKEN": "secret-1\nsecret-2"})
    assert (finding.state, finding.remedy) == ("failed", "export PRIMUS_LENS_API_TOKEN=…")
    assert "PRIMUS_LENS_API_TOKEN holds characters" in finding.text
