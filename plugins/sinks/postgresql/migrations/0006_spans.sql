-- Coarser levels of blocks, so that a chart of a whole run reads about as much of a long run as of a short one. Blocks
-- are level 1; a span of level n + 1 holds neighbours of level n, from first_step (where the one before ends) to
-- last_step. They are made in the background, out of the level below. `dirty`: something in its range was made anew
-- since, so that the level below is to be read until the span is made anew, too.
create table lens_span (
    stream_id bigint not null references lens_stream on delete cascade,
    level integer not null,
    last_step bigint not null,
    first_step bigint not null,
    rows bigint not null,
    dirty boolean not null default false,
    first_us bigint not null,
    last_us bigint not null,
    primary key (stream_id, level, last_step)
);

-- One metric of a span. summary: as in lens_column, of the points in the summaries of the level below.
create table lens_span_column (
    stream_id bigint not null,
    level integer not null,
    metric text not null,
    last_step bigint not null,
    summary bytea not null,
    primary key (stream_id, level, metric, last_step),
    foreign key (stream_id, level, last_step) references lens_span on delete cascade
) with (toast_tuple_target = 4080);
alter table lens_span_column alter column summary set storage main;
create index lens_span_column_span on lens_span_column (stream_id, level, last_step);

-- All levels alike.
create view lens_level as
    select stream_id, 1 as level, last_step, first_step, rows::bigint as rows, first_us, last_us from lens_block
    union all
    select stream_id, level, last_step, first_step, rows, first_us, last_us from lens_span;

create view lens_level_column as
    select stream_id, 1 as level, metric, last_step, summary from lens_column
    union all
    select stream_id, level, metric, last_step, summary from lens_span_column;
