-- The id of this store. The tables of its points in a ClickHouse have it, too, so that those of another are refused.
create table lens_store (id text not null);
insert into lens_store (id) values (replace(gen_random_uuid()::text, '-', ''));
