-- What each batch wrote, in the order of its commits, kept for some minutes: a live view follows these instead of asking
-- every stream. A range of steps has so many rows that are new or changed; rows_left_out are those of ranges beyond the
-- most that are noted of a batch.
create table lens_news (
    id bigint generated always as identity primary key,
    subject_id bigint not null,
    at_us bigint not null,
    streams bigint[] not null,
    first_steps bigint[] not null,
    last_steps bigint[] not null,
    rows bigint[] not null,
    rows_left_out bigint not null,
    has_late boolean not null
);
create index lens_news_subject on lens_news (subject_id, id);
