-- Of every 128 points of a block that follow each other, where steps are iterations: iteration and time of the last,
-- mean, lowest and highest of those that are finite numbers, the last value, how many are finite. So a curve of many
-- points is drawn without reading them. Blocks that were made before have none, and are read.
alter table lens_column add column parts bytea;
alter table lens_column alter column parts set storage main;
