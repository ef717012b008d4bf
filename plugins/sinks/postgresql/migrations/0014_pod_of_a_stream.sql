-- Points say in which pod they were made. Streams from before have its uid at most.
alter table lens_stream add column pod_name text not null default '';
