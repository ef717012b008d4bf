"""Finding the daemon and sending requests to it, for commands."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import click

from ..base.bearer import bearer_header
from ..base.data_dir import default_data_dir, running_address
from ..base.errors import LensError
from .wording import ASCII_CUT, CUT, plain

DEFAULT_URL = "http://127.0.0.1:8080"
_CONFIG = "lens_core.cli.config"
_MOST_NAMED = 5

F = TypeVar("F", bound=Callable[..., Any])


def config_option(function: F) -> F:
    """The option --config of commands that ask a daemon: its data directory is the one that the file names."""
    return click.option(
        "--config",
        "-c",
        type=click.Path(dir_okay=False, path_type=Path),
        expose_value=False,
        callback=_remember_config,
        help="The configuration file of the daemon, instead of --data-dir.",
    )(function)


def _remember_config(context: click.Context, parameter: click.Parameter, file: Path | None) -> None:
    context.meta[_CONFIG] = file


def plugins_dir_option(function: F) -> F:
    """The option --plugins-dir; it is handed on as LENS_PLUGINS_DIR, which other processes read too."""
    return click.option(
        "--plugins-dir",
        type=click.Path(file_okay=False, path_type=Path),
        expose_value=False,
        callback=_set_plugins_dir,
        is_eager=True,
        help="A folder whose *.py files are loaded as plugins, for development [default: $LENS_PLUGINS_DIR].",
    )(function)


def _set_plugins_dir(context: click.Context, parameter: click.Parameter, folder: Path | None) -> None:
    if folder is not None:
        os.environ["LENS_PLUGINS_DIR"] = str(folder.absolute())


def url_option(function: F) -> F:
    """The option --url."""
    return click.option("--url", envvar="LENS_URL", help="The daemon's address [default: the daemon on this machine].")(
        function
    )


def resolve_data_dir(data_dir: Path | None) -> Path:
    """The directory that was given, that of the configuration that was given, or the default."""
    return data_dir or _configured_data_dir() or default_data_dir(os.environ)


def _configured_data_dir() -> Path | None:
    context = click.get_current_context(silent=True)
    file = context.meta.get(_CONFIG) if context is not None else None
    if file is None:
        return None
    from ..config.loading import read_data_dir

    return read_data_dir(file, os.environ)


def is_daemon_named(url: str | None, data_dir: Path | None) -> bool:
    """Whether the command line says which daemon is meant."""
    return bool(url) or data_dir is not None or _configured_data_dir() is not None


def daemon_url(url: str | None, data_dir: Path | None) -> str:
    """The address that was given, or that of the daemon running on this machine, or the default one.

    Raises LensError where a directory or a configuration was given and no daemon runs on it.
    """
    if url:
        return daemon_address(url)
    directory = resolve_data_dir(data_dir)
    address = running_address(directory)
    if address is not None:
        return address.url
    if is_daemon_named(url, data_dir):
        raise LensError(f"no daemon runs on {directory}; start it (`lens up --data-dir {directory}`), or name another")
    return DEFAULT_URL


def is_answering(url: str) -> bool:
    """Whether a daemon answers at an address, whatever data directory it has."""
    import httpx

    try:
        return httpx.get(f"{url}/livez", timeout=1.0).is_success
    except httpx.HTTPError:
        return False


def daemon_address(url: str) -> str:
    """An address as commands use it; that of the hook, which ends in /api/v1, will do. Raises LensError."""
    if not url.startswith(("http://", "https://")):
        raise LensError(f"{url} is no address of a daemon; write http://{url.rpartition('://')[2]}, or https://")
    try:
        parts = urlsplit(url)
        is_address = bool(parts.hostname) and (parts.port or 80) > 0 and re.fullmatch(r"[!-~]+", url) is not None
    except ValueError:  # brackets without an IPv6 address, a port that is no port
        is_address = False
    if not is_address:
        raise LensError(f"{url!r} is no address of a daemon; write http://HOST:PORT, an IPv6 address in brackets")
    return url.rstrip("/").removesuffix("/api/v1")


def request_headers(environ: Mapping[str, str]) -> dict[str, str]:
    """LENS_TOKEN as a header, if it is set. Raises LensError where it is no token."""
    return bearer_header(environ, "LENS_TOKEN")


def request_json(method: str, url: str, path: str, **parameters: str) -> Any:
    """Ask the daemon and return its JSON; LENS_TOKEN is sent if it is set. Raises LensError in words."""
    return _request_json(method, url, path, list(parameters.items()))


def request_without_limit(method: str, url: str, path: str, **parameters: str) -> Any:
    """As `request_json`, for what may take any time; a daemon that goes away meanwhile is noticed all the same."""
    return _request_json(method, url, path, list(parameters.items()), answer_within_seconds=None)


def request_with_parameters(url: str, path: str, parameters: list[tuple[str, str]]) -> Any:
    """As `request_json` with GET, with parameters that may come several times."""
    return _request_json("GET", url, path, parameters)


def find_workload(url: str, text: str) -> str:
    """The uid of the workload that a text names: its uid, or its name, also as a table has cut it. Raises LensError."""
    stem = text.strip().removesuffix(CUT).removesuffix(ASCII_CUT)
    if not stem:
        raise LensError("the name of a workload is empty; `lens top` lists them")
    lines = request_json("GET", url, "/api/v1/overview", search=stem, limit="1000")["workloads"]
    if text == stem:
        uids = [line["workload_uid"] for line in lines if line["workload_uid"] == text] or _shown_as(lines, text)
    else:
        uids = [line["workload_uid"] for line in lines if plain(line["name"], 1000).startswith(stem)]
    if not uids and _is_known(url, text):  # as a pod that belongs to none, or after a thousand others
        return text
    if len(uids) == 1:
        return str(uids[0])
    if uids:
        raise LensError(f"{len(uids)} workloads are called {text!r}; name one by its uid: {_name_some(uids)}")
    near = f"; near: {_name_some([line['workload_uid'] for line in lines])}" if lines else "; `lens top` lists them"
    raise LensError(f"no workload is called {text!r}{near}")


def _shown_as(lines: Sequence[Mapping[str, Any]], text: str) -> list[str]:
    return [line["workload_uid"] for line in lines if text in (line["name"], plain(line["name"], 1000))]


def _is_known(url: str, uid: str) -> bool:
    try:
        request_json("GET", url, f"/api/v1/workloads/{quote(uid)}")
    except LensError as error:
        if "answered 404" in str(error):
            return False
        raise
    return True


def _name_some(uids: Sequence[str]) -> str:
    more = len(uids) - _MOST_NAMED
    return ", ".join(plain(uid, 80) for uid in uids[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _request_json(
    method: str, url: str, path: str, parameters: list[tuple[str, str]], answer_within_seconds: float | None = 30.0
) -> Any:
    import httpx

    asked = httpx.QueryParams(tuple(parameters))
    headers = request_headers(os.environ)
    timeout = httpx.Timeout(30.0, read=answer_within_seconds)
    try:
        response = httpx.request(method, url + path, params=asked, headers=headers, timeout=timeout)
    except httpx.HTTPError as error:
        raise LensError(_unanswered(url, error)) from None
    if response.is_success:
        try:
            return response.json()
        except ValueError:
            raise LensError(f"what answers at {url} is no Lens: {response.text[:100]!r}") from None
    try:
        message = response.json()["message"]
    except (ValueError, KeyError, TypeError):
        message = response.text[:200]
    hint = "; commands send what LENS_TOKEN holds" if response.status_code == 401 else ""
    raise LensError(f"{url} answered {response.status_code}: {plain(str(message), 500)}{hint}")


def _unanswered(url: str, error: Exception) -> str:
    if url.startswith("https:") and "WRONG_VERSION_NUMBER" in str(error):
        return f"what listens at {url} speaks no TLS; try http:{url.partition(':')[2]}"
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return f"the certificate of {url} is not trusted here ({error}); SSL_CERT_FILE names a file of one that is"
    return f"no daemon answers at {url} ({error}); `lens up` starts one, --url and LENS_URL name another"
