-- The sum of a block's values that are numbers, so that a figure of an interval that holds the block needs no values.
-- Blocks that were made before have none, and are read.
alter table lens_column add column total double precision;
