-- What the ranks of one attempt of a run logged together, where there are very many of them: a chart reads this instead
-- of every rank's points. A curve is what one data source logged of an attempt. is_whole is false of one that had too
-- many rows before its ranks were seen to be many: it is drawn from its points.
create table lens_curve (
    id bigint generated always as identity primary key,
    subject_id bigint not null references lens_subject on delete cascade,
    data_source text not null,
    run_id text not null,
    attempt integer not null,
    is_whole boolean not null,
    unique (subject_id, data_source, run_id, attempt)
);

-- Iterations at several levels: place is iteration >> 4 * level, so that on level 0 each has its own. numbers, total,
-- lowest and highest are of the finite values; lead is the lowest rank of the last iteration, and its value.
create table lens_ranks (
    curve_id bigint not null references lens_curve on delete cascade,
    level smallint not null,
    metric text not null,
    place bigint not null,
    points bigint not null,
    numbers bigint not null,
    total double precision not null,
    lowest double precision,
    highest double precision,
    first_us bigint not null,
    last_us bigint not null,
    last_iteration bigint not null,
    lead_rank integer not null,
    lead_value double precision not null,
    primary key (curve_id, level, metric, place)
) with (fillfactor = 70);

-- Whether there ever was a curve: a batch looks for curves only where this is true, or where it has a high rank itself.
alter table lens_subject add column has_curves boolean not null default false;
