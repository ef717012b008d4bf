// One stream of server-sent events for the whole page: whose data came. It outlives restarts of the daemon.

const LONGEST_PAUSE_MS = 5000;
// The daemon says something every 5 s; one that says nothing for so long has stopped, though its connection is open.
const SILENT_MS = 13_000;

const listeners = new Set();
const watchers = new Set();
let source = null;
let pause = 500;
let connected = null;
let heardAt = null; // ms
let retry = null;

// heard(names, more) for every change; heard(null) when the connection is back and all may have changed.
export function listen(heard) {
  listeners.add(heard);
  return () => listeners.delete(heard);
}

export function watchConnection(seen) {
  watchers.add(seen);
}

// When the daemon was heard last, in ms; null before the first time.
export function lastHeard() {
  return heardAt;
}

export function connect() {
  retry = null;
  source = new EventSource("api/v1/changes");
  for (const type of ["hello", "alive", "changed"]) source.addEventListener(type, () => (heardAt = Date.now()));
  source.addEventListener("hello", () => {
    const isBack = connected === false;
    pause = 500;
    tell(true);
    if (isBack) listeners.forEach((heard) => heard(null, true));
  });
  source.addEventListener("changed", (event) => {
    const { workloads, more } = JSON.parse(event.data);
    listeners.forEach((heard) => heard(workloads, more));
  });
  source.addEventListener("error", connectLater);
}

function connectLater() {
  source.close();
  tell(false);
  if (retry !== null) return;
  retry = setTimeout(connect, pause);
  pause = Math.min(LONGEST_PAUSE_MS, pause * 2);
}

export function disconnect() {
  source?.close();
}

// A page that was asleep in the background has heard nothing either: its clock jumps, and it connects anew at once.
setInterval(() => {
  if (connected && Date.now() - heardAt > SILENT_MS) connectLater();
}, 1000);

function tell(state) {
  if (state === connected) return;
  connected = state;
  watchers.forEach((seen) => seen(state));
}
