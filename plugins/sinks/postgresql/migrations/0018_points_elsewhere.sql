-- Where the points are: no row for PostgreSQL itself, else the address of a ClickHouse without its password.
create table lens_place (place text not null);

-- A daemon that still writes rows here after they moved is told so; what it has waits in its spool.
create function lens_refuse_rows() returns trigger language plpgsql as $$
begin
    raise exception 'the points of this store have moved to ClickHouse: give the setting "points" and start again';
end $$;

-- Of streams whose points are in ClickHouse: when rows came last, which retention goes by, and whether a version of a
-- point was ever replaced by another.
alter table lens_stream add column received_us bigint;
alter table lens_stream add column overwritten boolean not null default false;

-- While points move: the rows that are written meanwhile, and the streams that are copied and checked.
create table lens_moving_row (
    id bigint generated always as identity primary key,
    stream_id bigint not null,
    row_step bigint not null
);
create table lens_moved_stream (stream_id bigint primary key, received_us bigint not null);

create function lens_note_moving_rows() returns trigger language plpgsql set search_path from current as $$
begin
    insert into lens_moving_row (stream_id, row_step) select stream_id, row_step from written;
    return null;
end $$;
