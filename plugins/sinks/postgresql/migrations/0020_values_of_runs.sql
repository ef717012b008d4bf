-- Of each metric of a stream the lowest and the highest value that is a number, and the last, which may be NaN: a table of
-- runs reads these instead of all points. has_summary is false where they are not known: of rows from before, and where
-- a value was overwritten or rows were removed.
alter table lens_catalogue
    add column has_summary boolean not null default false,
    add column lowest double precision,
    add column highest double precision,
    add column last_value double precision,
    add column last_us bigint,
    add column last_iteration bigint;
