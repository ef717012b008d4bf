"""Points in ClickHouse: the same rows as in PostgreSQL's `lens_row`, kept as one version for each metric and write.

Start with `schema.py`, which says what a version is; `versions.py` turns rows into versions, `stored_rows.py` versions
into rows. `store.py` is the `PointStore`; it writes by `writing.py` and reads by `reading.py`. `moving.py` copies the
points of a PostgreSQL.
"""
