"""One small file for each tracker and framework: which methods to replace, and how to read a row from a call."""
