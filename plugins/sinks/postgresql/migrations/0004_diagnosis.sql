-- The newest reports of each node and type; older ones are removed by whoever writes the next.
create table lens_diagnosis (
    id bigint generated always as identity primary key,
    subject_id bigint not null references lens_subject on delete cascade,
    node_type text not null,
    node_rank integer not null,
    node_id integer not null,
    data_type text not null,
    digest bytea not null,
    event_time_us bigint not null,
    content text not null,
    unique (subject_id, node_type, node_rank, node_id, data_type, digest)
);
create index lens_diagnosis_time
    on lens_diagnosis (subject_id, node_type, node_rank, node_id, data_type, event_time_us desc, id desc);
