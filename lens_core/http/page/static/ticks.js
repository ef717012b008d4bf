// Where an axis has its marks, and what they say.

import { trim } from "./format.js";

const MINUTE = 60_000;
const DAY = 86_400_000;
const MOST = 20;
const STEPS_OF_TIME = [1, 5, 15, 30, 60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86400, 7 * 86400, 30 * 86400].map((seconds) => seconds * 1000);
const UNITS = [[1e15, null], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]];
const SIZES = { T: 1e12, G: 1e9, M: 1e6, k: 1e3 };

// About so many round numbers between two: [where, text]. On a log scale where is an exponent of ten.
export function ticks(low, high, about, log = false) {
  const rough = high / about - low / about; // not the difference: that of the largest numbers is infinite
  if (!(rough > 0) || !Number.isFinite(rough)) return [[low, label(log ? 10 ** low : low, Math.abs(low), Math.abs(low))]];
  const power = 10 ** Math.floor(Math.log10(rough));
  const round = [1, 2, 5, 10].map((part) => part * power).find((step) => step >= rough);
  if (log) return logTicks(low, high, round, about);
  const largest = Math.max(Math.abs(low), Math.abs(high));
  return marks(Math.ceil(low / round) * round, high, round).map((at) => [at, label(at, round, largest)]);
}

// Whole powers of ten; where fewer than two of them are in sight, 2 and 5 between them, or else what is round itself.
function logTicks(low, high, round, about) {
  const step = Math.max(1, Math.round(round));
  const powers = marks(Math.ceil(low / step) * step, high, step).filter((at) => 10 ** at > 0 && 10 ** at < Infinity);
  if (powers.length > 1) return powers.map((at) => [at, label(10 ** at, 10 ** at, 10 ** at)]);
  const between = [];
  for (let power = Math.floor(low); power <= high; power += 1) for (const part of [1, 2, 5]) between.push(part * 10 ** power);
  const inSight = between.filter((value) => Math.log10(value) >= low && Math.log10(value) <= high);
  if (inSight.length > 1) return inSight.map((value) => [Math.log10(value), label(value, value, value)]);
  return ticks(10 ** low, 10 ** high, Math.max(3, about)).filter(([value]) => value > 0).map(([value, text]) => [Math.log10(value), text]);
}

// Counted, because a step may be too small to change a large number.
function marks(first, last, step) {
  const count = Math.min(MOST, Math.floor(last / step - first / step + 1e-9) + 1);
  return Array.from({ length: Math.max(0, count) }, (_, place) => first + (place / 2) * step + (place / 2) * step);
}

// A number with as many digits as tell it from the next mark, one unit for the whole axis.
function label(value, step, largest) {
  const clean = Math.abs(value) < step / 1e6 ? 0 : value;
  if (clean === 0) return "0";
  const [, unit] = UNITS.find(([from]) => largest >= from) ?? [0, ""];
  const smallest = largest < 1e-3;
  if (unit === null || smallest) return scientific(clean, step);
  const size = SIZES[unit] ?? 1;
  const digits = Math.min(20, Math.max(0, -Math.floor(Math.log10(step / size) + 1e-9)));
  return `${trim((clean / size).toFixed(digits))}${unit}`;
}

function scientific(value, step) {
  const digits = Math.min(16, Math.max(0, Math.floor(Math.log10(Math.abs(value))) - Math.floor(Math.log10(step) + 1e-9)));
  const [mantissa, exponent] = value.toExponential(digits).split("e");
  const text = `${trim(mantissa)}e${exponent.replace("+", "")}`;
  return text.length > 17 && Number.isSafeInteger(value) ? String(value) : text;
}

export function timeTicks(from, to, about = 5) {
  const step = stepOfTime(from, to, about);
  const shift = new Date(from).getTimezoneOffset() * MINUTE; // marks stand at round times of the reader's own clock
  return marks(Math.ceil((from - shift) / step) * step + shift, to, step).map((at) => [at, clock(new Date(at), step)]);
}

// Marks of what has passed since a beginning, in ms.
export function durationTicks(from, to, about = 5) {
  if (!(to - from > about)) return ticks(from / 1000, to / 1000, about).map(([at, text]) => [at * 1000, `${text} s`]);
  const step = stepOfTime(from, to, about);
  return marks(Math.ceil(from / step) * step, to, step).map((at) => [at, elapsed(at)]);
}

const stepOfTime = (from, to, about) => STEPS_OF_TIME.find((one) => (to - from) / one <= about) ?? 365 * DAY;

// 0:30 min, 1:30 h, 2 d 6:00.
export function elapsed(milliseconds) {
  const sign = milliseconds < 0 ? "−" : "";
  const all = Math.round(Math.abs(milliseconds) / 1000);
  const [days, hours, minutes, seconds] = [Math.floor(all / 86400), Math.floor(all / 3600) % 24, Math.floor(all / 60) % 60, all % 60];
  const clockText = `${hours}:${String(minutes).padStart(2, "0")}${seconds ? `:${String(seconds).padStart(2, "0")}` : ""}`;
  if (!all) return "0";
  if (!days) return `${sign}${all < 3600 ? `${minutes}:${String(seconds).padStart(2, "0")} min` : `${clockText} h`}`;
  return `${sign}${days} d${all % 86400 ? ` ${clockText}` : ""}`;
}

function clock(at, step) {
  if (step >= DAY) return at.toLocaleDateString(undefined, { month: "short", day: "numeric" });
  return at.toTimeString().slice(0, step < MINUTE ? 8 : 5);
}
