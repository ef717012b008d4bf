// Ranks: a heat map of any metric by rank and iteration, the slowest rank first.

import { get, workloadPath } from "./api.js";
import { el, table } from "./dom.js";
import { count, number, unit } from "./format.js";
import { inOrder } from "./gridtools.js";
import { empty } from "./pieces.js";

const COLUMNS = 100;
// Each is a curve of the answer, and a row of the picture.
const MOST_RANKS = 512;
const EVERY_MS = 15_000;
const MOST_NAMED = 8;
const MOST_TRIED = 4;
const [HEIGHT, LEAST_ROW, MOST_ROW] = [420, 2, 22]; // pixels
// Times are chosen first; of what is done per second, a slow rank has less.
const TIMES = /(time|duration|latency|_ms|_s|seconds)$/;
const RATES = /per_|\/s$|tflops|throughput|mfu/;
// Viridis: its order can be seen without telling red from green, and in grey.
const COLOURS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];

export class Ranks {
  // changed(parameters): the address notes them
  constructor(place, { uid, signal, say, query, changed }) {
    Object.assign(this, { place, uid, signal, say, changed });
    this.metric = query.get("rankmetric");
    this.shownAt = -Infinity;
    this.readout = el("p", { class: "quiet readout", "aria-live": "off" });
  }

  // metrics: all names; runs: of the workload
  async show({ metrics, runs }) {
    const now = performance.now();
    if (now - this.shownAt < EVERY_MS) return;
    this.shownAt = now;
    Object.assign(this, { metrics, runs });
    const ranks = new Set(runs.map((run) => run.rank).filter((rank) => rank !== null && rank >= 0));
    if (ranks.size < 2) this.tell("No ranks to compare", "A map comes once several ranks of the job log rows of their own.");
    else if (ranks.size > MOST_RANKS) this.tell(`${count(ranks.size)} ranks`, `A map is made of at most ${MOST_RANKS}. The tab Time names those that hold the others up.`);
    else await this.load();
  }

  tell(title, text) {
    this.place.replaceChildren(empty(title, text));
  }

  // The chosen metric; before one is chosen the first that ranks log by themselves.
  async load() {
    const wanted = this.metric;
    const likely = [...this.metrics.filter((one) => TIMES.test(one)), ...this.metrics.filter((one) => RATES.test(one)), ...inOrder(this.metrics)];
    if (!this.bar) this.place.replaceChildren(el("p", { class: "quiet" }, "Reading the curve of every rank …"));
    const tried = wanted ? [wanted] : (this.found ?? [...new Set(likely)].slice(0, MOST_TRIED));
    for (const metric of tried) {
      const map = mapOf(await this.curves(metric), RATES.test(metric));
      if (this.signal.aborted || wanted !== this.metric) return; // turned meanwhile
      if (!map.ranks.length && metric !== tried.at(-1)) continue;
      this.found = [metric];
      this.paint(metric, map);
      return;
    }
  }

  async curves(metric) {
    const asked = { metrics: [metric, metric], buckets: COLUMNS, percentiles: "false", group_by: "rank", format: "columns" };
    return (await get(workloadPath(this.uid, "/metrics/data"), asked, { signal: this.signal })).curves;
  }

  choose(metric) {
    this.metric = metric;
    this.changed({ rankmetric: metric });
    this.load().catch(this.say);
  }

  paint(metric, map) {
    const all = inOrder(this.metrics);
    this.chooser ??= el("select", { "aria-label": "Metric", on: { change: () => this.choose(this.chooser.value) } });
    if (this.chooser.childElementCount !== all.length) this.chooser.replaceChildren(...all.map((one) => el("option", { value: one }, one.slice(0, 80))));
    this.chooser.value = metric;
    const parts = map.ranks.length ? this.parts(metric, map) : [empty("No rank has logged this metric by itself", "Choose another one.")];
    if (!this.bar) this.place.replaceChildren((this.bar = el("div", { class: "bar" }, el("label", {}, "Metric ", this.chooser))), (this.box = el("div")));
    this.box.replaceChildren(...parts);
  }

  parts(metric, map) {
    const { ranks, means, edges, low, high } = map;
    const measured = unit(metric);
    const [from, to] = [edges[0], edges.at(-1)];
    const order = RATES.test(metric) ? "lowest" : "highest";
    const about = `${count(ranks.length)} ranks, iterations ${count(from)} to ${count(to)}; the rank whose mean is ${order} is at the top.`;
    const median = middle(means);
    const named = ranks.slice(0, MOST_NAMED).map((rank, place) => [`rank ${rank}`, number(means[place]), median ? `${(means[place] / median).toFixed(3)} of the median` : "–"]);
    const scale = el("span", { class: "scale", "aria-hidden": "true" });
    return [
      el("p", { class: "quiet" }, about, " ", number(low), " ", scale, " ", number(high), measured ? ` ${measured}` : ""),
      this.canvas(metric, map),
      this.readout,
      table("Slowest ranks", ["Rank", "Mean", "Against the others"], named),
    ];
  }

  canvas(metric, { ranks, edges, cells, low, high }) {
    const row = Math.max(LEAST_ROW, Math.min(MOST_ROW, Math.floor(HEIGHT / ranks.length)));
    const label = `${metric.slice(0, 80)} by rank and iteration; from the top: ranks ${ranks.slice(0, MOST_NAMED).join(", ")}`;
    const canvas = el("canvas", { class: "ranks", width: edges.length, height: ranks.length, style: `height: ${row * ranks.length}px`, role: "img", "aria-label": label });
    const pen = canvas.getContext("2d");
    const image = pen.createImageData(edges.length, ranks.length);
    cells.flat().forEach((value, place) => {
      if (value === null) return; // stays transparent
      image.data.set([...colourOf(high > low ? (value / 2 - low / 2) / (high / 2 - low / 2) : 0.5), 255], 4 * place);
    });
    pen.putImageData(image, 0, 0);
    canvas.addEventListener("pointermove", (event) => {
      const { width, height } = canvas.getBoundingClientRect();
      const at = (offset, size, many) => Math.max(0, Math.min(many - 1, Math.floor((offset / size) * many)));
      const [line, column] = [at(event.offsetY, height, ranks.length), at(event.offsetX, width, edges.length)];
      const value = cells[line][column];
      this.readout.textContent = `rank ${ranks[line]}, ${column ? `until iteration ${count(edges[column])}` : `iteration ${count(edges[0])}`}: ${value === null ? "no value" : number(value)}`;
    });
    canvas.addEventListener("pointerleave", () => (this.readout.textContent = ""));
    return canvas;
  }

  end() {}
}

// The curves of ranks (of the newest attempt, where a rank has several) as rows of one table whose columns end at the
// same iterations, the slowest first. A cell without a value is null; low and high are of all cells.
export function mapOf(curves, isLowSlow) {
  const ranked = newest(curves.filter((one) => one.rank[0] !== null && one.iteration.length));
  const edges = ranked.reduce((most, one) => (one.iteration.length > most.length ? one.iteration : most), []);
  const end = Math.max(...ranked.map((one) => one.iteration.at(-1)), -Infinity);
  const ends = edges.length && edges.at(-1) < end ? [...edges, end] : edges;
  const rows = ranked.map((one) => {
    const cells = ends.map(() => [null, 0]);
    let column = 0;
    let whole = [null, 0];
    one.iteration.forEach((iteration, place) => {
      while (ends[column] < iteration) column += 1;
      const finite = one.count[place] - one.not_finite[place];
      if (!finite) return;
      cells[column] = joined(cells[column], one.value[place], finite);
      whole = joined(whole, one.value[place], finite);
    });
    return { rank: one.rank[0], mean: whole[0], cells: cells.map(([mean]) => mean) };
  }).filter((row) => row.mean !== null);
  rows.sort((one, other) => (isLowSlow ? one.mean - other.mean : other.mean - one.mean) || one.rank - other.rank);
  const values = rows.flatMap((row) => row.cells).filter((value) => value !== null);
  const extreme = (choose, start) => values.reduce((found, value) => choose(found, value), start);
  return { ranks: rows.map((row) => row.rank), means: rows.map((row) => row.mean), cells: rows.map((row) => row.cells), edges: ends, low: extreme(Math.min, Infinity), high: extreme(Math.max, -Infinity) };
}

// A mean of so many values and that of others: not by their sum, which may be infinite.
const joined = ([mean, many], other, others) => [(mean ?? 0) * (many / (many + others)) + other * (others / (many + others)), many + others];

// One curve for each rank: what it logged last, of the attempt in which any rank logged last.
function newest(curves) {
  const seen = (one) => one.timestamp.at(-1);
  const last = curves.reduce((found, one) => (!found || seen(one) > seen(found) ? one : found), null);
  const chosen = new Map();
  for (const one of curves) {
    if (one.attempt !== last.attempt || one.data_source !== last.data_source) continue;
    const known = chosen.get(one.rank[0]);
    if (!known || seen(one) > seen(known)) chosen.set(one.rank[0], one);
  }
  return [...chosen.values()];
}

function middle(values) {
  const sorted = [...values].sort((one, other) => one - other);
  return sorted[Math.floor(sorted.length / 2)];
}

function colourOf(share) {
  const at = Math.max(0, Math.min(1, share)) * (COLOURS.length - 1);
  const below = Math.min(COLOURS.length - 2, Math.floor(at));
  return COLOURS[below].map((part, place) => Math.round(part + (COLOURS[below + 1][place] - part) * (at - below)));
}
