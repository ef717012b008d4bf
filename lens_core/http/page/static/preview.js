// A chart at once, on a canvas, before the chart library is there or has its turn: lines, axes, no hover.

import { heights, leftOf, yTicks } from "./axes.js";
import { MARGIN } from "./chart.js";
import { ticks, timeTicks } from "./ticks.js";

const FONT = '11px system-ui, sans-serif';
const DASHES = { dash: [6, 4], dot: [2, 3], dashdot: [6, 3, 2, 3] };

export function preview(place, found, options) {
  const [width, height] = [place.clientWidth, place.clientHeight];
  const lines = found.filter((trace) => trace.yaxis !== "y2");
  const edges = bounds(lines, options);
  if (!width || !height || !edges) return;
  const canvas = document.createElement("canvas");
  const scale = window.devicePixelRatio || 1;
  canvas.width = width * scale;
  canvas.height = height * scale;
  canvas.className = "preview";
  canvas.setAttribute("aria-hidden", "true");
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  const frame = frameOf(width, height, edges);
  drawAxes(pen, frame, edges, options, getComputedStyle(place));
  pen.save();
  pen.beginPath();
  pen.rect(frame.left, frame.top, frame.right - frame.left, frame.bottom - frame.top);
  pen.clip();
  lines.forEach((trace, place) => (trace.fill ? fill(pen, lines[place - 1], trace, options, frame) : line(pen, trace, options, frame)));
  pen.restore();
  place.replaceChildren(canvas);
}

function frameOf(width, height, { left, right, low, high, marks }) {
  const frame = { left: leftOf(marks), right: width - MARGIN.r, top: MARGIN.t, bottom: height - MARGIN.b };
  frame.x = (value) => frame.left + ((value - left) / (right - left || 1)) * (frame.right - frame.left);
  frame.y = (value) => frame.bottom - ((value - low) / (high - low || 1)) * (frame.bottom - frame.top);
  return frame;
}

function drawAxes(pen, frame, { left, right, marks }, options, style) {
  pen.font = FONT;
  pen.strokeStyle = style.getPropertyValue("--line");
  pen.fillStyle = style.getPropertyValue("--quiet");
  pen.lineWidth = 1;
  pen.textAlign = "center";
  for (const [at, text] of options.axis === "time" ? timeTicks(left, right) : ticks(left, right, 4)) {
    stroke(pen, frame.x(at), frame.top, frame.x(at), frame.bottom);
    pen.fillText(text, frame.x(at), frame.bottom + 14);
  }
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (const [at, text] of marks) {
    stroke(pen, frame.left, frame.y(at), frame.right, frame.y(at));
    pen.fillText(text, frame.left - 2, frame.y(at));
  }
}

function stroke(pen, fromX, fromY, toX, toY) {
  pen.beginPath();
  pen.moveTo(Math.round(fromX) + 0.5, Math.round(fromY) + 0.5);
  pen.lineTo(Math.round(toX) + 0.5, Math.round(toY) + 0.5);
  pen.stroke();
}

// Between a trace and the one before it, which has the same places.
function fill(pen, below, trace, options, frame) {
  pen.beginPath();
  trace.x.forEach((at, place) => pen.lineTo(frame.x(Number(at)), frame.y(scaled(trace.y[place], options))));
  for (let place = below.x.length - 1; place >= 0; place -= 1) pen.lineTo(frame.x(Number(below.x[place])), frame.y(scaled(below.y[place], options)));
  pen.fillStyle = trace.fillcolor;
  pen.fill();
}

function line(pen, trace, options, frame) {
  if (trace.line?.width === 0) return;
  pen.beginPath();
  let down = false;
  trace.x.forEach((at, place) => {
    const value = scaled(trace.y[place], options);
    if (value === null) {
      down = false;
      return;
    }
    if (down) pen.lineTo(frame.x(Number(at)), frame.y(value));
    else pen.moveTo(frame.x(Number(at)), frame.y(value));
    down = true;
  });
  pen.globalAlpha = trace.opacity ?? 1;
  pen.strokeStyle = trace.line?.color ?? "#888";
  pen.lineWidth = trace.line?.width ?? 1;
  pen.setLineDash(DASHES[trace.line?.dash] ?? []);
  pen.stroke();
  pen.globalAlpha = 1;
}

function scaled(value, options) {
  if (value === null || value === undefined) return null;
  return options.log ? Math.log10(value) : value;
}

// From where to where the axes reach, and the marks of y; null when there is no number.
function bounds(lines, options) {
  const range = heights(lines, options);
  if (!range) return null;
  const [left, right] = options.range ?? widths(lines);
  return { left, right, low: range[0], high: range[1], marks: yTicks(range, options.tall, options.log) };
}

function widths(lines) {
  let [left, right] = [Infinity, -Infinity];
  for (const trace of lines) {
    for (const at of trace.x) {
      left = Math.min(left, Number(at));
      right = Math.max(right, Number(at));
    }
  }
  return [left, right];
}
