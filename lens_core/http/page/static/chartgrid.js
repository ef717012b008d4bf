// The charts of one workload or of several: which metrics, how they are drawn, one range of x for all of them.

import { optionsFrom, parametersOf, rangeOn } from "./state.js";
import { heights, widened } from "./axes.js";
import { Card } from "./card.js";
import { loadLibrary } from "./chart.js";
import { button, el, setText, throttle } from "./dom.js";
import { Frames, Movement } from "./frames.js";
import { timesOf } from "./gridtools.js";
import { beginsOf, hasAttempts, hasOtherRanks, joinAttempts, lowestRanks, rankGroups } from "./joining.js";
import { aligned, extentOf, leftOutText, linesOf, metricOf, specialsOf } from "./lines.js";
import { alarmSpans, beginMarks, eventMarks } from "./marks.js";
import { Legend, Palette } from "./palette.js";
import { empty } from "./pieces.js";
import { Points } from "./points.js";
import { sectionsOf, wantedMetrics } from "./sections.js";
import { Toolbar } from "./toolbar.js";

const NOTE_MS = 200; // browsers ignore an address that changes more often

export class ChartGrid {
  // names: uid → name; metrics: all names; events: of the workload; changed(parameters): the address notes them
  constructor(root, { names, metrics, query, signal, say, changed }) {
    Object.assign(this, { names, metrics, signal, say, changed });
    this.uids = [...names.keys()];
    this.events = [];
    this.palette = new Palette(names);
    this.fine = new Map(); // metric → {range, times, series} of the zoom
    this.cards = new Map();
    this.frames = new Frames();
    this.frame = null;
    this.movement = new Movement(() => this.stand());
    this.whole = null; // from where to where x reaches
    this.options = optionsFrom(query);
    this.runs = [];
    this.groups = new Map(); // runs of ranks: see joining.js
    this.isJoined = joins(this.options);
    this.points = new Points(this.uids, signal, say, { weight: this.options.smooth, percentiles: !this.options.outliers });
    this.library = loadLibrary();
    this.library.catch(say);
    this.build(root);
  }

  shownMetrics() {
    return this.sections.filter((section) => section.isOpen).flatMap((section) => section.metrics);
  }

  // The chosen metrics, whatever the filter is.
  wanted() {
    return new Set(wantedMetrics(this.metrics, { ...this.options, filter: "" }));
  }

  build(root) {
    this.legend = new Legend(this.options.hidden, () => this.turn({}));
    this.place = el("div", { class: "sections" });
    this.watch = new IntersectionObserver((entries) => this.seen(entries), { rootMargin: "300px" });
    this.toolbar = new Toolbar(this);
    this.leftOut = el("p", { class: "quiet left-out" });
    root.append(this.toolbar.bar, this.leftOut, this.legend.box, this.place);
    this.onTheme = () => {
      for (const card of this.cards.values()) card.chart?.restyle();
      this.redraw();
    };
    this.onWhole = () => this.zoom(null);
    document.addEventListener("lens:theme", this.onTheme);
    document.addEventListener("lens:whole", this.onWhole);
    this.arrange();
  }

  // Other options for what is drawn.
  turn(options) {
    Object.assign(this.options, options);
    this.joinOrPart();
    if (this.options.range !== rangeOn(this.options)) this.zoom(null);
    this.note();
    this.redraw(true);
    if (options.outliers !== undefined) this.turnOutliers().catch(this.say);
  }

  async turnOutliers() {
    await this.points.wantPercentiles(!this.options.outliers);
    if (this.signal.aborted || this.options.outliers) return;
    await this.refetchFine();
  }

  // Joined attempts have one colour, parted ones have one each.
  joinOrPart() {
    if (this.isJoined === joins(this.options)) return;
    this.isJoined = joins(this.options);
    this.options.hidden.clear();
    this.palette = new Palette(this.names);
    this.palette.settle(this.paletteRuns());
  }

  paletteRuns() {
    return this.isJoined ? this.runs.map((run) => ({ ...run, attempt: null })) : this.runs;
  }

  // The curves of a metric as they are drawn. whole: those of the whole run, where these are a part of it.
  combined(series, whole = series) {
    const chosen = this.ofShownRanks(series);
    return this.isJoined ? joinAttempts(chosen, beginsOf(whole)) : chosen;
  }

  ofShownRanks(series) {
    return this.options.ranks ? series : lowestRanks(series, this.groups);
  }

  // Other options for which charts there are.
  rearrange(options) {
    Object.assign(this.options, options);
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
    if (!(await this.points.smoothWith(this.options.smooth)) || this.signal.aborted) return;
    await this.refetchFine();
  }

  async refetchFine() {
    this.fine = new Map();
    if (this.options.range) await this.fetchFine();
    this.redraw(true);
  }

  // A range of one axis is none of another.
  async turnAxis(axis) {
    const metric = metricOf(axis);
    if (metric !== null) await this.points.load(metric);
    this.fine = new Map();
    this.turn({ axis, range: null, logX: this.options.logX && axis !== "time" });
    this.toolbar.paint();
  }

  arrange() {
    this.sections = sectionsOf(this.metrics, this.options);
    this.looks = null; // of the lines of all charts that there are
    const shown = new Set(this.shownMetrics());
    this.toolbar.paint();
    for (const [metric, card] of this.cards) {
      if (shown.has(metric)) continue;
      this.watch.unobserve(card.place);
      card.hide();
      this.cards.delete(metric);
    }
    const places = this.sections.map((section) => this.section(section));
    this.place.replaceChildren(...(places.length ? places : [empty("No chart is chosen", "Choose metrics above, or shorten the filter.")]));
  }

  section({ title, metrics, isOpen }) {
    const isOnly = this.sections.length === 1;
    const shown = title || "Charts";
    const fold = button("", () => this.fold(title, isOpen), { class: "plain fold", "aria-expanded": String(isOpen) });
    fold.append(`${isOpen ? "▾" : "▸"} ${shown} `, el("small", { class: "quiet" }, String(metrics.length)));
    const heading = isOnly && isOpen ? el("h2", { class: "hidden" }, shown) : el("h2", { class: "fold" }, fold);
    return el("section", { "aria-label": shown }, heading, isOpen ? el("div", { class: "grid" }, metrics.map((metric) => this.card(metric).box)) : "");
  }

  fold(title, wasOpen) {
    const { open, closed } = this.options;
    if (wasOpen) closed.add(title) && open.delete(title);
    else open.add(title) && closed.delete(title);
    this.rearrange({});
    const folds = [...this.place.querySelectorAll("button.fold")];
    folds[this.sections.findIndex((section) => section.title === title)]?.focus();
  }

  card(metric) {
    let card = this.cards.get(metric);
    if (!card) {
      card = new Card(this, metric);
      this.cards.set(metric, card);
      this.watch.observe(card.place);
    }
    return card;
  }

  choose(metrics, isWanted) {
    const shown = this.wanted();
    for (const metric of metrics) shown[isWanted ? "add" : "delete"](metric);
    this.rearrange({ chosen: shown.size === this.metrics.length ? ["*"] : shown.size ? [...shown] : [""] });
  }

  pin(metric) {
    const { pinned } = this.options;
    if (!pinned.delete(metric)) pinned.add(metric);
    this.rearrange({});
    const card = this.cards.get(metric);
    card?.paintState();
    card?.pin.focus();
  }

  enlarge(metric) {
    this.options.tall = this.options.tall === metric ? null : metric;
    for (const card of this.cards.values()) card.paintState();
    this.note();
    this.redraw();
  }

  seen(entries) {
    for (const { target, isIntersecting } of entries) {
      const { card } = target;
      const came = isIntersecting && !card.isVisible;
      card.isVisible = isIntersecting;
      if (came) this.look(card).catch(this.say);
      else if (!isIntersecting) card.hide();
    }
    if (this.options.range) this.refine();
  }

  visible() {
    return [...this.cards.values()].filter((card) => card.isVisible);
  }

  async look(card) {
    const axis = metricOf(this.options.axis);
    const [series] = await Promise.all([this.points.load(card.metric), axis === null ? null : this.points.load(axis)]);
    if (this.signal.aborted || !card.place.isConnected) return;
    card.series = series;
    this.redraw();
  }

  // All charts on the screen in the next frame; isStale: their lines are made anew.
  redraw(isStale = false) {
    if (isStale) for (const card of this.cards.values()) card.isStale = true;
    this.isRest = false;
    this.requestFrame();
  }

  requestFrame() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.paint(this.isRest).catch(this.say);
    });
  }

  // isRest: only the charts that the frame before had no time for.
  async paint(isRest = false) {
    const uPlot = await this.library;
    if (this.signal.aborted) return;
    const { options, palette } = this;
    const cards = this.visible().filter((card) => card.series && card.place.isConnected && card.place.clientWidth);
    const axis = this.points.metrics.get(metricOf(options.axis));
    const along = axis && this.combined(axis);
    const fresh = new Set(cards.filter((card) => card.isStale || !card.chart));
    for (const card of cards) {
      card.series = this.points.metrics.get(card.metric) ?? card.series;
      if (!card.isStale) continue;
      const fine = this.fine.get(card.metric);
      const finer = fine && { ...fine, series: this.combined(fine.series, card.series) };
      const lines = linesOf(this.combined(card.series), finer, options, palette, along);
      card.hold(lines, aligned(lines));
    }
    if (fresh.size || !this.looks) this.looks = palette.looksOf(this.drawn());
    const drawn = [...this.cards.values()].filter((card) => card.lines && !card.isStale);
    this.whole = widened(extentOf(drawn.flatMap((card) => card.lines)), options);
    const marks = eventMarks(this.events, options);
    const pointed = cards.find((card) => card.box.matches(":hover, :focus"));
    this.frames.change(isRest ? fresh : cards);
    const quality = this.movement.isOn ? this.frames.qualityOf(cards.length) : "whole";
    for (const card of this.frames.inTurn(cards, fresh, pointed, quality)) card.draw(uPlot, this.picture(card, marks, quality === "sketch"));
    if (this.frames.isBehind && this.frame === null) {
      this.isRest = true;
      this.requestFrame();
    }
    this.legend.paint(this.looks);
    setText(this.leftOut, leftOutText(this.points.leftOut.values()));
    if (options.range) this.refine(); // of a range that came with the address, as soon as there are lines
  }

  // What is one line in any chart, whether it is on the screen or not.
  drawn() {
    const all = [...this.cards.values()].filter((card) => card.series).flatMap((card) => [...this.ofShownRanks(card.series).values()]);
    return this.isJoined ? all.map((one) => ({ ...one, attempt: null })) : all;
  }

  picture(card, marks, isSketch) {
    const { axis, log, logX, range, outliers, tall } = this.options;
    const shown = range ?? this.whole;
    return {
      title: card.metric,
      names: [...this.names.values()],
      lines: card.lines,
      ...card.columns,
      specials: specialsOf(card.lines),
      marks: [...marks, ...beginMarks(card.lines, this.options)],
      spans: alarmSpans(marks),
      axis,
      log,
      logX,
      range: shown,
      whole: this.whole,
      heights: heights(card.lines, { log, outliers, range }),
      isTall: tall === card.metric,
      isSketch,
    };
  }

  zoom(range) {
    this.options.range = range;
    if (!range) {
      for (const metric of this.fine.keys()) if (this.cards.has(metric)) this.cards.get(metric).isStale = true;
      this.fine = new Map();
    }
    this.movement.go();
    this.toolbar.paint();
    this.noteSoon ??= throttle(NOTE_MS, () => this.note());
    this.noteSoon();
    performance.mark("lens:zoom");
    if (range) this.refine();
    this.redraw();
  }

  stand() {
    this.redraw();
    if (this.options.range) this.refine();
  }

  // Ask for the finer points of what is on the screen, between the times at which the range was logged.
  refine() {
    if (this.movement.isOn) return;
    this.refineSoon ??= throttle(60, () => this.fetchFine().catch(this.say));
    this.refineSoon();
  }

  async fetchFine() {
    const { range } = this.options;
    const cards = this.visible().filter((card) => card.lines && this.fine.get(card.metric)?.range !== range);
    if (!range || !cards.length) return;
    const times = timesOf(cards.flatMap((card) => card.lines), range);
    if (!times) return;
    const found = await this.points.between(cards.map((card) => card.metric), ...times);
    if (this.options.range !== range) return;
    for (const [metric, series] of found) this.fine.set(metric, { range, times, series });
    for (const card of cards) card.isStale = true;
    await this.paint();
    performance.mark("lens:finer");
  }

  // New data may be there; after a break everything is asked for again, as rows of the past may have come too.
  async follow(afterBreak = false) {
    const grown = new Set(await (afterBreak ? this.points.anew() : this.points.follow()));
    if (!grown.size) return;
    const all = grown.has(metricOf(this.options.axis));
    for (const card of this.cards.values()) if (all || grown.has(card.metric)) card.isStale = true;
    this.redraw();
  }

  addMetrics(metrics) {
    if (metrics.length === this.metrics.length) return;
    this.metrics = metrics;
    this.arrange();
  }

  setRuns(runs) {
    const before = JSON.stringify([this.groups.size, this.runs.length]);
    this.runs = runs;
    this.groups = rankGroups(runs);
    this.toolbar.offer({ joined: hasAttempts(runs), ranks: hasOtherRanks(this.groups) });
    if (this.palette.settle(this.paletteRuns()) || before !== JSON.stringify([this.groups.size, runs.length])) this.redraw(true);
  }

  setEvents(events) {
    const isNew = JSON.stringify(events) !== JSON.stringify(this.events);
    this.events = events;
    if (isNew) this.redraw();
  }

  note() {
    this.changed(parametersOf(this.options));
  }

  end() {
    this.watch.disconnect();
    this.movement.end();
    this.refineSoon?.cancel();
    this.noteSoon?.cancel();
    cancelAnimationFrame(this.frame);
    document.removeEventListener("lens:theme", this.onTheme);
    document.removeEventListener("lens:whole", this.onWhole);
    for (const card of this.cards.values()) card.hide();
  }
}

// Times are those of each attempt: what was done again stands beside what was lost.
const joins = ({ joined, axis }) => joined && axis !== "time" && axis !== "relative";
