// The charts of one workload or of several: which metrics, how they are drawn, zoom, share link, CSV.

import { draw, forget } from "./chart.js";
import { button, el, name, nextPaint, throttle } from "./dom.js";
import { extentOf, inOrder, latest, steered, tells, timesOf, withoutLogarithm } from "./gridtools.js";
import { Legend } from "./legend.js";
import { empty, figure } from "./pieces.js";
import { Points } from "./points.js";
import { preview } from "./preview.js";
import { Palette, traces } from "./series.js";
import { Toolbar } from "./toolbar.js";

const MOST_AT_FIRST = 24;

export class ChartGrid {
  // names: uid → name; metrics: all names; events: of the workload; changed(parameters): the address notes them
  constructor(root, { names, metrics, query, signal, say, changed }) {
    Object.assign(this, { names, metrics, signal, say, changed });
    this.uids = [...names.keys()];
    this.events = [];
    this.palette = new Palette(names);
    this.fine = new Map();
    this.cards = new Map();
    this.read(query);
    this.points = new Points(this.uids, signal, say, this.options.smooth);
    this.build(root);
  }

  read(query) {
    const range = [query.get("from"), query.get("to")].map(Number);
    this.options = {
      axis: query.get("axis") === "time" ? "time" : "iteration",
      smooth: Math.min(0.99, Math.max(0, Number(query.get("smooth")) || 0)),
      log: query.get("log") === "1",
      events: query.get("events") !== "0",
      outliers: query.get("outliers") !== "0",
      hidden: new Set(query.getAll("hide")),
      range: query.has("from") && range.every(Number.isFinite) ? range : null,
    };
    const wanted = query.getAll("metric");
    this.chosen = wanted.length ? wanted : null;
    this.tall = query.get("tall");
  }

  parameters() {
    const { axis, smooth, log, events, outliers, hidden, range } = this.options;
    return {
      metric: this.chosen ?? [],
      axis: axis === "time" ? "time" : "",
      smooth: smooth || "",
      log: log ? "1" : "",
      events: events ? "" : "0",
      outliers: outliers ? "" : "0",
      hide: [...hidden],
      from: range ? Math.floor(range[0] * 1000) / 1000 : "",
      to: range ? Math.ceil(range[1] * 1000) / 1000 : "",
      tall: this.tall ?? "",
    };
  }

  shownMetrics() {
    if (this.chosen) return this.chosen.filter((metric) => this.metrics.includes(metric));
    const telling = this.metrics.filter(tells);
    return inOrder(telling.length ? telling : this.metrics).slice(0, MOST_AT_FIRST);
  }

  build(root) {
    this.legend = new Legend(this.palette, this.options.hidden, () => {
      this.note();
      this.redraw();
    });
    this.grid = el("div", { class: "grid" });
    this.watch = new IntersectionObserver((entries) => this.seen(entries), { rootMargin: "300px" });
    this.toolbar = new Toolbar(this);
    root.append(this.toolbar.bar, this.legend.box, this.grid);
    this.onTheme = () => this.redraw();
    this.onWhole = () => this.zoom(null);
    document.addEventListener("lens:theme", this.onTheme);
    document.addEventListener("lens:whole", this.onWhole);
    this.queue = new Set(); // cards that wait for the chart library, one at a time, so that the page stays quick
    this.arrange();
  }

  choose(metric, isWanted) {
    const shown = this.shownMetrics().filter((other) => other !== metric);
    this.chosen = isWanted ? [...shown, metric] : shown;
    this.note();
    this.arrange();
  }

  // Points that stand for several are smoothed by the server, over all of them.
  smooth(weight) {
    this.options.smooth = weight;
    this.note();
    this.smoothSoon ??= throttle(150, () => this.smoothNow().catch(this.say));
    this.smoothSoon();
  }

  async smoothNow() {
    const weight = this.options.smooth;
    if (!(await this.points.smoothWith(weight)) || this.signal.aborted) return;
    this.fine = new Map();
    if (this.options.range) await this.fetchFine();
    this.redraw();
  }

  turnAxis(axis) {
    this.options.axis = axis;
    this.zoom(null);
  }

  arrange() {
    const shown = this.shownMetrics();
    this.toolbar.count(shown.length, this.metrics.length);
    for (const [metric, card] of this.cards) {
      if (shown.includes(metric)) continue;
      this.watch.unobserve(card.place);
      forget(card.place);
      this.cards.delete(metric);
    }
    const cards = shown.map((metric) => this.cards.get(metric) ?? this.card(metric));
    this.grid.replaceChildren(...(cards.length ? cards.map((card) => card.box) : [empty("No chart is chosen", "Choose metrics above.")]));
  }

  card(metric) {
    const place = el("div", { class: "plot" });
    const last = el("span", { class: "last", elementtiming: "lens-chart" });
    const hint = el("span", { class: "quiet hint" });
    const size = button("⤢", () => this.enlarge(metric), { class: "plain", "aria-label": `Larger or smaller: ${metric.slice(0, 80)}` });
    const box = el("section", { class: "card", tabindex: 0, "aria-label": metric.slice(0, 100) }, el("h2", {}, name(metric, 80), hint, last, size), place);
    const card = { metric, place, box, last, note: hint, visible: false };
    box.classList.toggle("tall", this.tall === metric);
    place.card = card;
    box.addEventListener("keydown", (event) => this.steer(card, event));
    place.addEventListener("pointerenter", () => (this.active = card)); // its turn is next
    this.cards.set(metric, card);
    this.watch.observe(place);
    return card;
  }

  // What a pointer does by dragging, for the chart that has the focus.
  steer(card, event) {
    if (event.target !== card.box || event.ctrlKey || event.metaKey || event.altKey) return;
    const whole = extentOf(this.points.metrics.get(card.metric)?.values() ?? [], this.options.axis);
    const range = whole ? steered(this.options.range, whole, event.key) : undefined;
    if (range === undefined) return;
    event.preventDefault();
    this.active = card;
    this.zoom(range);
  }

  enlarge(metric) {
    this.tall = this.tall === metric ? null : metric;
    for (const card of this.cards.values()) card.box.classList.toggle("tall", card.metric === this.tall);
    this.note();
    this.redraw();
  }

  seen(entries) {
    for (const entry of entries) {
      const card = entry.target.card;
      const came = entry.isIntersecting && !card.visible;
      card.visible = entry.isIntersecting;
      if (came) this.look(card).catch(this.say);
    }
    if (this.options.range) this.refine();
  }

  visible() {
    return [...this.cards.values()].filter((card) => card.visible);
  }

  redraw() {
    this.visible().forEach((card) => this.wait(card));
  }

  // First its lines, at once; then the whole chart when it is its turn.
  async look(card) {
    const series = await this.points.load(card.metric);
    if (this.signal.aborted || !card.place.isConnected) return;
    if (!card.place.data) {
      preview(card.place, traces(series, this.fine.get(card.metric), this.options, this.palette), this.options);
      card.box.dataset.seen = "1";
      this.legend.paint();
    }
    this.tell(card, series);
    this.wait(card);
  }

  wait(card) {
    this.queue.add(card);
    this.pumping ??= this.pump().catch(this.say).finally(() => (this.pumping = null));
  }

  async pump() {
    await this.firstLines();
    while (this.queue.size && !this.signal.aborted) {
      const card = this.queue.has(this.active) ? this.active : [...this.queue].find((one) => one.visible);
      if (!card) {
        this.queue.clear();
        return;
      }
      this.queue.delete(card);
      await this.paint(card);
      await pause();
    }
  }

  // Starting the chart library takes a while, in which nothing else is painted: what is on the screen comes first.
  async firstLines() {
    const latest = performance.now() + 2000;
    do await nextPaint();
    while (performance.now() < latest && this.visible().some((card) => !card.box.dataset.seen));
  }

  async paint(card) {
    const series = await this.points.load(card.metric);
    if (this.signal.aborted || !card.place.isConnected) return;
    const found = traces(series, this.fine.get(card.metric), this.options, this.palette);
    const options = { ...this.options, tall: this.tall === card.metric };
    card.note.textContent = this.options.log ? withoutLogarithm(series) : "";
    const zoomed = (range) => {
      this.active = card;
      this.zoom(range);
    };
    await draw(card.place, found, options, this.events, zoomed);
    this.tell(card, series);
    this.legend.paint();
    card.box.dataset.drawn = found.reduce((sum, trace) => sum + trace.x.length, 0);
  }

  // The newest value; `elementtiming` has the browser note when it was painted, which is when the lines were, too.
  tell(card, series) {
    const newest = this.uids.length === 1 ? latest(series) : null; // of several nobody could tell whose it is
    if (newest === null) return;
    card.last.replaceChildren(figure(newest, card.metric));
  }

  zoom(range) {
    this.options.range = range;
    this.fine = new Map();
    this.toolbar.reset.hidden = !range;
    this.note();
    performance.mark("lens:zoom");
    if (range) this.fetchFine().catch(this.say);
    this.redraw();
  }

  // Ask for the finer points of what is on the screen, between the times at which the range was logged.
  refine() {
    this.refineSoon ??= throttle(60, () => this.fetchFine().catch(this.say));
    this.refineSoon();
  }

  async fetchFine() {
    const range = this.options.range;
    const cards = this.visible().filter((card) => !this.fine.has(card.metric));
    if (!range || !cards.length) return;
    const times = timesOf(cards.map((card) => this.points.metrics.get(card.metric)), this.options.axis, range);
    if (!times) return;
    const found = await this.points.between(cards.map((card) => card.metric), ...times);
    if (this.options.range !== range) return;
    for (const [metric, series] of found) this.fine.set(metric, series);
    if (cards.includes(this.active)) {
      await this.paint(this.active);
      await nextPaint();
      performance.mark("lens:finer");
    }
    for (const card of cards) if (card !== this.active) this.wait(card);
  }

  // New data may be there; after a break everything is asked for again, as rows of the past may have come too.
  async follow(afterBreak = false) {
    const grown = new Set(await (afterBreak ? this.points.anew() : this.points.follow()));
    for (const card of this.visible()) if (grown.has(card.metric)) this.wait(card);
  }

  addMetrics(metrics) {
    if (metrics.length === this.metrics.length) return;
    this.metrics = metrics;
    this.arrange();
  }

  setRuns(runs) {
    if (this.palette.settle(runs)) this.redraw();
  }

  setEvents(events) {
    const isNew = JSON.stringify(events) !== JSON.stringify(this.events);
    this.events = events;
    if (isNew) this.redraw();
  }

  note() {
    this.changed(this.parameters());
  }

  end() {
    this.watch.disconnect();
    document.removeEventListener("lens:theme", this.onTheme);
    document.removeEventListener("lens:whole", this.onWhole);
    for (const card of this.cards.values()) forget(card.place);
  }
}

function pause() {
  return new Promise((resolve) => setTimeout(resolve, 0));
}
