// Which curves of a metric are one line: the attempts of a run, and of ranks with runs of their own the lowest one.

// A line without the steps that a later attempt repeated, which has them from its first point on. x, t and so on are
// those of the points; begins: where each attempt but the first begins, [{x, t, attempt}]. firsts: where attempts begin
// in the whole run, for points of a part of it.
export function joinAttempts(series, firsts = beginsOf(series)) {
  const runs = new Map();
  for (const one of series.values()) runs.set(runOf(one), [...(runs.get(runOf(one)) ?? []), one]);
  return new Map([...runs].map(([key, attempts]) => [key, joined(key, attempts, firsts)]));
}

// The first point of each curve, by its key.
export function beginsOf(series) {
  return new Map([...series.values()].filter((one) => one.points.length).map((one) => [one.key, one.points[0]]));
}

// What all attempts of a run have in common.
export const runOf = (one) => [one.uid, one.source, one.run].join("\u0001");

function joined(key, attempts, firsts) {
  const [newest, ...older] = [...attempts].sort((one, other) => other.attempt - one.attempt);
  if (!older.length) return { ...newest, key, attempt: null, attempts: [newest.attempt], begins: [] };
  let points = newest.points;
  let cut = firsts.get(newest.key)?.x ?? Infinity;
  const begins = [];
  let later = newest;
  for (const one of older) {
    const first = firsts.get(later.key);
    const kept = one.points.filter((point) => point.x < cut);
    if (first) begins.push({ x: first.x, t: first.t, attempt: later.attempt });
    points = [...kept, ...points];
    cut = Math.min(cut, firsts.get(one.key)?.x ?? Infinity);
    later = one;
  }
  return { ...newest, key, attempt: null, attempts: attempts.map((one) => one.attempt), points, begins: begins.reverse(), figures: figuresOf(attempts) };
}

// Percentiles of several curves are not those of one: the range that holds them all.
function figuresOf(attempts) {
  const all = attempts.map((one) => one.figures).filter((figures) => figures?.p2 != null);
  if (all.length < attempts.length) return {};
  return {
    count: all.reduce((sum, figures) => sum + figures.count, 0),
    p2: Math.min(...all.map((figures) => figures.p2)),
    p98: Math.max(...all.map((figures) => figures.p98)),
  };
}

// Whether any run has several attempts, of [{uid, run, attempt, source}].
export function hasAttempts(runs) {
  return new Set(runs.map(runOf)).size < new Set(runs.map((one) => `${runOf(one)}\u0001${one.attempt}`)).size;
}

// Runs of the same time that differ only in their rank, each with the run of the lowest rank: run → {first, rank}.
// runs: [{uid, run, source, rank, since, until}], one for each rank of each attempt of each run.
export function rankGroups(runs) {
  const found = new Map();
  const groups = new Map(); // uid and source → the lowest ranks of each time
  for (const one of ofOneRank(runs).sort((a, b) => a.rank - b.rank)) {
    const place = [one.uid, one.source].join("\u0001");
    const lowest = groups.get(place) ?? [];
    const first = lowest.find((other) => other.rank < one.rank && isBeside(one, other));
    if (first) found.set(runOf(one), { first: runOf(first), rank: one.rank });
    else groups.set(place, [...lowest, one]);
  }
  for (const lowest of groups.values()) for (const one of lowest) found.set(runOf(one), { first: runOf(one), rank: one.rank });
  return found;
}

// The runs that exactly one rank logs, each with its whole time.
function ofOneRank(runs) {
  const known = new Map();
  for (const one of runs) {
    const whole = known.get(runOf(one));
    if (!whole) known.set(runOf(one), { ...one, ranks: new Set([one.rank]) });
    else Object.assign(whole, { since: Math.min(whole.since, one.since), until: Math.max(whole.until, one.until), ranks: whole.ranks.add(one.rank) });
  }
  return [...known.values()].filter((one) => one.ranks.size === 1 && one.rank !== null && one.rank >= 0);
}

// Whether two runs went on at the same time, for the most part of the shorter one.
function isBeside(one, other) {
  const common = Math.min(one.until, other.until) - Math.max(one.since, other.since);
  return common >= 0 && common >= 0.5 * Math.min(one.until - one.since, other.until - other.since);
}

// Whether any run has a lower rank beside it.
export const hasOtherRanks = (groups) => [...groups].some(([run, { first }]) => run !== first);

// The curves of a chart without those of higher ranks that log runs of their own.
export function lowestRanks(series, groups) {
  const lowest = new Map();
  for (const one of series.values()) {
    const { first, rank } = groups.get(runOf(one)) ?? {};
    if (first !== undefined) lowest.set(first, Math.min(rank, lowest.get(first) ?? rank));
  }
  return new Map([...series].filter(([, one]) => {
    const { first, rank } = groups.get(runOf(one)) ?? {};
    return first === undefined || rank === lowest.get(first);
  }));
}
