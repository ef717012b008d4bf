// Points of metrics, asked of the server in bunches and kept: few for the whole run, finer ones for a zoom.

import { get, workloadPath } from "./api.js";

// More than a chart has pixels; the lowest and highest of every part are among them. All runs of a workload share them:
// where they are many, more is asked for, so that a line keeps its shape.
const MAX_POINTS = 400;
const ENOUGH_FOR_ONE = 100;
const MOST_SHARES = 10;
// A run that has logged so lately goes on: what is asked for next begins where the slowest of these ends.
const ALIVE_MS = 120_000;
// A series that has grown so much while we looked is asked for anew.
const MAX_KEPT = 3 * MAX_POINTS;
const AT_ONCE = 6;
const RETRY_MS = 3000;

export class Points {
  constructor(uids, signal, failed) {
    Object.assign(this, { uids, signal, failed });
    this.metrics = new Map(); // metric → Map(series key → {uid, run, attempt, source, points})
    this.waiting = new Map();
    this.ends = new Map(); // series key → ms until which all metrics that were asked for are known
    this.shares = 1; // how many times MAX_POINTS is asked for
    this.timer = null;
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
    const asked = [...this.waiting].filter(([, item]) => !item.sent);
    asked.forEach(([, item]) => (item.sent = true));
    const bunches = [];
    for (let first = 0; first < asked.length; first += AT_ONCE) bunches.push(asked.slice(first, first + AT_ONCE));
    await Promise.all(bunches.map((bunch) => this.loadBunch(bunch)));
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
      for (const [, item] of bunch) item.sent = false;
      this.timer ??= setTimeout(() => this.flush().catch(this.failed), RETRY_MS);
    }
  }

  async whole(metrics) {
    const found = await this.fetch(metrics, {});
    const runs = Math.max(...[...found.values()].map((series) => series.size)) / this.uids.length;
    const needed = Math.min(MOST_SHARES, Math.ceil((runs * ENOUGH_FOR_ONE) / MAX_POINTS));
    if (needed <= this.shares) return found;
    this.shares = needed;
    return this.fetch(metrics, {});
  }

  // Finer points between two times, for some metrics: metric → series.
  async between(metrics, start, end) {
    return this.fetch(metrics, { start: Math.floor(start), end: Math.ceil(end) });
  }

  async fetch(metrics, more) {
    const found = new Map(metrics.map((metric) => [metric, new Map()]));
    // A name that comes twice is a literal one, whatever letters it holds.
    const names = metrics.length === 1 ? [metrics[0], metrics[0]] : metrics;
    await Promise.all(
      this.uids.map(async (uid) => {
        const asked = { metrics: names, max_points: MAX_POINTS * this.shares, ...more };
        const { data } = await get(workloadPath(uid, "/metrics/data"), asked, { signal: this.signal });
        for (const point of data) this.add(found, uid, point);
      }),
    );
    return found;
  }

  add(found, uid, point) {
    const series = found.get(point.metric_name);
    if (!series) return;
    const key = [uid, point.data_source, point.run_id, point.attempt].join("\u0001");
    let one = series.get(key);
    if (!one) {
      one = { key, uid, source: point.data_source, run: point.run_id, attempt: point.attempt, points: [] };
      series.set(key, one);
    }
    one.points.push({ x: point.iteration, t: point.timestamp, y: point.value, special: point.special ?? null });
  }

  // What was logged since the last points that are known; gives the metrics that have grown. Runs, ranks and sources
  // send at different times: what one of them logged before another's newest point may come after it.
  async follow() {
    const metrics = [...this.metrics.keys()];
    if (!metrics.length) return [];
    const start = this.known();
    if (start === null) return this.anew(metrics);
    const found = await this.fetch(metrics, { start });
    this.remember(found);
    const grown = new Set();
    const tooLong = new Set();
    for (const [metric, fresh] of found) {
      const all = this.metrics.get(metric);
      for (const [key, one] of fresh) {
        const known = all.get(key);
        if (!known) {
          all.set(key, one);
          grown.add(metric);
        } else if (append(known.points, one.points)) {
          grown.add(metric);
          if (known.points.length > MAX_KEPT) tooLong.add(metric);
        }
      }
    }
    if (tooLong.size) await this.anew([...tooLong]);
    return [...grown];
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

function endsOf(found) {
  const ends = new Map();
  for (const series of found.values()) {
    for (const [key, one] of series) ends.set(key, Math.max(one.points.at(-1).t, ends.get(key) ?? 0));
  }
  return ends;
}

function append(known, fresh) {
  const last = known.at(-1);
  const later = fresh.filter((point) => point.x > last.x);
  known.push(...later);
  return later.length > 0;
}
