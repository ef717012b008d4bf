// Shares the drawing of many charts among frames, so that a zoom of them stays smooth on a slow machine, too.

// For charts, of the 16 ms of a frame.
const FRAME_MS = 11;
// For a chart, before any was measured.
const USUAL_MS = 1;
// A chart waits for no more frames than this, however slow the machine is.
const LONGEST_WAIT = 6;
const STILL_MS = 120;
const NEWEST_SHARE = 0.3;

export class Frames {
  // rendered(callback): calls it when the frame that is being made is rendered
  constructor(now = () => performance.now(), rendered = afterRendering) {
    Object.assign(this, { now, rendered });
    this.waiting = new Set(); // those that have waited longest are first
    this.costs = { whole: null, sketch: null }; // ms for one chart, rendering included
  }

  get isBehind() {
    return this.waiting.size > 0;
  }

  // These are to be drawn anew.
  change(shown) {
    for (const card of shown) this.waiting.add(card);
  }

  // How charts that move are drawn: as sketches, where one frame has no time for all of them.
  qualityOf(many) {
    return many * (this.costs.whole ?? USUAL_MS) > FRAME_MS ? "sketch" : "whole";
  }

  // The charts to draw: of those that are shown and have changed all that are new, and of the others, which only move, as
  // many as there is time for. The one under the pointer is first, the rest follow in the next frames.
  *inTurn(shown, fresh, pointed = null, quality = "whole") {
    const began = this.now();
    for (const card of this.waiting) if (!shown.includes(card)) this.waiting.delete(card);
    const first = [...new Set([...fresh, pointed])].filter((card) => this.waiting.has(card));
    const others = [...this.waiting].filter((card) => !first.includes(card));
    const inTime = Math.floor(FRAME_MS / (this.costs[quality] ?? USUAL_MS)) - first.length;
    const drawn = [...first, ...others.slice(0, Math.max(Math.ceil(shown.length / LONGEST_WAIT), inTime))];
    for (const card of drawn) {
      this.waiting.delete(card);
      yield card;
    }
    // New charts take longer.
    if (drawn.length && !drawn.some((card) => fresh.has(card))) this.rendered(() => this.learn(quality, (this.now() - began) / drawn.length));
  }

  learn(quality, cost) {
    const known = this.costs[quality] ?? cost;
    this.costs[quality] = known + NEWEST_SHARE * (cost - known);
  }
}

// Zooms that follow each other.
export class Movement {
  constructor(stood, now = () => performance.now()) {
    Object.assign(this, { stood, now, isOn: false, last: -Infinity, timer: null });
  }

  go() {
    this.isOn = this.now() - this.last < STILL_MS;
    this.last = this.now();
    this.end();
    if (this.isOn) this.timer = setTimeout(() => this.stand(), STILL_MS);
  }

  stand() {
    this.isOn = false;
    this.stood();
  }

  end() {
    clearTimeout(this.timer);
  }
}

// A message comes after canvases are painted.
function afterRendering(callback) {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = () => {
    port1.close();
    callback();
  };
  port2.postMessage(null);
}
