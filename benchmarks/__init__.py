"""One script per figure; each measures Lens and a peer on the same work in the same run and prints a ratio."""
