// Host and GPU: what collectors measured on the machines of a workload, by time, below its loss on the same axis.

import { get, workloadPath } from "./api.js";
import { heights } from "./axes.js";
import { Chart, loadLibrary } from "./chart.js";
import { code, el, name } from "./dom.js";
import { count, moment, number, unit } from "./format.js";
import { aligned, linesOf, nearest } from "./lines.js";
import { strokeAt, swatch } from "./palette.js";
import { empty } from "./pieces.js";

const MOST_LINES = 16;
const POINTS = 240;
// So many lines are named below a chart; all that are drawn have their stroke there while somebody points at it.
const MOST_NAMED = 8;
// A machine that was not measured for so many times the usual interval has no line there.
const GAP = 4;
// In this order, then the others by name.
const FIRST = ["gpu.used_pct", "gpu.memory_used_bytes", "gpu.power_watts", "gpu.temperature_celsius", "gpu.throttled", "host.cpu.used_pct", "host.memory.used_pct", "host.network.received_bytes_per_second", "host.disk.read_bytes_per_second"];
// They never change: a chart of one says nothing.
const CONSTANT = /\.(count|total_bytes|memory_total_bytes)$/;
// What Lens itself computes of the job, such as its goodput, has places of its own.
const OWN = /^lens_/;
const OPTIONS = { axis: "time", log: false, logX: false, smooth: 0, outliers: true, range: null, hidden: new Set() };
// Each curve brings its own look.
const LOOKS = { placeAll: () => {}, of: (one) => one.look };

export class Machines {
  // changed(parameters): the address notes them
  constructor(place, { uid, signal, say, query, changed }) {
    Object.assign(this, { place, uid, signal, say, changed });
    this.figures = new Map(); // title → Figure
    const range = [query.get("mfrom"), query.get("mto")].map(Number);
    this.range = range[0] > 0 && range[0] < range[1] ? range : null; // of a zoom, in ms
    this.about = el("p", { class: "quiet" });
    this.grid = el("div", { class: "machines" });
    this.onTheme = () => this.figures.forEach((figure) => figure.restyle());
    this.onWhole = () => this.zoom(null);
    document.addEventListener("lens:theme", this.onTheme);
    document.addEventListener("lens:whole", this.onWhole);
  }

  // What was measured by now. lossName: the metric that is shown above, or null.
  async show({ lossName }) {
    const { signal, uid } = this;
    this.lossName = lossName;
    const [start, end] = this.range ?? ["", ""];
    const found = await get(workloadPath(uid, "/measurements"), { max_points: POINTS, start, end }, { signal });
    const series = found.series.filter((one) => !CONSTANT.test(one.name) && !OWN.test(one.name) && one.timestamps.length);
    if (!series.length && !this.range) {
      this.place.replaceChildren(nothing(found.nodes));
      return;
    }
    const shown = [found.start, found.end];
    if (!this.range) this.whole = shown;
    const loss = lossName ? await lossOf(uid, lossName, shown, signal) : [];
    const uPlot = await loadLibrary();
    if (signal.aborted || this.isOver) return;
    const groups = new Map(loss.length ? [[lossName, loss]] : []);
    for (const title of titlesInOrder(series.map((one) => one.name))) groups.set(title, series.filter((one) => one.name === title).map(curveOf));
    this.about.textContent = `${count(found.nodes.length)} ${found.nodes.length === 1 ? "node" : "nodes"}, ${moment(shown[0])} to ${moment(shown[1])}; each value is the mean of ${number(found.interval_ms / 1000)} s, the band reaches from the lowest to the highest.`;
    this.arrange([...groups.keys()]);
    for (const [title, curves] of groups) this.figures.get(title).show(uPlot, curves, shown, this.whole ?? shown);
  }

  arrange(titles) {
    for (const [title, figure] of this.figures) {
      if (titles.includes(title)) continue;
      figure.end();
      this.figures.delete(title);
    }
    const zoomed = (range) => this.zoom(range);
    for (const title of titles) if (!this.figures.has(title)) this.figures.set(title, new Figure(title, zoomed));
    const boxes = titles.map((title) => this.figures.get(title).box);
    if (boxes.some((box, place) => this.grid.children[place] !== box)) this.grid.replaceChildren(...boxes);
    if (!this.grid.isConnected) this.place.replaceChildren(this.about, this.grid);
  }

  zoom(range) {
    this.range = range?.map(Math.round) ?? null;
    const [mfrom, mto] = this.range ?? ["", ""];
    this.changed({ mfrom, mto });
    this.show(this).catch(this.say);
  }

  end() {
    this.isOver = true;
    document.removeEventListener("lens:theme", this.onTheme);
    document.removeEventListener("lens:whole", this.onWhole);
    this.figures.forEach((figure) => figure.end());
  }
}

// One chart with the names of its lines below.
class Figure {
  constructor(title, zoomed) {
    Object.assign(this, { title, zoomed, chart: null, at: null });
    const measured = unit(title);
    this.plot = el("div", { class: "plot", role: "img" });
    this.readout = el("p", { class: "quiet readout", "aria-live": "off" });
    this.box = el("figure", { class: "machine" }, el("h2", {}, name(title, 80), measured ? el("small", { class: "quiet" }, ` ${measured}`) : null), this.plot, this.readout);
  }

  show(uPlot, all, range, whole) {
    this.chart ??= new Chart(uPlot, this.plot, { zoomed: this.zoomed, pointed: (x) => this.tellAt(x) });
    this.plot.chart = this.chart;
    this.all = all.length;
    const shown = all.slice(0, MOST_LINES).map((one, place) => ({ ...one, look: { ...strokeAt(place), key: one.key, label: one.label } }));
    this.lines = linesOf(new Map(shown.map((one) => [one.key, one])), null, OPTIONS, LOOKS);
    this.plot.setAttribute("aria-label", `${this.title} by time, ${this.lines.length} lines`);
    this.chart.show({
      ...OPTIONS, ...aligned(this.lines), title: this.title, names: [], lines: this.lines, specials: [], marks: [], spans: [],
      range, whole, heights: heights(this.lines, OPTIONS), isTall: false,
    });
    this.tellAt(this.at);
  }

  // Each line with its stroke, its name and the value at x, or the newest one.
  tellAt(x) {
    this.at = x;
    const isPointing = x !== null;
    const named = isPointing ? this.lines : this.lines.slice(0, MOST_NAMED);
    const more = this.all > this.lines.length ? `; ${this.all - this.lines.length} more lines are not drawn` : named.length < this.lines.length ? ", …" : "";
    const strokes = this.lines.length > 1;
    const items = named.flatMap((line, place) => [
      place ? ", " : "",
      strokes ? swatch(line.look) : "",
      `${line.look.label} ${number(valueAt(line, x))}`.trim().slice(0, 120),
    ]);
    this.readout.replaceChildren(...items, more);
  }

  restyle() {
    if (!this.chart) return;
    this.chart.restyle();
    this.chart.show(this.chart.picture);
    this.tellAt(this.at);
  }

  end() {
    this.chart?.destroy();
    this.chart = this.plot.chart = null;
  }
}

function nothing(nodes) {
  return empty(
    "Nothing was measured on the machines of this job",
    el("span", {}, "The collector ", code("host"), " measures processors, memory, disks, network and GPUs of each machine on which a daemon runs."),
    nodes.length ? el("span", {}, "Its nodes: ", name(nodes.join(", "), 300)) : el("span", {}, "Neither its rows nor its pods name a node."),
  );
}

function titlesInOrder(names) {
  const rank = (title) => (FIRST.includes(title) ? FIRST.indexOf(title) : FIRST.length);
  return [...new Set(names)].sort((one, other) => rank(one) - rank(other) || (one < other ? -1 : 1));
}

const valueAt = ({ x: xs, points, y }, x) => (x === null ? y.findLast((value) => value !== null) : points.length ? y[nearest({ x: xs }, x)] : null);

// A measurement as a curve of charts: its points have no iteration, and stand apart where it was not measured.
export function curveOf({ node, tags, timestamps, values, min, max }) {
  const label = [node, Object.entries(tags).map(([key, value]) => `${key} ${value}`).join(" ")].filter(Boolean).join(" ");
  const gaps = timestamps.slice(1).map((at, place) => at - timestamps[place]).sort((a, b) => a - b);
  const longest = GAP * (gaps[Math.floor(gaps.length / 2)] ?? 0);
  const isNumber = (value) => typeof value === "number";
  const points = timestamps.flatMap((t, place) => {
    const isKnown = [values[place], min[place], max[place]].every(isNumber);
    const [y, low, high] = isKnown ? [values[place], min[place], max[place]] : [null, null, null];
    const apart = place && t - timestamps[place - 1] > longest ? [pointAt(t - 1, null, null, null)] : [];
    return [...apart, pointAt(t, y, low, high)];
  });
  return { key: JSON.stringify([node, tags]), label, points, figures: {} };
}

// count is more than one where there is a band.
const pointAt = (t, y, low, high) => ({ x: null, t, y, low, high, count: low < high ? 2 : 1, special: null });

// The loss of every run and attempt in that time.
async function lossOf(uid, metric, [start, end], signal) {
  const { data } = await get(workloadPath(uid, "/metrics/data"), { metrics: [metric, metric], buckets: POINTS, start, end }, { signal });
  const curves = new Map();
  for (const { run_id: run, attempt, data_source: source, timestamp, value, min, max } of data) {
    const key = JSON.stringify([run, attempt, source]);
    if (!curves.has(key)) curves.set(key, { key, run, attempt, label: "", figures: {}, points: [] });
    curves.get(key).points.push(pointAt(timestamp, value, min, max));
  }
  const all = [...curves.values()].sort((one, other) => one.points[0].t - other.points[0].t);
  if (all.length > 1) for (const one of all) one.label = [one.run ? `run ${one.run.slice(0, 40)}` : "", `attempt ${one.attempt}`].filter(Boolean).join(" ");
  return all;
}
