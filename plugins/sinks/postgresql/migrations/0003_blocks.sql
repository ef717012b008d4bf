-- Compact copies of finished ranges of rows, made in the background; the rows stay the truth. A block holds the rows of
-- one stream from first_step (where the block before ends) to last_step. Its arrays are 64 bit numbers, little endian;
-- an array of 16 bytes for more than two rows is (first, difference). iterations is null where they are the steps.
-- `dirty`: a row in its range was written since, so that the rows are to be read until the block is made anew.
create table lens_block (
    stream_id bigint not null references lens_stream on delete cascade,
    last_step bigint not null,
    first_step bigint not null,
    rows integer not null,
    dirty boolean not null default false,
    ordered boolean not null,
    first_iteration bigint not null,
    last_iteration bigint not null,
    first_us bigint not null,
    last_us bigint not null,
    steps bytea not null,
    iterations bytea,
    times bytea not null,
    primary key (stream_id, last_step)
);
create index lens_block_dirty on lens_block (stream_id) where dirty;
alter table lens_block alter column steps set storage external;
alter table lens_block alter column iterations set storage external;
alter table lens_block alter column times set storage external;

-- One metric of a block. positions (16 bit numbers, null: every row) says which of the block's rows have it, values are
-- doubles. summary: the first and the last point, and of every 128 the lowest, the highest and the first that is no
-- number, as three arrays one after the other: iterations, times, values.
create table lens_column (
    stream_id bigint not null,
    metric text not null,
    last_step bigint not null,
    points integer not null,
    positions bytea,
    summary bytea not null,
    "values" bytea not null,
    primary key (stream_id, metric, last_step),
    foreign key (stream_id, last_step) references lens_block on delete cascade
) with (toast_tuple_target = 4080);
alter table lens_column alter column positions set storage external;
alter table lens_column alter column summary set storage main;
alter table lens_column alter column "values" set storage external;
create index lens_column_block on lens_column (stream_id, last_step);

-- blocked_step: rows up to this step are in blocks. late_version: how often rows at or below last_step were written;
-- late_step: the lowest of them since somebody began to make a block.
alter table lens_stream add column blocked_step bigint;
alter table lens_stream add column blocked_rows bigint not null default 0;
alter table lens_stream add column late_version bigint not null default 0;
alter table lens_stream add column late_step bigint;
