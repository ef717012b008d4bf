-- Which rank's pod an event is about, and on which node it ran: of a failure among thousands the first question.
alter table lens_event add column pod_name text not null default '', add column node text not null default '';
