"""Passwords arrive as they are, and no text for people ever holds one: not whole, not in part, not encoded."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lens_plugins.sinks.http import Http
from lens_plugins.sinks.postgresql import PostgreSQL
from psycopg.conninfo import conninfo_to_dict

from lens_core.base.process import FORMAT, HidingFormatter
from lens_core.base.redaction import hide, passwords_in
from lens_core.config.loading import Config, InvalidConfiguration, parse_config
from lens_core.plugin_api.urls import split_login
from lens_core.plugin_host.host import PluginHost
from tests.generated import examples

# With a letter at both ends, as a word of YAML or a shell would lose spaces there anyway.
PASSWORDS = st.builds(
    lambda first, text, last: first + text + last,
    st.sampled_from("Qx7"),
    st.text(st.sampled_from("abXY09@%/:?#&= +'\"\\$;,!~[]{}()<>äßñ√日🙂"), min_size=7, max_size=24),
    st.sampled_from("Zk4"),
)
slowly = settings(deadline=None, max_examples=examples(30), suppress_health_check=[HealthCheck.too_slow])
HOST = PluginHost.load()


def read(text: str, **environ: str) -> Config:
    return parse_config(text, "lens.yaml", HOST, environ, folder=Path("/etc/lens"), data_dir=Path("/tmp/none"))


def parts_of(password: str) -> list[str]:
    """The password and every piece of it that a parser could have cut off, if it is long enough to mean something."""
    pieces = [password, quote(password, safe="")]
    for mark in "@/:?#":
        pieces += [piece for piece in password.split(mark) if len(piece) > 6]
    return pieces


def is_not_in(password: str, *texts: str) -> None:
    for text in texts:
        for part in parts_of(password):
            found = text.find(part)
            assert found < 0, f"{part!r} is in …{text[max(0, found - 60) : found + 80]!r}…"


@slowly
@given(PASSWORDS)
def test_a_password_in_an_address_arrives_as_it_is(password: str) -> None:
    config = read(
        "sinks:\n"
        "  store: {type: postgresql, dsn: 'postgresql://lens:${DB_PASSWORD}@127.0.0.1:9/lens'}\n"
        "  own: {type: postgresql, dsn: 'postgresql://lens@127.0.0.1:9/lens', password: '${DB_PASSWORD}'}\n"
        "  far: {type: http, url: 'https://me:${DB_PASSWORD}@lens.example/api/v1/records'}\n"
        "  prom: {type: prometheus, url: 'https://me:${DB_PASSWORD}@store.example/write'}\n"
        "store: store\n",
        DB_PASSWORD=password,
    )
    for name in ("store", "own"):
        address = config.sinks[name].settings.address()
        assert conninfo_to_dict(address)["password"] == password
        assert conninfo_to_dict(address)["host"] == "127.0.0.1"
    for name in ("far", "prom"):
        there = config.sinks[name].settings
        assert (there.username, there.password.reveal()) == ("me", password)
    is_not_in(password, repr(config), *(repr(sink.settings) for sink in config.sinks.values()), *config.notices)


@slowly
@given(PASSWORDS)
def test_a_whole_address_is_understood_or_refused_and_never_shown(password: str) -> None:
    """Nothing is encoded in a variable that holds all of the address; a password that breaks it is not quoted."""
    for form in ("postgresql://lens:{}@db/lens", "postgres//lens:{}@db", "mysql://lens:{}@db/x", "host=db password={}"):
        try:
            config = read("sinks: {store: {type: postgresql, dsn: '${ALL}'}}", ALL=form.format(password))
        except InvalidConfiguration as error:
            is_not_in(password, str(error), repr(error))
        else:
            found = conninfo_to_dict(config.sinks["store"].settings.address())
            assert found["host"] == "db"
            is_not_in(password, repr(config))
    for kind in ("http", "prometheus", "webhook"):
        try:
            config = read(f"sinks: {{a: {{type: {kind}, url: '${{ALL}}'}}}}", ALL=f"https://me:{password}@there/x")
        except InvalidConfiguration as error:
            is_not_in(password, str(error), repr(error))
        else:
            is_not_in(password, repr(config))


BROKEN = (
    "server: {listen: '${S}'}",
    "server: {cluster_name: ['${S}']}",
    "server: {open_ingest: '${S}'}",
    "spool: {max_bytes: '${S}'}",
    "spool: {kind: '${S}'}",
    "sinks: {a: {type: '${S}'}}",
    "sinks: {a: {type: http, url: '${S}'}}",
    "sinks: {a: {type: http, url: 'http://x', compression: '${S}'}}",
    "sinks: {a: {type: http, url: 'http://x', headers: ['${S}']}}",
    "sinks: {a: {type: postgresql, dsn: ['${S}']}}",
    "sinks: {a: {type: postgresql, password: '${S}'}}",
    "sinks: {a: {type: postgresql, retention_days: '${S}'}}",
    "sinks: {a: {type: jsonl, path: out, rotate_bytes: '${S}'}}",
    "sinks: {a: {type: jsonl, path: out, filter: {kinds: ['${S}']}}}",
    "pipelines: {p: {from: ['${S}'], to: store}}",
    "pipelines: {p: {from: logs, to: '${S}'}}",
    "store: '${S}'",
    "collectors: {a: {type: directory_postgresql, dsn: '${S}'}}",
    "collectors: {a: {type: host, interval_seconds: '${S}'}}",
    "database: {host: db, port: '${S}'}",
    "metrics: {prometheus: {port: '${S}'}}",
)


@pytest.mark.parametrize("text", BROKEN)
@settings(slowly, max_examples=examples(10))
@given(password=PASSWORDS)
def test_no_problem_of_a_configuration_quotes_a_variable(text: str, password: str) -> None:
    try:
        read(text, S=password)
    except InvalidConfiguration as error:
        is_not_in(password, str(error), repr(error))
    else:  # by chance the one valid address among them
        assert "listen" in text


@slowly
@given(PASSWORDS)
def test_logs_and_errors_of_others_are_cleaned(password: str) -> None:
    """Drivers and servers quote what they were given, whole or encoded, in messages and in tracebacks."""
    read("sinks: {store: {type: postgresql, dsn: 'postgresql://lens:${P}@db/lens'}}", P=password)
    quoted = [password, quote(password, safe=""), repr(password), f"https://u:{password}@h", f"Bearer {password}!"]
    is_not_in(password, *map(hide, quoted))
    try:
        raise OSError(f"cannot translate host {password}@db")
    except OSError:
        record = logging.LogRecord("lens", logging.ERROR, __file__, 1, "No: %s", (password,), sys.exc_info())
    is_not_in(password, HidingFormatter(FORMAT).format(record))


def test_what_holds_no_secret_is_shown() -> None:
    read(
        "sinks: {a: {type: http, url: 'http://${LENS_HOST}:${PORT}/x'}}\nserver: {cluster_name: '${CLUSTER}'}\n"
        "data_dir: '${DATA_DIR}'\n",
        LENS_HOST="gpu-17.example",
        PORT="12345",
        CLUSTER="production",
        DATA_DIR="/srv/lens-data",
    )
    text = "gpu-17.example:12345 of production in /srv/lens-data"
    assert hide(text) == text


def test_the_user_of_a_database_is_no_secret_and_a_token_before_a_host_is() -> None:
    read("sinks: {store: {type: postgresql, dsn: 'postgresql://justauser@db:5432/justauser'}}")
    assert hide("started by justauser") == "started by justauser"
    assert not [*passwords_in("postgres://justauser@db/x")]
    assert [*passwords_in("https://tokeninfront@host/x")] == ["tokeninfront"]
    assert "hunter2hunter2" in [*passwords_in("postgresql://justauser:hunter2hunter2@db/x")]


@pytest.mark.parametrize(
    ("login", "username", "password"),
    [("a", "lens", "x@y"), ("${LOGIN}", "me", "p:w/@d"), ("me:${ONE}${TWO}", "me", "a@b%")],
)
def test_a_login_may_come_in_parts(login: str, username: str, password: str) -> None:
    text = (
        f"sinks: {{a: {{type: http, url: 'http://{login.replace('a', 'lens:x%40y') if login == 'a' else login}@h/x'}}}}"
    )
    config = read(text, LOGIN="me:p:w/@d", ONE="a@", TWO="b%")
    there: Any = config.sinks["a"].settings
    assert isinstance(there, Http.Settings)
    assert (there.url, there.username) == ("http://h/x", username)
    assert there.password is not None
    assert there.password.reveal() == password


def test_two_passwords_for_one_address_are_refused() -> None:
    with pytest.raises(InvalidConfiguration, match=r"lens.yaml:1:39: sinks.a.dsn: it has a password"):
        read("sinks: {a: {type: postgresql,    dsn: 'postgresql://u:p@h/d', password: other-one}}")
    with pytest.raises(InvalidConfiguration, match="needs a dsn beside it"):
        read("sinks: {a: {type: postgresql, password: other-one}}")
    assert PostgreSQL.Settings().address() is None


@pytest.mark.parametrize("url", ["http://", "ftp://h/x", "http://u:p@w@h/x", "http://h:port/x", "http://u:p/w@h/", "h"])
def test_urls_that_cannot_be_told_apart_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"host|http://"):
        split_login(url)
