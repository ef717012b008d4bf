-- How many ranks trained together, and where the first row of a stream came from.
alter table lens_stream add column node text not null default '', add column world_size integer;
-- From when until when a pod (or a Slurm job's part of a node) held its GPUs: what is not held is queued. until_us is null
-- while it holds them; one that is started again under its uid has several spans.
create table lens_pod_span (
    cluster text not null,
    pod_uid text not null,
    namespace text not null,
    pod_name text not null,
    from_us bigint not null,
    until_us bigint,
    gpus integer,
    primary key (cluster, pod_uid, namespace, pod_name, from_us)
);
create unique index lens_pod_span_open on lens_pod_span (cluster, pod_uid, namespace, pod_name) where until_us is null;
