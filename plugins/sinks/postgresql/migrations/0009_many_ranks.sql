-- The attempts of one rank, without going through those of all others that share a run.
create index lens_stream_rank on lens_stream (subject_id, data_source, run_id, rank, attempt);
-- The newest evidence of a source: of a job whose ranks all give some, a few are read.
create index lens_evidence_newest on lens_evidence (subject_id, source, event_time_us desc, id desc);
