// Where an axis has its marks, and what they say.

const MINUTE = 60_000;
const MOST = 20;
const STEPS_OF_TIME = [1, 5, 15, 30, 60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86400, 7 * 86400, 30 * 86400].map((seconds) => seconds * 1000);

// About so many round numbers between two: [where, text]. On a log scale where is an exponent of ten.
export function ticks(low, high, about, log = false) {
  const rough = (high - low) / about;
  if (!(rough > 0) || !Number.isFinite(rough)) return [[low, label(log ? 10 ** low : low, Math.abs(low))]];
  const power = 10 ** Math.floor(Math.log10(rough));
  const round = [1, 2, 5, 10].map((part) => part * power).find((step) => step >= rough);
  const step = log ? Math.max(1, Math.round(round)) : round;
  return marks(Math.ceil(low / step) * step, high, step).map((at) => [at, log ? label(10 ** at, 1) : label(at, step)]);
}

// Counted, because a step may be too small to change a large number.
function marks(first, last, step) {
  const count = Math.min(MOST, Math.floor((last - first) / step) + 1);
  return Array.from({ length: Math.max(0, count) }, (_, place) => first + place * step);
}

function label(value, step) {
  const clean = Math.abs(value) < step / 1e6 ? 0 : value;
  const size = Math.abs(clean);
  if (size >= 1e9) return `${trim(clean / 1e9)}G`;
  if (size >= 1e6) return `${trim(clean / 1e6)}M`;
  if (size >= 1e4) return `${trim(clean / 1e3)}k`;
  if (size > 0 && size < 1e-3) return Number(clean.toPrecision(3)).toExponential();
  return trim(clean);
}

const trim = (value) => String(Number(value.toPrecision(4)));

export function timeTicks(from, to) {
  const step = STEPS_OF_TIME.find((one) => (to - from) / one <= 5) ?? 365 * 86400 * 1000;
  const shift = new Date(from).getTimezoneOffset() * MINUTE; // marks stand at round times of the reader's own clock
  return marks(Math.ceil((from - shift) / step) * step + shift, to, step).map((at) => [at, clock(new Date(at), step)]);
}

function clock(at, step) {
  if (step >= 86400 * 1000) return at.toLocaleDateString(undefined, { month: "short", day: "numeric" });
  return at.toTimeString().slice(0, step < MINUTE ? 8 : 5);
}
