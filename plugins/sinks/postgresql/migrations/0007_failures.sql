-- What failed or stalled lately stands first in the list of workloads; it is found without going through all of them.
create index lens_event_failure on lens_event (event_time_us)
    where type in ('training_failed', 'out_of_memory', 'collective_timeout', 'process_terminated', 'stalled');
