// A chart's lines at once, on a canvas, before the chart library is there or has its turn.

const MARGIN = { left: 52, right: 10, top: 8, bottom: 32 };

export function preview(place, found, options) {
  const width = place.clientWidth;
  const height = place.clientHeight;
  const numbers = bounds(found, options);
  if (!width || !height || !numbers) return;
  const canvas = document.createElement("canvas");
  const scale = window.devicePixelRatio || 1;
  canvas.width = width * scale;
  canvas.height = height * scale;
  canvas.className = "preview";
  canvas.setAttribute("aria-hidden", "true");
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  const [left, right, low, high] = numbers;
  const x = (value) => MARGIN.left + ((value - left) / (right - left || 1)) * (width - MARGIN.left - MARGIN.right);
  const y = (value) => height - MARGIN.bottom - ((value - low) / (high - low || 1)) * (height - MARGIN.top - MARGIN.bottom);
  pen.save();
  pen.beginPath();
  pen.rect(MARGIN.left, 0, width - MARGIN.left - MARGIN.right, height);
  pen.clip();
  for (const trace of found) line(pen, trace, options, x, y);
  pen.restore();
  place.replaceChildren(canvas);
}

function line(pen, trace, options, x, y) {
  if (trace.yaxis === "y2") return;
  pen.beginPath();
  let down = false;
  trace.x.forEach((at, place) => {
    const value = scaled(trace.y[place], options);
    if (value === null) {
      down = false;
      return;
    }
    if (down) pen.lineTo(x(Number(at)), y(value));
    else pen.moveTo(x(Number(at)), y(value));
    down = true;
  });
  pen.globalAlpha = trace.opacity ?? 1;
  pen.strokeStyle = trace.line?.color ?? "#888";
  pen.lineWidth = trace.line?.width ?? 1;
  pen.stroke();
}

function scaled(value, options) {
  if (value === null || value === undefined) return null;
  return options.log ? Math.log10(value) : value;
}

function bounds(found, options) {
  let [left, right, low, high] = [Infinity, -Infinity, Infinity, -Infinity];
  for (const trace of found) {
    if (trace.yaxis === "y2") continue;
    trace.x.forEach((at, place) => {
      const value = scaled(trace.y[place], options);
      if (value === null) return;
      left = Math.min(left, Number(at));
      right = Math.max(right, Number(at));
      low = Math.min(low, value);
      high = Math.max(high, value);
    });
  }
  if (options.range) [left, right] = options.range;
  return low <= high ? [left, right, low, high] : null;
}
