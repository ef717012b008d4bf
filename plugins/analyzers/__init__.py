"""Plugins that work out from a job's records what happened to it: where its time went. They only read."""
