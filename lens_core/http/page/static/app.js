// The frame of the page: which view, errors in words, the connection, light and dark, keys.

import { ApiError, askAhead, lastAnswered, passes, RETRY_MS, send, whoAmI, workloadPath } from "./api.js";
import { ago, clockTime } from "./format.js";
import { connect, disconnect, lastHeard, watchConnection } from "./live.js";
import { keep, kept, read } from "./state.js";

// A view's modules come when it is opened; the page has them fetched beforehand, behind those that every view needs.
const list = async (...asked) => (await import("./list.js")).showList(...asked);
const workload = async (...asked) => (await import("./workload.js")).showWorkload(...asked);
const time = async (...asked) => (await import("./fleet.js")).showFleet(...asked);
const health = async (...asked) => (await import("./health.js")).showHealth(...asked);
const VIEWS = { "/": ["list", list], "/workload": ["list", workload], "/time": ["time", time], "/health": ["health", health] };
const main = document.getElementById("main");
const problem = document.getElementById("problem");
let stop = () => {};
let again = null;
let isConnected = null; // null before the first word
let isStale = false;

function say(error) {
  if (error && error.name === "AbortError") return;
  isStale = passes(error);
  const known = isStale && lastAnswered() !== null ? `${/[.!?]$/.test(error.message) ? "" : "."} The page shows what was known at ${clockTime(lastAnswered())}; trying again …` : "";
  problem.hidden = !error;
  problem.textContent = error instanceof ApiError ? `${error.message}${known}` : error ? `Something went wrong: ${error.message ?? error}` : "";
  paintConnection();
}

// "live" only while questions are answered, too: the stream of news alone brings no data.
function paintConnection() {
  if (isConnected === null) return;
  const place = document.getElementById("connection");
  const since = lastHeard() === null ? "" : ` since ${clockTime(lastHeard())}; the page shows what was known then`;
  place.textContent = !isConnected ? `No answer from the daemon${since}. Trying again …` : isStale ? `as of ${clockTime(lastAnswered() ?? Date.now())}` : "live";
  place.className = `connection ${isConnected && !isStale ? "up" : "down"}`;
}

async function route() {
  const { path, query } = read();
  const [view, show] = VIEWS[path] ?? VIEWS["/"];
  stop();
  clearTimeout(again);
  say(null);
  document.querySelectorAll("nav a").forEach((link) => {
    if (link.dataset.view === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  });
  main.replaceChildren();
  window.scrollTo(0, 0);
  const controller = new AbortController();
  let end = () => {};
  stop = () => {
    controller.abort();
    end();
  };
  try {
    end = (await show(main, query, { say, signal: controller.signal })) ?? end;
    if (controller.signal.aborted) end();
  } catch (error) {
    if (controller.signal.aborted) return;
    say(error);
    if (passes(error)) again = setTimeout(route, RETRY_MS); // the view is built again until it is there
  }
}

function theme(next) {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const now = kept("theme", dark);
  const wanted = next ? (now === "dark" ? "light" : "dark") : now;
  if (next) keep("theme", wanted);
  document.documentElement.dataset.theme = wanted;
  if (next) document.dispatchEvent(new CustomEvent("lens:theme"));
}

function keys(event) {
  const typing = event.target.closest("input:not([type=checkbox]):not([type=radio]):not([type=range]), textarea, select, [contenteditable]");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const actions = {
    "/": () => document.querySelector("input[type=search]")?.focus(),
    g: () => location.assign("#/"),
    h: () => location.assign("#/health"),
    t: () => theme(true),
    r: () => document.dispatchEvent(new CustomEvent("lens:whole")),
    "?": () => document.getElementById("keys").showModal(),
  };
  const action = actions[event.key];
  if (action) {
    event.preventDefault();
    action();
  }
}

// What most views ask for first.
function askFirst({ path, query }) {
  if (path === "/workload" && query.getAll("uid").length === 1) askAhead(workloadPath(query.get("uid"), "/metrics/available"));
  if (path === "/" && !query.size) askAhead("overview", { limit: 50 });
}

async function login() {
  const button = document.getElementById("logout");
  button.hidden = !(await whoAmI()).login;
  button.addEventListener("click", async () => {
    await send("POST", "logout");
    location.assign("login");
  });
}

// Also while no answer comes.
const tick = () => document.querySelectorAll("[data-seen]").forEach((one) => (one.textContent = ago(Number(one.dataset.seen))));

theme(false);
setInterval(tick, 5000);
document.getElementById("theme").addEventListener("click", () => theme(true));
document.getElementById("help").addEventListener("click", () => document.getElementById("keys").showModal());
document.addEventListener("keydown", keys);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
watchConnection((connected) => {
  isConnected = connected;
  paintConnection();
});
window.addEventListener("hashchange", route);
window.addEventListener("pagehide", disconnect);
connect(); // first: what comes behind the answers of a view is then heard
askFirst(read());
route();
login().catch(say);
