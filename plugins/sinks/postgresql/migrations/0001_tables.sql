-- Whom a row belongs to: a workload, or a pod of which no workload was known when the row came.
create table lens_subject (
    id bigint generated always as identity primary key,
    cluster text not null,
    key text not null,
    workload_uid text not null,
    pod_uid text not null,
    namespace text not null,
    pod_name text not null,
    name text not null,
    rows bigint not null default 0,
    last_iteration bigint,
    first_seen_us bigint,
    last_seen_us bigint,
    version bigint not null default 0,
    unique (cluster, key)
) with (fillfactor = 70);
create index lens_subject_workload on lens_subject (workload_uid) where workload_uid <> '';
create index lens_subject_pod_uid on lens_subject (pod_uid) where workload_uid = '' and pod_uid <> '';
create index lens_subject_pod_name on lens_subject (pod_name, namespace) where workload_uid = '';
create index lens_subject_pod_path on lens_subject ((namespace || '/' || pod_name)) where workload_uid = '';
create index lens_subject_seen on lens_subject (last_seen_us, id);

-- Sessions (one per process start or resume) in the order in which they were first seen.
create table lens_attempt (
    subject_id bigint not null references lens_subject on delete cascade,
    data_source text not null,
    run_id text not null,
    rank integer not null,
    session text not null,
    attempt integer not null,
    primary key (subject_id, data_source, run_id, rank, session)
);

-- All rows of one attempt of one run of one rank. rank -1: unknown, or all ranks together (logs).
-- pod_uid is the pod that wrote first. last_step is the highest row_step; own_iterations says whether any row's iteration is not its row_step.
create table lens_stream (
    id bigint generated always as identity primary key,
    subject_id bigint not null references lens_subject on delete cascade,
    data_source text not null,
    run_id text not null,
    attempt integer not null,
    rank integer not null,
    pod_uid text not null,
    rows bigint not null default 0,
    last_step bigint,
    own_iterations boolean not null default false,
    first_iteration bigint,
    last_iteration bigint,
    target_iteration bigint,
    first_seen_us bigint,
    last_seen_us bigint,
    unique (subject_id, data_source, run_id, attempt, rank)
) with (fillfactor = 70);

-- One step. Times are microseconds since the epoch: event_time_us when it was first logged, updated_us when last
-- (null: the same). iteration is row_step where no other is known. sequence and rank are those of the newest write; key_sequences holds {metric: [rank, sequence]}
-- where a metric's differ; history what was overwritten: [{"sequence", "rank", "values"}], oldest first.
-- workload_uid (null for a pod's rows) and data_source repeat the subject's and the stream's: only so can one index
-- answer "the newest row of this workload and source" and "this iteration of this workload" in the seed's own SQL.
create table lens_row (
    stream_id bigint not null references lens_stream on delete cascade,
    row_step bigint not null,
    id bigint generated always as identity,
    received_us bigint not null,
    sequence bigint not null,
    event_time_us bigint,
    updated_us bigint,
    iteration bigint not null,
    rank integer,
    workload_uid text,
    data_source text not null,
    metrics jsonb not null,
    tags jsonb,
    key_sequences jsonb,
    history jsonb,
    primary key (stream_id, row_step)
);
create index lens_row_seed on lens_row (workload_uid, data_source, iteration)
    where workload_uid is not null;

-- Which metrics a stream has, and in how many rows.
create table lens_catalogue (
    stream_id bigint not null references lens_stream on delete cascade,
    metric text not null,
    points bigint not null,
    primary key (stream_id, metric)
) with (fillfactor = 70);

create table lens_event (
    id bigint generated always as identity primary key,
    subject_id bigint not null references lens_subject on delete cascade,
    digest bytea not null,
    type text not null,
    data_source text not null,
    run_id text not null,
    attempt integer,
    rank integer,
    iteration bigint,
    event_time_us bigint not null,
    details jsonb not null,
    unique (subject_id, digest)
);
create index lens_event_time on lens_event (subject_id, event_time_us desc, id desc);

create table lens_evidence (
    id bigint generated always as identity primary key,
    subject_id bigint not null references lens_subject on delete cascade,
    source text not null,
    run_id text not null,
    session text not null,
    event_time_us bigint not null,
    facts jsonb not null,
    unique (subject_id, source, run_id)
);

create table lens_detection (
    id bigint generated always as identity primary key,
    subject_id bigint not null references lens_subject on delete cascade,
    source text not null,
    layer text not null,
    framework text not null,
    method text not null,
    confidence double precision not null,
    event_time_us bigint not null,
    facts jsonb not null,
    unique (subject_id, source, layer, framework, method)
);

-- Which pods belong to which workloads (their ancestors included), and which workloads to which ancestors.
create table lens_membership (
    cluster text not null,
    pod_uid text not null,
    namespace text not null,
    pod_name text not null,
    workload_uid text not null,
    workload_name text not null,
    kind text not null,
    parent_uid text not null,
    workload_namespace text not null,
    node text not null,
    first_seen_us bigint not null,
    last_seen_us bigint not null,
    primary key (workload_uid, cluster, pod_uid, namespace, pod_name)
);
create index lens_membership_pod_uid on lens_membership (pod_uid);
create index lens_membership_pod_name on lens_membership (pod_name, namespace);

create table lens_lineage (
    cluster text not null,
    ancestor_uid text not null,
    workload_uid text not null,
    primary key (ancestor_uid, workload_uid, cluster)
);
create index lens_lineage_workload on lens_lineage (workload_uid);

-- How far each spool has been written; moved in the transaction that writes.
create table lens_cursor (
    spool_id text not null,
    sink text not null,
    batch bigint not null,
    "offset" bigint not null,
    moved_at timestamptz not null default now(),
    primary key (spool_id, sink)
);
