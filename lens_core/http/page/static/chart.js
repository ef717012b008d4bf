// One chart on uPlot's canvas: lines with bands, marks of events, one cursor and one range of x with its neighbours.

import { leftOf, xTicks, yTicks } from "./axes.js";
import { zoomedAt } from "./gridtools.js";
import { lonely } from "./lines.js";
import { ALARM, ALARM_SOFT, isOutline, lookOf, symbolPath } from "./marks.js";
import { isDark, shade, STROKES } from "./palette.js";
import { Tooltip } from "./tooltip.js";

let library = null;

export function loadLibrary() {
  library ??= import("./uplot.js").then(
    (module) => module.default,
    () => {
      library = null;
      throw new Error("The chart library could not be loaded: it is put beside the page's files when Lens is installed (pip install).");
    },
  );
  return library;
}

const FONT = "11px system-ui, sans-serif";
const BOTTOM = 26;
const LINE_WIDTH = 1.6;
const MARK_SIZE = 8;
const LEAST_DRAG = 4;
const LARGE = 2 ** 1000;
const WHEEL = 1.15;
// So many lines have a dot under the cursor.
const MOST_DOTS = 6;
// All charts of a view point at the same place.
const SYNC = { key: "lens", scales: ["x", null], setSeries: false, filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } };

const inked = (look) => shade(look.colour, isDark());
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

export class Chart {
  // zoomed(range or null): somebody wants another range; pointed(x or null): where the cursor of all charts is
  constructor(uPlot, place, { zoomed, pointed }) {
    Object.assign(this, { uPlot, place, zoomed, pointed });
    this.tooltip = new Tooltip(place);
    this.sized = new ResizeObserver(() => this.resize());
    this.sized.observe(place);
  }

  // picture: {lines, series, columns, specials, marks, spans, axis, log, logX, range, whole, heights, isTall, isSketch, name}
  show(picture) {
    const before = this.picture;
    this.picture = picture;
    this.yMarks = picture.heights ? yTicks(picture.heights, picture.isTall, picture.log) : [];
    const factor = factorOf(picture);
    const isNew = before?.columns !== picture.columns || before.log !== picture.log || this.factor !== factor;
    this.factor = factor;
    if (isNew) {
      const isSame = factor === 1 && !picture.log;
      this.columns = isSame ? picture.columns : picture.columns.map((column, place) => (place ? column.map((value) => this.drawn(value)) : column));
      this.dots = []; // by series: the places of dots beside its line
    }
    const shape = shapeOf(picture);
    if (this.shape !== shape) this.build(shape);
    else if (isNew) this.u.setData(this.columns, false);
    this.sketch(picture.isSketch);
    this.scale();
  }

  // Where the library draws a value: its scale of y is linear, of exponents where the axis is logarithmic.
  drawn(value) {
    if (typeof value !== "number") return value;
    return this.picture.log ? Math.log10(value) : value * this.factor;
  }

  // The theme has changed.
  restyle() {
    this.shape = null;
  }

  build(shape) {
    this.u?.destroy();
    this.shape = shape;
    this.u = new this.uPlot(this.options(), this.columns, this.place);
    this.listen(this.u.over);
  }

  // Without a GPU it takes a fourth of the time.
  sketch(isSketch) {
    this.picture.series.forEach(({ role }, place) => {
      const one = this.u.series[place + 1];
      if (role === "y") one.width = isSketch ? 1 / devicePixelRatio : LINE_WIDTH;
      else if (role !== "faint") one.show = !isSketch;
    });
  }

  scale() {
    const { range, heights } = this.picture;
    const [min, max] = heights?.map((end) => end * this.factor) ?? [0, 1];
    this.u.batch(() => {
      this.u.setScale("x", { min: range[0], max: range[1] });
      this.u.setScale("y", { min, max });
    });
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.place;
    if (this.u && width && height && (width !== this.u.width || height !== this.u.height)) this.u.setSize({ width, height });
  }

  options() {
    const scale = (isLog) => ({ time: false, auto: false, distr: isLog ? 3 : 1, range: (_, min, max) => [min, max] });
    return {
      width: this.place.clientWidth,
      height: this.place.clientHeight,
      padding: [8, 16, 0, 0],
      legend: { show: false },
      scales: { x: scale(this.picture.logX), y: scale(false) },
      axes: this.axes(),
      series: [{}, ...this.picture.series.map((one) => this.series(one))],
      bands: this.bands(),
      focus: { alpha: 1 },
      cursor: {
        sync: SYNC,
        y: false,
        drag: { x: true, y: false, setScale: false },
        points: { show: (_, place) => this.dot(place), size: 7 },
        bind: { dblclick: () => () => this.zoomed(null) },
      },
      hooks: {
        drawAxes: [(u) => this.drawSpans(u)],
        draw: [(u) => this.drawMarks(u)],
        setSelect: [(u) => this.select(u)],
        setCursor: [(u) => this.point(u)],
      },
    };
  }

  axes() {
    const [line, quiet] = [colour("line"), colour("quiet")];
    // Where marks stand is decided here: the library's own steps, without which it draws no axis, end at 1e32.
    const base = { incrs: [5], space: 0, stroke: quiet, font: FONT, grid: { stroke: line, width: 1 }, ticks: { show: false }, border: { show: false }, gap: 4, filter: (_, splits) => splits };
    const pixels = (u) => u.bbox.width / devicePixelRatio;
    return [
      { ...base, size: BOTTOM, splits: (u) => (this.xMarks = xTicks(this.picture.range, pixels(u), this.picture)).map(([at]) => at), values: () => this.xMarks.map(([, text]) => text) },
      { ...base, size: () => leftOf(this.yMarks), splits: () => this.yMarks.map(([at]) => at * this.factor), values: () => this.yMarks.map(([, text]) => text) },
    ];
  }

  series({ line, role }) {
    const { look, isFew, isScattered } = line;
    const strokes = { low: { width: 0 }, high: { width: 0 }, faint: { width: 1, alpha: 0.35 }, y: { width: LINE_WIDTH, dash: STROKES[look.dash] } };
    const hasDots = role === "y" && (isFew || isScattered);
    return {
      stroke: inked(look),
      ...strokes[role],
      ...(isScattered ? { paths: () => null } : {}),
      points: { show: hasDots, filter: (_, place, show) => (show ? null : this.dotsOf(place)), size: 4, width: 0, fill: inked(look) },
    };
  }

  dotsOf(place) {
    const dots = (this.dots[place] ??= lonely(this.columns[place]));
    return dots.length ? dots : null;
  }

  bands() {
    const places = new Map(this.picture.series.map(({ line, role }, place) => [`${line.key} ${role}`, place + 1]));
    const banded = this.picture.lines.filter((line) => line.high);
    return banded.map(({ key, look }) => ({ series: [places.get(`${key} high`), places.get(`${key} low`)], fill: `${inked(look)}44` }));
  }

  dot(place) {
    const { series, lines } = this.picture;
    if (lines.length > MOST_DOTS || series[place - 1]?.role !== "y") return null;
    const dot = document.createElement("div");
    dot.style.cssText = `width: 7px; height: 7px; margin: -3.5px; background: ${inked(series[place - 1].line.look)}`;
    return dot;
  }

  drawSpans(u) {
    clipped(u, (pen) => {
      for (const { from, to } of this.picture.spans) {
        const [left, right] = [from, to].map((x) => Math.round(u.valToPos(x, "x", true)));
        pen.fillStyle = ALARM_SOFT;
        pen.strokeStyle = ALARM;
        pen.lineWidth = devicePixelRatio;
        pen.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
        pen.fillRect(left, u.bbox.top, right - left, u.bbox.height);
        pen.stroke(new Path2D(`M${left} ${u.bbox.top}v${u.bbox.height}M${right} ${u.bbox.top}v${u.bbox.height}`));
      }
    });
  }

  // Events at the lower edge, values that are no number at the upper one.
  drawMarks(u) {
    const size = MARK_SIZE * devicePixelRatio;
    const draw = (pen, symbol, stroke, x, y) => {
      const path = new Path2D(symbolPath(symbol, u.valToPos(x, "x", true), y, size));
      pen.strokeStyle = pen.fillStyle = stroke;
      pen.lineWidth = 1.5 * devicePixelRatio;
      if (isOutline(symbol)) pen.stroke(path);
      else pen.fill(path);
    };
    clipped(u, (pen) => {
      for (const { type, x } of this.picture.marks) draw(pen, ...lookOf(type), x, u.bbox.top + u.bbox.height - size);
      for (const { x } of this.picture.specials) draw(pen, "x", ALARM, x, u.bbox.top + size);
    }, size);
  }

  select(u) {
    const { left, width } = u.select;
    if (width < LEAST_DRAG) return;
    const range = [left, left + width].map((pixel) => u.posToVal(pixel, "x"));
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.zoomed(range);
  }

  point(u) {
    const x = u.cursor.left >= 0 ? u.posToVal(u.cursor.left, "x") : null;
    this.pointed(x);
    if (x === null || !this.isUnderPointer) this.tooltip.hide();
    else this.tooltip.show(u, this.picture, x, (value) => this.drawn(value));
  }

  listen(over) {
    over.addEventListener("pointerenter", () => (this.isUnderPointer = true));
    over.addEventListener("pointerleave", () => {
      this.isUnderPointer = false;
      this.tooltip.hide();
    });
    over.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const share = event.offsetX / over.clientWidth;
      const { range, whole } = this.picture;
      this.zoomed(zoomedAt(range, whole, share, event.deltaY > 0 ? WHEEL : 1 / WHEEL));
    }, { passive: false });
    this.listenToTouch(over);
  }

  // A finger on a chart scrolls the page, unless the chart was made large (`touch-action` in style.css).
  listenToTouch(over) {
    let began = null;
    const place = (event) => event.clientX - over.getBoundingClientRect().left;
    const isZooming = (event) => event.pointerType === "touch" && this.picture.isTall;
    over.addEventListener("pointerdown", (event) => isZooming(event) && (began = place(event)));
    over.addEventListener("pointermove", (event) => {
      if (began === null || !isZooming(event)) return;
      const ends = [began, place(event)].sort((one, other) => one - other);
      this.u.setSelect({ left: ends[0], width: ends[1] - ends[0], top: 0, height: over.clientHeight }, false);
    });
    over.addEventListener("pointerup", (event) => {
      if (began !== null && isZooming(event)) this.select(this.u);
      began = null;
    });
    over.addEventListener("pointercancel", () => (began = null));
  }

  destroy() {
    this.sized.disconnect();
    this.u?.destroy();
    this.tooltip.remove();
  }
}

// The library draws no scale that is narrower than 1e-16 or wider than the largest number: what is so small or so large
// is multiplied by a power of two, exactly.
function factorOf({ heights, log }) {
  if (!heights || log) return 1;
  const [low, high] = heights;
  const size = Math.max(Math.abs(low), Math.abs(high));
  return high - low > 1e-9 && size < LARGE ? 1 : 2 ** Math.max(-1000, Math.min(1023, -Math.floor(Math.log2(size))));
}

// Charts of the same shape differ in numbers only.
function shapeOf({ series, logX }) {
  const curves = series.map(({ line, role }) => [line.key, role, line.look.colour, line.look.dash, line.isFew, line.isScattered]);
  return JSON.stringify([curves, logX]);
}

// beside: by how much more than the chart's width.
function clipped(u, draw, beside = 0) {
  const { left, top, width, height } = u.bbox;
  u.ctx.save();
  u.ctx.beginPath();
  u.ctx.rect(left - beside, top, width + 2 * beside, height);
  u.ctx.clip();
  u.ctx.setLineDash([]);
  draw(u.ctx);
  u.ctx.restore();
}
