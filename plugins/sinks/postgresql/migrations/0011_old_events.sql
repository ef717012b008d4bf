-- What retention removes: events of long ago, of whatever subject and type.
create index lens_event_age on lens_event (event_time_us);
