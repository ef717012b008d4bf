// Building elements. Texts are text nodes, always: nothing that comes from a training job is ever parsed as HTML.

const NAMESPACE = "http://www.w3.org/2000/svg";

export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(NAMESPACE, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    else if (name === "value" && "value" in node) node.value = value;
    else if (name === "checked") node.checked = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

const LONGEST = 160;

// Letters that nobody sees and that turn others around: a name must not look like another one.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;

// A name that somebody else chose: isolated from the direction of the text around it, cut when it is absurdly long.
export function name(text, longest = LONGEST) {
  const whole = String(text).trim() ? String(text).replace(UNSEEN, "\ufffd") : "(no name)";
  const letters = whole.length > longest ? `${whole.slice(0, longest)}…` : whole;
  return el("bdi", { title: whole.length > longest ? whole.slice(0, 1000) : null }, letters);
}

export function button(text, onclick, attributes = {}) {
  return el("button", { type: "button", ...attributes, on: { click: onclick } }, text);
}

export function code(text) {
  return el("code", {}, text);
}

export function table(caption, heads, rows) {
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el(
      "table",
      {},
      el("caption", { class: "hidden" }, caption),
      el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head)))),
      el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell, place) => el("td", { "data-head": heading(heads[place]) }, cell))))),
    ),
  );
}

// On a phone every cell says what it is.
function heading(head) {
  return typeof head === "string" ? head : head.textContent;
}

// The same text, set anew, would be laid out anew.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// At most one call per interval, the last one never lost.
export function throttle(milliseconds, work) {
  let timer = null;
  let again = false;
  let last = -Infinity;
  const run = async () => {
    last = performance.now();
    again = false;
    try {
      await work();
    } finally {
      timer = null;
      if (again) call();
    }
  };
  const call = () => {
    if (timer !== null) {
      again = true;
      return;
    }
    timer = setTimeout(run, Math.max(0, last + milliseconds - performance.now()));
  };
  call.cancel = () => clearTimeout(timer);
  return call;
}
