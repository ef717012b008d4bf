// Where an event that names no iteration stands on an axis of iterations: at what its job had reached by then.

export function placed(events, runs) {
  return events.map((event) => (event.iteration === null ? { ...event, iteration: iterationAt(event, runs) } : event));
}

// By the attempt that logged last until then, as if its iterations were equally long; null where there is none.
function iterationAt(event, runs) {
  const known = runs.filter((run) => run.first_iteration !== null && run.last_iteration !== null);
  const mine = known.filter((run) => !event.run_id || run.run_id === event.run_id);
  const begun = (mine.length ? mine : known).filter((run) => run.first_seen <= event.timestamp);
  if (!begun.length) return known.length ? Math.min(...known.map((run) => run.first_iteration)) : null;
  const { first_iteration: first, last_iteration: last, first_seen: since, last_seen: until } = begun.reduce((one, other) => (other.first_seen > one.first_seen ? other : one));
  const share = until > since ? Math.min(1, (event.timestamp - since) / (until - since)) : 1;
  return Math.round(first + share * (last - first));
}
