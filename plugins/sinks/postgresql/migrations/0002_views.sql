-- Every uid by which a subject can be asked for, beside its own workload's: that workload's ancestors; for a pod
-- without one the workloads that it belongs to, its own uid, its namespace/name and its name.
create view lens_other_name as
    select l.ancestor_uid as uid, s.id as subject_id
    from lens_lineage l join lens_subject s on s.workload_uid = l.workload_uid and s.cluster = l.cluster
    where s.workload_uid <> ''
    union
    select m.workload_uid, s.id
    from lens_membership m join lens_subject s on s.pod_uid = m.pod_uid and s.cluster = m.cluster
    where s.workload_uid = '' and s.pod_uid <> ''
    union
    select m.workload_uid, s.id
    from lens_membership m join lens_subject s on s.pod_name = m.pod_name and s.cluster = m.cluster
    where s.workload_uid = '' and s.pod_name <> '' and (s.pod_uid = '' or m.pod_uid = '')
        and (s.namespace = m.namespace or s.namespace = '' or m.namespace = '')
    union
    select pod_uid, id from lens_subject where workload_uid = '' and pod_uid <> ''
    union
    select namespace || '/' || pod_name, id from lens_subject
    where workload_uid = '' and pod_name <> '' and namespace <> ''
    union
    select pod_name, id from lens_subject where workload_uid = '' and pod_name <> '';

create view lens_name as
    select workload_uid as uid, id as subject_id from lens_subject where workload_uid <> ''
    union all
    select uid, subject_id from lens_other_name;

-- The seed's shape of one overwritten version: its metrics beside the row's metadata.
create function lens_history(history jsonb, metadata jsonb) returns jsonb immutable language sql as $$
    select jsonb_build_object('history', jsonb_agg(
        (entry -> 'values') || jsonb_build_object('sequence', entry -> 'sequence') || metadata order by position))
    from jsonb_array_elements(history) with ordinality as entries (entry, position)
$$;

-- The seed's `performance`.
create function lens_performance(
    metrics jsonb, history jsonb, data_source text, run_id text, row_step bigint, first_us bigint, updated_us bigint
) returns jsonb immutable language sql as $$
    select metrics
        || jsonb_build_object('source', data_source, 'run_id', run_id, 'step', row_step,
            'created_at', to_timestamp(first_us / 1e6))
        || case when updated_us is null then '{}'
            else jsonb_build_object('updated_at', to_timestamp(updated_us / 1e6)) end
        || case when history is null then '{}'
            else lens_history(history, jsonb_build_object('source', data_source, 'run_id', run_id, 'step', row_step,
                'updated_at', to_timestamp(first_us / 1e6))) end
$$;

-- Rows under their own workload, and the same rows under all other names. The first part is nothing but one table,
-- without a condition: only such a part of a union can hand out rows in the order of an index, so that "the newest
-- row of this workload and source" reads one row. (Rows of pods have a null there.)
create view training_performance as
    select r.id, r.workload_uid,
        (select s.pod_uid from lens_stream s where s.id = r.stream_id) as pod_uuid,
        (select s.attempt from lens_stream s where s.id = r.stream_id) as serial,
        r.iteration, r.data_source,
        lens_performance(r.metrics, r.history, r.data_source,
            (select s.run_id from lens_stream s where s.id = r.stream_id),
            r.row_step, coalesce(r.event_time_us, r.received_us), r.updated_us) as performance,
        to_timestamp(coalesce(r.event_time_us, r.received_us) / 1e6) as created_at,
        (select u.cluster from lens_stream s join lens_subject u on u.id = s.subject_id where s.id = r.stream_id)
            as cluster,
        (select s.run_id from lens_stream s where s.id = r.stream_id) as run_id,
        (select s.rank from lens_stream s where s.id = r.stream_id) as rank,
        r.row_step, to_timestamp(r.event_time_us / 1e6) as event_time
    from lens_row r
    union all
    select r.id, n.uid, s.pod_uid, s.attempt, r.iteration, r.data_source,
        lens_performance(r.metrics, r.history, r.data_source, s.run_id, r.row_step,
            coalesce(r.event_time_us, r.received_us), r.updated_us),
        to_timestamp(coalesce(r.event_time_us, r.received_us) / 1e6),
        u.cluster, s.run_id, s.rank, r.row_step, to_timestamp(r.event_time_us / 1e6)
    from lens_other_name n
        join lens_subject u on u.id = n.subject_id
        join lens_stream s on s.subject_id = n.subject_id
        join lens_row r on r.stream_id = s.id;

create view metrics_storage as
    select
        n.uid as workload_uid,
        s.data_source as source,
        s.run_id,
        case when m.key ~ '^_+(step|run_id|source|history|created_at|updated_at)$' then substr(m.key, 2)
            else m.key end as name,
        m.value::double precision as value,
        r.row_step as step,
        to_timestamp(coalesce(r.event_time_us, r.received_us) / 1e6) as "timestamp"
    from lens_name n
        join lens_stream s on s.subject_id = n.subject_id
        join lens_row r on r.stream_id = s.id
        cross join lateral jsonb_each_text(r.metrics) as m;

create view framework_detection as
    select d.id, n.uid as workload_uid, d.source, d.framework, d.layer, d.confidence, d.method, d.facts as evidence,
        to_timestamp(d.event_time_us / 1e6) as detected_at
    from lens_name n join lens_detection d on d.subject_id = n.subject_id;

create view pod_cache as
    select cluster, node as node_name, namespace, pod_name, pod_uid, workload_name, workload_uid, kind, parent_uid,
        to_timestamp(first_seen_us / 1e6) as created_at, to_timestamp(last_seen_us / 1e6) as updated_at
    from lens_membership;
