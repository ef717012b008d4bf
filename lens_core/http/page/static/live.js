// One stream of server-sent events for the whole page: whose data came. It outlives restarts of the daemon.

const LONGEST_PAUSE_MS = 5000;

const listeners = new Set();
const watchers = new Set();
let source = null;
let pause = 500;
let connected = null;

// heard(names, more) for every change; heard(null) when the connection is back and all may have changed.
export function listen(heard) {
  listeners.add(heard);
  return () => listeners.delete(heard);
}

export function watchConnection(seen) {
  watchers.add(seen);
}

export function connect() {
  source = new EventSource("api/v1/changes");
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
  source.addEventListener("error", () => {
    source.close();
    tell(false);
    setTimeout(connect, pause);
    pause = Math.min(LONGEST_PAUSE_MS, pause * 2);
  });
}

export function disconnect() {
  source?.close();
}

function tell(state) {
  if (state === connected) return;
  connected = state;
  watchers.forEach((seen) => seen(state));
}
