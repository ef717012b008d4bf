"""Connection strings are read when the file is."""

from __future__ import annotations

import pytest
from lens_plugins.sinks.postgresql import PostgreSQL

from lens_core import Secret


@pytest.mark.parametrize("name", ["dsn", "read_dsn"])
@pytest.mark.parametrize("text", ["5", "nonsense", "postgresql://h:port/x", "foo=bar", "postgres//h"])
def test_what_is_no_connection_string_is_refused_without_showing_it(name: str, text: str) -> None:
    given = {"dsn": Secret("host=h"), name: Secret(text)}
    with pytest.raises(ValueError, match=f"^{name}: ") as refused:
        PostgreSQL.Settings(**given)
    assert "nonsense" not in str(refused.value)


@pytest.mark.parametrize(
    "text", ["postgresql://u:p%40@h:5432/n", "host=a,b port=1,2 dbname=x", "postgresql:///x?host=/run", "service=lens"]
)
def test_every_form_of_libpq_is_taken(text: str) -> None:
    assert PostgreSQL.Settings(dsn=Secret(text)).dsn
