// One chart, drawn by plotly's library, which is loaded when the first chart is wanted.

const ALARMING = new Set(["training_failed", "out_of_memory", "collective_timeout", "process_terminated", "stalled", "loss_not_finite"]);
const MARKS = {
  checkpoint_saved: ["square", "#1a8a4c"],
  checkpoint_saving: ["square-open", "#1a8a4c"],
  checkpoint_loaded: ["diamond", "#1a8a4c"],
  loss_not_finite: ["x", "#d32f2f"],
  training_started: ["triangle-right", "#2f6fd0"],
  training_ended: ["triangle-left", "#2f6fd0"],
  resumed: ["triangle-right", "#d1630a"],
};

let library = null;

export function plotly() {
  library ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = new URL("plotly.js", import.meta.url).href;
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => {
      library = null;
      reject(new Error("The chart library could not be loaded; `pip install plotly` on the daemon's machine brings it."));
    };
    document.head.append(script);
  });
  return library;
}

const CONFIG = {
  displaylogo: false,
  responsive: true,
  doubleClick: false,
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "resetScale2d", "zoomIn2d", "zoomOut2d"],
  plotGlPixelRatio: 1,
};

export function layout(options, events, label) {
  const style = getComputedStyle(document.documentElement);
  const text = style.getPropertyValue("--text").trim();
  const grid = style.getPropertyValue("--line").trim();
  const marks = eventMarks(events, options);
  return {
    layout: {
      autosize: true,
      height: options.tall ? 460 : 230,
      margin: { l: 52, r: 10, t: 8, b: 32 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: text, size: 11, family: "system-ui, sans-serif" },
      showlegend: false,
      hovermode: "x",
      hoverlabel: { namelength: 30, font: { size: 11 } },
      dragmode: "zoom",
      uirevision: "kept",
      xaxis: {
        type: options.axis === "time" ? "date" : "linear",
        gridcolor: grid,
        zeroline: false,
        hoverformat: options.axis === "time" ? "%H:%M:%S" : ",d",
        ...(options.range ? { range: options.range.map((x) => (options.axis === "time" ? new Date(x) : x)), autorange: false } : { autorange: true }),
      },
      yaxis: { type: options.log ? "log" : "linear", gridcolor: grid, zeroline: false, fixedrange: true, autorange: true, exponentformat: "power", ticks: "" },
      yaxis2: { overlaying: "y", range: [0, 1], visible: false, fixedrange: true },
      shapes: marks.filter((mark) => ALARMING.has(mark.type)).slice(-100).map((mark) => ({
        type: "line",
        x0: mark.x,
        x1: mark.x,
        yref: "paper",
        y0: 0,
        y1: 1,
        line: { color: "#d32f2f", width: 1, dash: "dot" },
      })),
      meta: label,
    },
    marks,
  };
}

function eventMarks(events, options) {
  if (!options.events) return [];
  return events
    .map((event) => ({
      type: event.type,
      x: options.axis === "time" ? new Date(event.timestamp) : event.iteration,
      text: `${event.type.replaceAll("_", " ")}${event.iteration === null ? "" : ` at ${event.iteration}`}`,
    }))
    .filter((mark) => mark.x !== null && mark.x !== undefined)
    .slice(0, 500);
}

function markTrace(marks) {
  return {
    type: "scatter",
    mode: "markers",
    yaxis: "y2",
    name: "events",
    x: marks.map((mark) => mark.x),
    y: marks.map(() => 0.03),
    customdata: marks.map((mark) => mark.text),
    hovertemplate: "%{customdata}<extra></extra>",
    marker: {
      size: 8,
      symbol: marks.map((mark) => MARKS[mark.type]?.[0] ?? "circle"),
      color: marks.map((mark) => MARKS[mark.type]?.[1] ?? (ALARMING.has(mark.type) ? "#d32f2f" : "#8a8f98")),
    },
  };
}

// Draw or draw again; zoomed(range or null) is called when somebody drags or asks for the whole.
export async function draw(place, found, options, events, label, zoomed) {
  const Plotly = await plotly();
  const { layout: wanted, marks } = layout(options, events, label);
  const all = marks.length ? [...found, markTrace(marks)] : found;
  const isNew = !place.data;
  if (isNew) place.replaceChildren();
  await Plotly.react(place, all, wanted, CONFIG);
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
