// Numbers and times as people read them.

export function number(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "string") return value;
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
  if (value === 0) return "0";
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return value.toLocaleString("en-US");
  const rounded = Number(value.toPrecision(4)); // 999,999.5 is a million in four digits
  const size = Math.abs(rounded);
  if (size >= 1e15 || size < 1e-4) return value.toExponential(2).replace(/\.?0*e\+?/, "e");
  if (size >= 1e4) {
    const [unit, letter] = size >= 1e12 ? [1e12, "T"] : size >= 1e9 ? [1e9, "G"] : size >= 1e6 ? [1e6, "M"] : [1e3, "k"];
    return `${trim((rounded / unit).toPrecision(4))} ${letter}`;
  }
  return size >= 1000 ? rounded.toLocaleString("en-US") : trim(value.toPrecision(4));
}

// A decimal number without the zeros at its end.
export function trim(text) {
  return text.includes(".") && !text.includes("e") ? text.replace(/\.?0+$/, "") : text;
}

export function count(value) {
  return value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en-US");
}

export function bytes(value) {
  if (value < 1024) return `${value} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let place = -1;
  do {
    value /= 1024;
    place += 1;
  } while (value >= 1024 && place < units.length - 1);
  return `${trim(value.toPrecision(3))} ${units[place]}`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

export function ago(milliseconds, now = Date.now()) {
  if (!milliseconds) return "never";
  const seconds = Math.max(0, (now - milliseconds) / 1000);
  if (seconds < 5) return "now";
  if (seconds < 60) return `${Math.round(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86400)} d ago`;
}

// Made once: making one takes longer than a thousand times using it.
const MOMENT = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

export function moment(milliseconds) {
  const at = new Date(milliseconds);
  return Number.isNaN(at.getTime()) ? "–" : MOMENT.format(at);
}

const IN_YEAR = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "numeric", minute: "2-digit", second: "2-digit" });

export function momentInYear(milliseconds) {
  return IN_YEAR.format(new Date(milliseconds));
}

export function clockTime(milliseconds) {
  return new Date(milliseconds).toTimeString().slice(0, 8);
}

// What a metric is measured in, as far as its name says so.
const UNITS = [
  [/^tokens_per_gpu$/, "tokens/s/GPU"],
  [/tokens?_?per_?s/, "tokens/s"],
  [/samples?_?per_?s/, "samples/s"],
  [/(steps?|iterations?)_?per_?s|it\/s$/, "1/s"],
  [/tflops/, "TFLOP/s"],
  [/^mem_usage$|_gb$/, "GB"],
  [/_gib$/, "GiB"],
  [/_mb$/, "MB"],
  [/_mib$/, "MiB"],
  [/(_|\/)bytes$/, "B"],
  [/_(ms|milliseconds)$/, "ms"],
  [/_(s|secs?|seconds)$/, "s"],
  [/percent|_pct$|^mem_usage_ratio$/, "%"],
  [/_watts?$/, "W"],
  [/_celsius$/, "°C"],
];

export function unit(metric) {
  const low = metric.toLowerCase();
  return UNITS.find(([pattern]) => pattern.test(low))?.[1] ?? "";
}

// event types of the contract, in words
export function words(type) {
  return String(type).replaceAll("_", " ");
}

// Ranks in as few words as a thousand of them allow: 0–6, 8. They come as texts, of which some may be no number.
export function ranges(ranks) {
  const all = [...new Set(ranks.map(String))];
  const found = [];
  for (const number of all.filter(isWhole).map(Number).sort((one, other) => one - other)) {
    const last = found.at(-1);
    if (last && number === last[1] + 1) last[1] = number;
    else found.push([number, number]);
  }
  const joined = found.map(([first, last]) => (first === last ? String(first) : `${first}–${last}`));
  return [...joined, ...all.filter((text) => !isWhole(text))].join(", ");
}

const isWhole = (text) => /^\d+$/.test(text);

// What GPU-hours cost, in the currency of their price; "unknown" where nobody counted GPUs.
export function money(cost) {
  return typeof cost === "number" ? cost.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 }) : "unknown";
}

// A column of money, where somebody gave the price of a GPU-hour: its head, or the cell of a cost.
export function priced(answer, cell) {
  return "price_per_gpu_hour" in answer ? [cell] : [];
}
