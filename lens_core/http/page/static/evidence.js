// Below the verdict on a job that failed or hangs: the last log lines, and the stacks of the ranks that stand apart.

import { get, workloadPath } from "./api.js";
import { el, name } from "./dom.js";
import { clockTime, ranges } from "./format.js";

const TROUBLED = ["failed", "stalled"];
const MOST_STACKS = 3;
const MOST_LINES = 60;

// A place that stays while the head is painted again, so that what was unfolded and scrolled stays as it is.
export class Evidence {
  constructor(uid, signal) {
    Object.assign(this, { uid, signal });
    this.place = el("div", { class: "evidence" });
    this.version = "";
  }

  async show(state) {
    if (!TROUBLED.includes(state)) {
      this.version = "";
      this.place.replaceChildren();
      return;
    }
    const { uid, signal } = this;
    const [{ streams }, { stacks }] = await Promise.all([
      get(workloadPath(uid, "/log-tail"), {}, { signal }),
      get(workloadPath(uid, "/diagnosis"), {}, { signal }),
    ]);
    const apart = stacks.filter((group) => group.suspect).slice(0, MOST_STACKS);
    const version = JSON.stringify([streams, apart]);
    if (version === this.version) return;
    const isFirst = !this.version;
    this.version = version;
    const open = new Set([...this.place.querySelectorAll("details")].filter((one) => one.open).map((one) => one.dataset.key));
    const told = streams.filter((stream) => stream.lines.length);
    this.place.replaceChildren(
      ...told.map((stream, place) => tail(stream, isFirst ? place === 0 : null, open)),
      ...apart.map((group) => stack(group, open)),
    );
    for (const pre of this.place.querySelectorAll("pre.log")) pre.scrollTop = pre.scrollHeight; // the newest lines
  }
}

function tail(stream, isOpen, open) {
  const rank = stream.rank === null ? "" : `rank ${stream.rank}`;
  const where = [rank, stream.node || stream.pod_name, stream.container, stream.stream].filter(Boolean).join(", ");
  const key = `log ${where}`;
  const last = stream.lines.at(-1).timestamp;
  return el(
    "details",
    { class: "stack", "data-key": key, open: isOpen ?? open.has(key) },
    el(
      "summary",
      {},
      "Last log lines",
      where ? [" of ", name(where, 120)] : null,
      stream.has_cause ? el("span", { class: "state failed" }, "told of it") : null,
      last === null ? null : el("span", { class: "quiet" }, `until ${clockTime(last)}`),
    ),
    el("pre", { class: "log", tabindex: "0" }, stream.lines.slice(-MOST_LINES).map((line) => line.text).join("\n")),
  );
}

function stack(group, open) {
  const who = ranges(group.ranks);
  const key = `stack ${who}`;
  return el(
    "details",
    { class: "stack", "data-key": key, open: open.has(key) },
    el("summary", {}, "Stack of ", name(`${group.ranks.length === 1 ? "rank" : "ranks"} ${who}`, 160), el("span", { class: "state failed" }, "the odd one out")),
    el("pre", { tabindex: "0" }, group.frames.slice(0, 100).join("\n").slice(0, 20000)),
  );
}
