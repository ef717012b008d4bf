from __future__ import annotations

import os
import subprocess
import sys

import httpx
import pytest

from lens_core.base.errors import LensError
from lens_core.base.process import drop_socks_proxies, keep_off_proxies
from lens_core.cli.client import request_json


@pytest.mark.parametrize(
    ("environ", "kept"),
    [
        ({}, None),
        ({"NO_PROXY": "a"}, None),
        ({"HTTP_PROXY": "http://p"}, "localhost,127.0.0.1,::1"),
        ({"https_proxy": "http://p", "NO_PROXY": ".svc, localhost"}, ".svc,localhost,127.0.0.1,::1"),
        ({"ALL_PROXY": "http://p", "no_proxy": "a", "NO_PROXY": "b"}, "a,localhost,127.0.0.1,::1"),
        ({"HTTP_PROXY": "http://p", "NO_PROXY": "*"}, "*,localhost,127.0.0.1,::1"),
    ],
)
def test_loopback_is_excepted_where_there_is_a_proxy(environ: dict[str, str], kept: str | None) -> None:
    before = dict(environ)
    keep_off_proxies(environ)
    assert environ == (before if kept is None else {**before, "no_proxy": kept, "NO_PROXY": kept})


def test_all_may_be_excepted() -> None:
    environ = {"HTTP_PROXY": "http://p", "NO_PROXY": "a"}
    keep_off_proxies(environ, ["*"])
    assert environ["no_proxy"] == "a,*"


def test_a_command_asks_its_own_machine_and_not_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.invalid:3128")
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("no_proxy", "")  # so that it is put back afterwards
    keep_off_proxies(os.environ)
    with pytest.raises(LensError, match=r"no daemon answers at http://127.0.0.1:1 .*refused"):
        request_json("GET", "http://127.0.0.1:1", "/")
    with pytest.raises(httpx.ConnectError, match=r"Name or service|resolution|name"):
        httpx.get("http://lens.example")


@pytest.mark.parametrize(
    ("environ", "dropped"),
    [
        ({"ALL_PROXY": "socks5://p:1080", "http_proxy": "http://p"}, ["ALL_PROXY"]),
        ({"https_proxy": " SOCKS5h://p", "all_proxy": "socks4://p"}, ["https_proxy", "all_proxy"]),
        ({"HTTP_PROXY": "http://socks", "NO_PROXY": "socks5://p"}, []),
        ({}, []),
    ],
)
def test_a_socks_proxy_that_httpx_cannot_use_is_left_out(
    environ: dict[str, str], dropped: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    before = dict(environ)
    assert drop_socks_proxies(environ) == dropped
    assert environ == {name: value for name, value in before.items() if name not in dropped}


def test_a_socks_proxy_stays_where_httpx_can_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    environ = {"ALL_PROXY": "socks5://p:1080"}
    assert drop_socks_proxies(environ) == []
    assert environ == {"ALL_PROXY": "socks5://p:1080"}


def test_a_socks_proxy_ends_no_command() -> None:
    """Companies set ALL_PROXY for all shells; the daemon of this machine is reached without it."""
    environ = {**os.environ, "ALL_PROXY": "socks5://127.0.0.1:1"}
    command = [sys.executable, "-m", "lens_core.cli", "status", "--url", "http://127.0.0.1:1"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("lens: no daemon answers at http://127.0.0.1:1 ")
