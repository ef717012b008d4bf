// A chart as a picture to keep: SVG with title, axes and legend; PNG is made of it.

import { leftOf, xTicks, yTicks } from "./axes.js";
import { svg } from "./dom.js";
import { drawn, lonely, metricOf } from "./lines.js";
import { ALARM, ALARM_SOFT, isOutline, lookOf, symbolPath } from "./marks.js";
import { isDark, shade, STROKES } from "./palette.js";

const WIDTH = 900;
const HEIGHT = 420;
const TOP = 50;
const RIGHT = 24;
const BELOW = 56;
const LEGEND_ROW = 20;
const FOOT = 8;
const LETTER = 6.6;
const SCALE = 2; // pixels of a PNG
const MARK_SIZE = 8;
const AXES = { iteration: "iteration", time: "", relative: "time since the run began" };

export async function savePicture(picture, kind) {
  const style = getComputedStyle(document.documentElement);
  const lines = picture.lines.map((line) => ({ ...line, look: { ...line.look, colour: shade(line.look.colour, isDark()) } }));
  const drawn = drawPicture({ ...picture, lines }, (name) => style.getPropertyValue(`--${name}`).trim());
  const text = new XMLSerializer().serializeToString(drawn);
  const blob = new Blob([text], { type: "image/svg+xml" });
  const link = document.createElement("a");
  link.download = `${picture.title.replace(/[^\w.-]+/g, "-").slice(0, 80)}.${kind}`;
  link.href = URL.createObjectURL(kind === "svg" ? blob : await pixelsOf(blob, drawn));
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

async function pixelsOf(blob, drawn) {
  const image = new Image();
  const address = URL.createObjectURL(blob);
  image.src = address;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = Number(drawn.getAttribute("width")) * SCALE;
  canvas.height = Number(drawn.getAttribute("height")) * SCALE;
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(address);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

function drawPicture(picture, colour) {
  const legend = legendRows(picture.lines.map((line) => line.look));
  const height = HEIGHT + legend.length * LEGEND_ROW + FOOT;
  const yMarks = picture.heights ? yTicks(picture.heights, true, picture.log) : [];
  const frame = frameOf(picture, leftOf(yMarks));
  return svg(
    "svg",
    { xmlns: "http://www.w3.org/2000/svg", width: WIDTH, height, viewBox: `0 0 ${WIDTH} ${height}`, "font-family": "system-ui, sans-serif", "font-size": 12 },
    svg("rect", { width: WIDTH, height, fill: colour("page") }),
    svg("text", { x: frame.left, y: 22, "font-size": 16, "font-weight": 600, fill: colour("text") }, picture.title.slice(0, 100)),
    svg("text", { x: frame.left, y: 39, fill: colour("quiet") }, picture.names.join(" · ").slice(0, 130)),
    axes(picture, frame, yMarks, colour),
    svg("clipPath", { id: "frame" }, svg("rect", { x: frame.left, y: frame.top, width: frame.right - frame.left, height: frame.bottom - frame.top })),
    svg("g", { "clip-path": "url(#frame)" }, spans(picture, frame), picture.lines.map((line) => curves(line, frame)), symbols(picture, frame)),
    legend.map((row, place) => row.map(([look, x]) => entry(look, frame.left + x, HEIGHT + FOOT + place * LEGEND_ROW, colour))),
  );
}

function frameOf({ range, heights, log, logX }, left) {
  const frame = { left, right: WIDTH - RIGHT, top: TOP, bottom: HEIGHT - BELOW };
  const [from, to] = range.map(logX ? Math.log10 : Number);
  const [low, high] = heights ?? [0, 1];
  const share = (at) => (at / 2 - low / 2) / (high / 2 - low / 2 || 1);
  frame.x = (value) => frame.left + (((logX ? Math.log10(value) : value) - from) / (to - from || 1)) * (frame.right - frame.left);
  frame.ofHeight = (at) => frame.bottom - share(at) * (frame.bottom - frame.top);
  frame.y = (value) => frame.ofHeight(log ? Math.log10(value) : value);
  return frame;
}

function axes(picture, frame, yMarks, colour) {
  const text = { fill: colour("quiet"), "font-size": 11 };
  const line = { stroke: colour("line") };
  const title = AXES[picture.axis] ?? metricOf(picture.axis);
  return [
    xTicks(picture.range, frame.right - frame.left, picture).map(([at, words]) => [
      svg("line", { x1: frame.x(at), x2: frame.x(at), y1: frame.top, y2: frame.bottom, ...line }),
      svg("text", { x: frame.x(at), y: frame.bottom + 16, "text-anchor": "middle", ...text }, words),
    ]),
    yMarks.map(([at, words]) => [
      svg("line", { x1: frame.left, x2: frame.right, y1: frame.ofHeight(at), y2: frame.ofHeight(at), ...line }),
      svg("text", { x: frame.left - 6, y: frame.ofHeight(at) + 4, "text-anchor": "end", ...text }, words),
    ]),
    svg("text", { x: (frame.left + frame.right) / 2, y: frame.bottom + 33, "text-anchor": "middle", ...text }, title.slice(0, 100)),
  ];
}

function spans({ spans: all }, frame) {
  return all.map(({ from, to }) =>
    svg("rect", { x: frame.x(from), y: frame.top, width: frame.x(to) - frame.x(from), height: frame.bottom - frame.top, fill: ALARM_SOFT, stroke: ALARM, "stroke-dasharray": "2 3" }));
}

function curves(line, frame) {
  const { look } = line;
  const stroke = { fill: "none", stroke: look.colour, "stroke-linejoin": "round" };
  const path = (values) => pathOf(line.x, values, frame);
  const dotted = line.isFew || line.isScattered ? line.x.map((_, place) => place).filter((place) => line.y[place] !== null) : lonely(line.y);
  const dots = dotted.map((place) => svg("circle", { cx: frame.x(line.x[place]), cy: frame.y(line.y[place]), r: 2, fill: look.colour }));
  return [
    line.high ? svg("path", { d: bandOf(line, frame), fill: look.colour, "fill-opacity": 0.27 }) : null,
    line.faint ? svg("path", { d: path(drawn(line, "faint")), ...stroke, "stroke-opacity": 0.35 }) : null,
    line.isScattered ? null : svg("path", { d: path(drawn(line, "y")), ...stroke, "stroke-width": 1.8, "stroke-dasharray": STROKES[look.dash].join(" ") || null }),
    dots,
  ];
}

const at = (x, y) => `${x.toFixed(1)} ${y.toFixed(1)}`;

// A line with a gap where a value is none.
function pathOf(xs, values, frame) {
  let isDown = false;
  return values.map((value, place) => {
    if (value === null || value === undefined) {
      isDown = false;
      return "";
    }
    const step = `${isDown ? "L" : "M"}${at(frame.x(xs[place]), frame.y(value))}`;
    isDown = true;
    return step;
  }).join("");
}

function bandOf({ x, low, high }, frame) {
  const known = x.map((_, place) => place).filter((place) => low[place] !== null && high[place] !== null);
  const edge = (values) => (place) => at(frame.x(x[place]), frame.y(values[place]));
  return known.length ? `M${[...known.map(edge(high)), ...known.reverse().map(edge(low))].join("L")}Z` : "";
}

function symbols({ marks, specials }, frame) {
  const symbol = (kind, colour, x, y) => svg("path", { d: symbolPath(kind, frame.x(x), y, MARK_SIZE), stroke: colour, "stroke-width": 1.5, fill: isOutline(kind) ? "none" : colour });
  return [...marks.map(({ type, x }) => symbol(...lookOf(type), x, frame.bottom - MARK_SIZE)), ...specials.map(({ x }) => symbol("x", ALARM, x, frame.top + MARK_SIZE))];
}

// Which entries stand in which row of the legend, and where.
function legendRows(looks) {
  const rows = [];
  let x = Infinity;
  for (const look of looks) {
    const width = 40 + LETTER * textOf(look).length;
    if (x + width > WIDTH - 100) {
      rows.push([]);
      x = 0;
    }
    rows.at(-1).push([look, x]);
    x += width;
  }
  return rows;
}

const textOf = (look) => look.label.slice(0, 60);

function entry(look, x, y, colour) {
  const stroke = { x1: x, x2: x + 22, y1: y - 4, y2: y - 4, stroke: look.colour, "stroke-width": 3, "stroke-dasharray": STROKES[look.dash].join(" ") || null };
  return [svg("line", stroke), svg("text", { x: x + 28, y, fill: colour("text") }, textOf(look))];
}
