// The moving average of a curve, as the server defines it: docs/http.md, “Buckets and smoothing”.

// low and high: between which values it lies, as far as they are known.
export const begun = (weight) => ({ weight, mean: 0, steps: 0, low: Infinity, high: -Infinity });

// Write into `s` of each point what is shown after it, and go on with the state. Each point must be one iteration: of
// several their average is not known.
export function smoothOn(state, points) {
  for (const point of points) {
    if (point.y === null) {
      point.s = null;
      continue;
    }
    state.mean = state.weight * state.mean + (1 - state.weight) * point.y;
    state.steps += 1;
    point.s = within(state.mean / (1 - state.weight ** state.steps), state, point.y);
  }
}

// Rounding must not lead out of what was seen: a constant stays the constant that it is.
function within(shown, state, value) {
  state.low = Math.min(state.low, value);
  state.high = Math.max(state.high, value);
  return Math.min(state.high, Math.max(state.low, shown));
}

// Whether every point is one iteration, so that the average can be made of them alone.
export const isWhole = (points) => points.every((point) => point.steps === 1);
