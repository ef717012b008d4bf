// Shares the drawing of many charts among frames, so that a zoom of them stays smooth.

const FRAME_MS = 6;

export class Frames {
  constructor(now = () => performance.now()) {
    this.now = now;
    this.waiting = new Set(); // those that have waited longest are first
  }

  get isBehind() {
    return this.waiting.size > 0;
  }

  // These are to be drawn anew.
  change(shown) {
    for (const card of shown) this.waiting.add(card);
  }

  // The charts to draw: of those that are shown and have changed all that are new, and of the others, which only move, as
  // many as there is time for, one at least. The one under the pointer is first, the rest follow in the next frames.
  *inTurn(shown, fresh, pointed = null) {
    const began = this.now();
    for (const card of this.waiting) if (!shown.includes(card)) this.waiting.delete(card);
    const first = [...fresh, pointed].filter((card) => this.waiting.has(card));
    let others = 0;
    for (const card of new Set([...first, ...this.waiting])) {
      if (!first.includes(card) && others++ && this.now() - began >= FRAME_MS) return;
      this.waiting.delete(card);
      yield card;
    }
  }
}
