-- Several trackers below one framework repeat its rows: which streams, and which of their metrics, are such echoes.
alter table lens_stream add column echo_of text not null default '';
alter table lens_catalogue add column is_echo boolean not null default false;
create index lens_stream_echo on lens_stream (subject_id) where echo_of <> '';
