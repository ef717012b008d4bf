// One chart, drawn by plotly's library, which is loaded when the first chart is wanted.

import { heights, leftOf, yTicks } from "./axes.js";
import { alarmShapes, eventMarks, markTrace } from "./marks.js";

let library = null;

export function plotly() {
  library ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = new URL("plotly.js", import.meta.url).href;
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => {
      library = null;
      reject(new Error("The chart library could not be loaded; `pip install \"lens-agent[server]\"` on the daemon's machine brings it."));
    };
    document.head.append(script);
  });
  return library;
}

// A finger on a chart scrolls the page, unless the chart was made large.
const TOUCH = matchMedia("(pointer: coarse)").matches;
// A picture to keep is the only button of the library's own that stays: another one would send the data elsewhere.
const CONFIG = {
  displaylogo: false,
  displayModeBar: TOUCH || matchMedia("(max-width: 760px)").matches ? false : "hover",
  modeBarButtons: [["toImage"]],
  responsive: true,
  doubleClick: false,
};
// So many lines under the pointer are told one at a time.
const MOST_HOVERED = 6;
export const MARGIN = { r: 12, t: 8, b: 36 };

function colours() {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(["text", "quiet", "line", "page"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

function layout(found, options, marks) {
  const { text, quiet, line, page } = colours();
  const lines = found.filter((trace) => trace.yaxis !== "y2");
  const inTime = options.axis === "time";
  const range = heights(lines, options);
  const marksOfY = range ? yTicks(range, options.tall, options.log) : [];
  return {
    autosize: true,
    height: options.tall ? 460 : 230,
    margin: { ...MARGIN, l: leftOf(marksOfY) },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: text, size: 11, family: "system-ui, sans-serif" },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: quiet, activecolor: text },
    showlegend: false,
    hovermode: lines.length > MOST_HOVERED ? "closest" : "x",
    hoverdistance: 60,
    hoverlabel: { namelength: 40, bgcolor: page, bordercolor: line, font: { size: 11, color: text } },
    dragmode: TOUCH && !options.tall ? false : "zoom",
    uirevision: "kept",
    xaxis: {
      type: inTime ? "date" : "linear",
      title: { text: inTime ? "" : "iteration", font: { size: 10, color: quiet }, standoff: 4 },
      gridcolor: line,
      zeroline: false,
      tickfont: { color: quiet },
      hoverformat: inTime ? "%H:%M:%S" : ",d",
      ...(options.range ? { range: options.range.map((x) => (inTime ? new Date(x) : x)), autorange: false } : { autorange: true }),
    },
    yaxis: {
      type: options.log ? "log" : "linear",
      gridcolor: line,
      zeroline: false,
      fixedrange: true,
      tickfont: { color: quiet },
      tickvals: marksOfY.map(([at]) => (options.log ? 10 ** at : at)),
      ticktext: marksOfY.map(([, text]) => text),
      ...(range ? { range, autorange: false } : { autorange: true }),
    },
    yaxis2: { overlaying: "y", range: [0, 1], visible: false, fixedrange: true },
    shapes: alarmShapes(marks),
  };
}

// Draw or draw again; zoomed(range or null) is called when somebody drags or asks for the whole.
export async function draw(place, found, options, events, zoomed) {
  const Plotly = await plotly();
  const marks = eventMarks(events, options);
  const all = marks.length ? [...found, markTrace(marks)] : found;
  const isNew = !place.data;
  if (isNew) place.replaceChildren();
  await Plotly.react(place, all, layout(found, options, marks), CONFIG);
  if (!isNew) return;
  place.on("plotly_relayout", (change) => {
    const from = change["xaxis.range[0]"] ?? change["xaxis.range"]?.[0];
    const to = change["xaxis.range[1]"] ?? change["xaxis.range"]?.[1];
    if (from !== undefined && to !== undefined) zoomed([toNumber(from), toNumber(to)]);
    else if (change["xaxis.autorange"]) zoomed(null);
  });
  place.on("plotly_doubleclick", () => zoomed(null));
}

export async function forget(place) {
  if (place.data) (await plotly()).purge(place);
}

// plotly writes times as texts without a zone, in the browser's own.
function toNumber(value) {
  if (typeof value === "number") return value;
  const text = String(value).replace(" ", "T").slice(0, 23);
  return new Date(text.length === 10 ? `${text}T00:00` : text).getTime();
}
