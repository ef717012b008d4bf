-- When something was last written about a subject, whatever the times of what was written: analyzers look at those alone.
alter table lens_subject add column changed_us bigint not null default 0;
create index lens_subject_changed on lens_subject (changed_us);
create function lens_mark_change() returns trigger language plpgsql as $$
begin
    new.changed_us := (extract(epoch from clock_timestamp()) * 1000000)::bigint;
    return new;
end $$;
create trigger lens_subject_changes before insert or update of version on lens_subject
    for each row execute function lens_mark_change();
