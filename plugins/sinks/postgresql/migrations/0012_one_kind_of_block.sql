-- Charts are made from the summaries of blocks alone. What spans held was copied from these, and nothing else is lost.
drop view lens_level_column, lens_level;
drop table lens_span_column, lens_span;
