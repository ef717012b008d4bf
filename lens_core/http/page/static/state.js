// What the page shows is in its address, so that a link shows somebody else the same.

export function read() {
  const [path, query = ""] = location.hash.replace(/^#/, "").split("?");
  return { path: path || "/", query: new URLSearchParams(query) };
}

export function link(path, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const item of Array.isArray(value) ? value : [value]) {
      if (item !== null && item !== undefined && item !== "" && item !== false) query.append(name, item);
    }
  }
  const text = query.toString();
  return `#${path}${text ? `?${text}` : ""}`;
}

// Change the address without building the view anew.
export function note(parameters) {
  history.replaceState(null, "", link(read().path, parameters));
}

export function kept(name, fallback) {
  try {
    return localStorage.getItem(`lens.${name}`) ?? fallback;
  } catch {
    return fallback; // storage is switched off: the setting lasts as long as the page
  }
}

export function keep(name, value) {
  try {
    localStorage.setItem(`lens.${name}`, value);
  } catch {
    document.documentElement.dataset[name] = value; // storage is switched off
  }
}

// How charts are drawn, as the address has it.

const AXES = new Set(["iteration", "time", "relative"]);

// The parameters that belong to charts.
export const CHART_KEYS = ["metric", "axis", "logx", "smooth", "log", "events", "outliers", "joined", "ranks", "hide", "from", "to", "tall", "filter", "pin", "open", "closed"];

// The range where the axis can show it: a log axis has no place for 0.
export const rangeOn = ({ range, logX }) => (range && logX && range[0] <= 0 ? null : range);

export function optionsFrom(query) {
  const range = [query.get("from"), query.get("to")].map(Number);
  const axis = query.get("axis") ?? "";
  const options = {
    axis: AXES.has(axis) || axis.startsWith("metric:") ? axis : "iteration",
    logX: query.get("logx") === "1" && axis !== "time",
    smooth: Math.min(0.99, Math.max(0, Number(query.get("smooth")) || 0)),
    log: query.get("log") === "1",
    events: query.get("events") !== "0",
    outliers: query.get("outliers") !== "0",
    joined: query.get("joined") !== "0", // the attempts of a run are one line
    ranks: query.get("ranks") === "1", // all ranks that log runs of their own, not only the lowest
    hidden: new Set(query.getAll("hide")),
    range: query.has("from") && range.every(Number.isFinite) && range[0] < range[1] ? range : null,
    chosen: query.getAll("metric").length ? query.getAll("metric") : null, // metrics; null: those that tell something
    tall: query.get("tall"),
    filter: query.get("filter") ?? "",
    pinned: new Set(query.getAll("pin")),
    open: new Set(query.getAll("open")),
    closed: new Set(query.getAll("closed")),
  };
  return { ...options, range: rangeOn(options) };
}

export function parametersOf(options) {
  const { axis, logX, smooth, log, events, outliers, joined, ranks, hidden, range, chosen, tall, filter, pinned, open, closed } = options;
  return {
    metric: chosen ?? [],
    axis: axis === "iteration" ? "" : axis,
    logx: logX ? "1" : "",
    smooth: smooth || "",
    log: log ? "1" : "",
    events: events ? "" : "0",
    outliers: outliers ? "" : "0",
    joined: joined ? "" : "0",
    ranks: ranks ? "1" : "",
    hide: [...hidden],
    from: range ? rounded(range, range[0]) : "",
    to: range ? rounded(range, range[1]) : "",
    tall: tall ?? "",
    filter,
    pin: [...pinned],
    open: [...open],
    closed: [...closed],
  };
}

// As exact as a pointer can be.
function rounded([from, to], value) {
  const step = 10 ** Math.floor(Math.log10((to - from) / 10_000));
  return Number((Math.round(value / step) * step).toPrecision(15));
}
