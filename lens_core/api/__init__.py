"""The HTTP side of the daemon, on Starlette: ingest, query, status, Lens' own metrics."""
