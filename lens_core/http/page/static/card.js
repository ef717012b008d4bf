// One chart of the grid with its head: name, newest value, pin, picture to keep, size.

import { Chart } from "./chart.js";
import { button, el, name, setText } from "./dom.js";
import { savePicture } from "./exporting.js";
import { latest, steered } from "./gridtools.js";
import { hiddenText, nearest } from "./lines.js";
import { figure } from "./pieces.js";

export class Card {
  constructor(grid, metric) {
    Object.assign(this, { grid, metric, chart: null, lines: null, isVisible: false, isStale: true });
    const short = metric.slice(0, 80);
    this.place = el("div", { class: "plot", role: "img", "aria-label": `Chart of ${short}` });
    this.last = el("span", { class: "last", elementtiming: "lens-chart" });
    this.note = el("p", { class: "quiet hint" });
    this.pin = button("", () => grid.pin(metric), { class: "plain", "aria-label": `Pin ${short}`, title: "Keep it at the top" });
    this.size = button("⤢", () => grid.enlarge(metric), { class: "plain", "aria-label": `Larger or smaller: ${short}`, title: "Larger or smaller" });
    this.box = el(
      "section",
      { class: "card", tabindex: 0, "aria-label": metric.slice(0, 100) },
      el("h3", {}, name(metric, 80), this.last, this.pin, this.menu(short), this.size),
      this.note,
      this.place,
    );
    this.place.card = this;
    this.box.addEventListener("keydown", (event) => this.steer(event));
    this.paintState();
  }

  menu(short) {
    const save = (kind) => () => {
      this.pictures.open = false;
      savePicture(this.chart.picture, kind).catch(this.grid.say);
    };
    const kinds = [["png", "PNG"], ["svg", "SVG"]].map(([kind, text]) => button(text, save(kind), { class: "small" }));
    this.pictures = el("details", { class: "picker pictures" }, el("summary", { "aria-label": `Picture of ${short}`, title: "Keep it as a picture" }, "⤓"), el("div", {}, kinds));
    return this.pictures;
  }

  paintState() {
    const { tall, pinned } = this.grid.options;
    this.box.classList.toggle("tall", tall === this.metric);
    const isPinned = pinned.has(this.metric);
    this.pin.textContent = isPinned ? "★" : "☆";
    this.pin.setAttribute("aria-pressed", String(isPinned));
  }

  // What a pointer does by dragging, for the chart that has the focus.
  steer(event) {
    const { whole, options } = this.grid;
    if (event.target !== this.box || event.ctrlKey || event.metaKey || event.altKey || !whole) return;
    const range = steered(options.range, whole, event.key, options.logX);
    if (range === undefined) return;
    event.preventDefault();
    this.grid.zoom(range);
  }

  // lines: what linesOf() made; they are kept until something makes them stale.
  hold(lines, columns) {
    this.isStale = false;
    Object.assign(this, { lines, columns });
    setText(this.note, hiddenText(lines));
    this.tellNewest();
  }

  draw(uPlot, picture) {
    this.chart ??= new Chart(uPlot, this.place, { zoomed: (range) => this.grid.zoom(range), pointed: (x) => this.tellAt(x) });
    this.place.chart = this.chart;
    this.chart.show(picture);
    this.box.dataset.drawn = this.lines.reduce((sum, line) => sum + line.x.length, 0);
  }

  // The newest value; `elementtiming` has the browser note when it was painted, which is when the lines were, too.
  tellNewest() {
    const newest = this.grid.uids.length === 1 ? latest(this.grid.combined(this.series)) : null; // of several nobody could tell whose it is
    if (newest === null) this.last.replaceChildren();
    else this.last.replaceChildren(figure(newest, this.metric));
  }

  // The value where the cursor of all charts is.
  tellAt(x) {
    if (this.lines?.length !== 1 || this.isTelling === x) return;
    this.isTelling = x;
    if (x === null) return this.tellNewest();
    const [line] = this.lines;
    const place = nearest(line, x);
    const value = place < 0 ? null : (line.points[place].special ?? line.y[place]);
    this.last.replaceChildren(figure(value, this.metric));
  }

  // Out of sight a chart holds no canvas.
  hide() {
    this.chart?.destroy();
    this.chart = this.place.chart = null;
  }
}
