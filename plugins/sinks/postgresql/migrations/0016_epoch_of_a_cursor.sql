-- Several daemons hand the delivery of a part of a log from one to the other: the one before may still be alive, and
-- what it writes under its older number is refused.
alter table lens_cursor add column epoch bigint not null default 0;
