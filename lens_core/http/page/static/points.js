// Points of metrics, asked of the server in bunches and kept: buckets for the whole run, finer ones for a zoom.

import { get, workloadPath } from "./api.js";

// More than a chart has pixels; where there are many curves, each has fewer.
const MOST_BUCKETS = 600;
const FEWEST_BUCKETS = 60;
const BUCKETS_OF_ALL = 8000;
// A run that has logged so lately goes on: what is asked for next begins where the slowest of these ends.
const ALIVE_MS = 120_000;
// A series that has grown so much while we looked is asked for anew.
const MAX_KEPT = 3 * MOST_BUCKETS;
// Few at once, and few such bunches at the same time, so that the first on the screen are the first that are there.
const AT_ONCE = 3;
const BUNCHES_AT_ONCE = 2;
const RETRY_MS = 3000;

export class Points {
  constructor(uids, signal, failed, { weight = 0, percentiles = false } = {}) {
    Object.assign(this, { uids, signal, failed, weight, percentiles });
    this.metrics = new Map(); // metric → Map(series key → {uid, run, attempt, source, points, figures, average})
    this.waiting = new Map();
    this.leftOut = new Map(); // text → {data_source, left_out}: what answers left out, as another source has the same
    this.ends = new Map(); // series key → ms until which all metrics that were asked for are known
    this.curves = 1; // how many of one metric there were
    this.timer = null;
    this.running = 0; // bunches
  }

  // The series of a metric over the whole run.
  load(metric) {
    if (this.metrics.has(metric)) return Promise.resolve(this.metrics.get(metric));
    if (!this.waiting.has(metric)) {
      let done;
      const promise = new Promise((resolve) => (done = resolve));
      this.waiting.set(metric, { promise, done });
      this.timer ??= setTimeout(() => this.flush().catch(this.failed), 0);
    }
    return this.waiting.get(metric).promise;
  }

  async flush() {
    this.timer = null;
    const free = Array.from({ length: BUNCHES_AT_ONCE - this.running }, () => this.loadBunches());
    await Promise.all(free);
  }

  // One bunch after the other, until nothing waits.
  async loadBunches() {
    this.running += 1;
    try {
      for (;;) {
        const bunch = [...this.waiting].filter(([, item]) => !item.sent).slice(0, AT_ONCE);
        if (!bunch.length) return;
        for (const [, item] of bunch) item.sent = true;
        await this.loadBunch(bunch);
      }
    } finally {
      this.running -= 1;
    }
  }

  // What cannot be had now is asked for again until it is there: the charts that wait for it come by themselves.
  async loadBunch(bunch) {
    try {
      const found = await this.whole(bunch.map(([metric]) => metric));
      for (const [key, end] of endsOf(found)) this.ends.set(key, Math.min(end, this.ends.get(key) ?? end));
      for (const [metric, { done }] of bunch) {
        this.metrics.set(metric, found.get(metric) ?? new Map());
        this.waiting.delete(metric);
        done(this.metrics.get(metric));
      }
    } catch (error) {
      this.failed(error);
      if (this.signal.aborted) return;
      setTimeout(() => {
        for (const [, item] of bunch) item.sent = false;
        this.flush().catch(this.failed);
      }, RETRY_MS);
    }
  }

  async whole(metrics) {
    const { weight, percentiles } = this;
    const found = await this.fetch(metrics, {}, weight);
    this.curves = Math.max(1, ...[...found.values()].map((series) => series.size));
    for (const series of found.values()) for (const one of series.values()) averaged(one, weight);
    return weight === this.weight && percentiles === this.percentiles ? found : this.whole(metrics); // turned meanwhile
  }

  // Finer points between two times, for some metrics: metric → series. Their average is the server's, which knows what
  // was before them.
  async between(metrics, start, end) {
    return this.fetch(metrics, { start: Math.floor(start), end: Math.ceil(end) }, this.weight);
  }

  // Another weight of the moving average; gives whether it is known for all points by now.
  async smoothWith(weight) {
    this.weight = weight;
    const coarse = [];
    for (const [metric, series] of this.metrics) {
      const all = [...series.values()].map((one) => averaged(one, weight));
      if (!all.every(Boolean)) coarse.push(metric);
    }
    if (coarse.length) await this.anew(coarse);
    return weight === this.weight;
  }

  // Whether the axes go by percentiles of all points, for which the server has to read all of them.
  async wantPercentiles(isWanted) {
    this.percentiles = isWanted;
    const without = [...this.metrics].filter(([, series]) => [...series.values()].some((one) => one.figures.p2 == null));
    if (isWanted && without.length) await this.anew(without.map(([metric]) => metric));
  }

  async fetch(metrics, more, weight) {
    const found = new Map(metrics.map((metric) => [metric, new Map()]));
    // A name that comes twice is a literal one, whatever letters it holds.
    const names = metrics.length === 1 ? [metrics[0], metrics[0]] : metrics;
    const buckets = Math.max(FEWEST_BUCKETS, Math.min(MOST_BUCKETS, Math.floor(BUCKETS_OF_ALL / this.curves)));
    await Promise.all(
      this.uids.map(async (uid) => {
        const asked = { metrics: names, buckets, smooth: weight || "", percentiles: this.percentiles ? "" : "false", format: "columns", ...more };
        const { curves, series, echoes } = await get(workloadPath(uid, "/metrics/data"), asked, { signal: this.signal });
        for (const one of echoes ?? []) this.leftOut.set(JSON.stringify([uid, one]), one);
        for (const curve of curves) found.get(curve.metric_name)?.set(keyOf(uid, curve), read(uid, curve));
        for (const figures of series) {
          const one = found.get(figures.metric_name)?.get(keyOf(uid, figures));
          if (one) one.figures = figures;
        }
      }),
    );
    return found;
  }

  // What was logged since the last points that are known; gives the metrics that have grown. Runs, ranks and sources
  // send at different times: what one of them logged before another's newest point may come after it.
  async follow() {
    const metrics = [...this.metrics.keys()];
    if (!metrics.length) return [];
    const start = this.known();
    if (start === null) return this.anew(metrics);
    const found = await this.fetch(metrics, { start }, 0);
    this.remember(found);
    const grown = new Set();
    const tooLong = new Set();
    for (const [metric, fresh] of found) {
      const all = this.metrics.get(metric);
      for (const [key, one] of fresh) {
        if (!all.has(key)) tooLong.add(metric); // a run that begins, or whose rows came late
        else if (this.append(all.get(key), one.points)) grown.add(metric);
        else continue;
        if (all.get(key)?.points.length > MAX_KEPT || !isWhole(one.points)) tooLong.add(metric);
      }
    }
    if (tooLong.size) await this.anew([...tooLong]);
    return [...new Set([...grown, ...tooLong])];
  }

  append(known, fresh) {
    const last = known.points.at(-1);
    const later = fresh.filter((point) => point.x > last.x);
    if (known.average) smoothOn(known.average, later);
    known.points.push(...later);
    widen(known.figures, later);
    return later.length > 0;
  }

  // Until when the slowest run that goes on is known, in ms; null when nothing is.
  known() {
    const ends = [...this.ends.values()];
    const newest = Math.max(...ends);
    return ends.length ? Math.min(...ends.filter((end) => end > newest - ALIVE_MS)) : null;
  }

  remember(found) {
    for (const [key, end] of endsOf(found)) this.ends.set(key, Math.max(end, this.ends.get(key) ?? end));
  }

  async anew(metrics = [...this.metrics.keys()]) {
    if (!metrics.length) return [];
    const found = await this.whole(metrics);
    if (metrics.length === this.metrics.size) this.remember(found);
    for (const [metric, series] of found) this.metrics.set(metric, series);
    return metrics;
  }
}

const keyOf = (uid, one) => [uid, one.data_source, one.run_id, one.attempt].join("\u0001");

// A curve of an answer, whose points come in columns.
function read(uid, curve) {
  const { data_source: source, run_id: run, attempt, min, max, last, steps, count, not_finite: bad, smoothed } = curve;
  const points = curve.iteration.map((x, place) => ({
    x,
    t: curve.timestamp[place],
    attempt,
    y: curve.value[place],
    low: min[place],
    high: max[place],
    steps: steps[place],
    count: count[place],
    s: smoothed?.[place] ?? null,
    special: bad[place] ? specialOf(count[place], bad[place], last[place]) : null,
  }));
  return { key: keyOf(uid, curve), uid, source, run, attempt, points, figures: {} };
}

const specialOf = (count, bad, last) => (count === bad ? last : `${bad} of ${count} values are not finite`);

// The average of a series: its own where every point is one value, the server's where that has this weight. Gives
// whether it is known.
function averaged(one, weight) {
  one.average = null;
  if (!weight) return true;
  if (isWhole(one.points)) {
    one.average = begun(weight);
    smoothOn(one.average, one.points);
    return true;
  }
  const known = one.figures.smoothing;
  if (known?.weight !== weight) return false;
  one.average = { ...known, low: one.figures.min, high: one.figures.max };
  return true;
}

// The extremes of a series that has grown; its percentiles stay those of what was asked for.
function widen(figures, points) {
  for (const { low, high } of points) {
    if (low !== null) figures.min = Math.min(figures.min ?? low, low);
    if (high !== null) figures.max = Math.max(figures.max ?? high, high);
  }
}

function endsOf(found) {
  const ends = new Map();
  for (const series of found.values()) {
    for (const [key, one] of series) ends.set(key, Math.max(one.points.at(-1).t, ends.get(key) ?? 0));
  }
  return ends;
}

// The moving average of a curve, as the server defines it: docs/http.md, “Buckets and smoothing”.

// low and high: between which values it lies, as far as they are known.
export const begun = (weight) => ({ weight, mean: 0, steps: 0, low: Infinity, high: -Infinity });

// Write into `s` of each point what is shown after it, and go on with the state. Each point must be one iteration: of
// several their average is not known.
export function smoothOn(state, points) {
  for (const point of points) {
    if (point.y === null) {
      point.s = null;
      continue;
    }
    state.mean = held(state.weight * state.mean + (1 - state.weight) * point.y);
    state.steps += 1;
    point.s = within(state.mean / (1 - state.weight ** state.steps), state, point.y);
  }
}

// Rounding must not lead out of what a number can hold: the average would be infinite for ever.
const held = (mean) => Math.min(Number.MAX_VALUE, Math.max(-Number.MAX_VALUE, mean));

// Rounding must not lead out of what was seen: a constant stays the constant that it is.
function within(shown, state, value) {
  state.low = Math.min(state.low, value);
  state.high = Math.max(state.high, value);
  return Math.min(state.high, Math.max(state.low, shown));
}

// Whether every point is one iteration, so that the average can be made of them alone.
export const isWhole = (points) => points.every((point) => point.steps === 1);
