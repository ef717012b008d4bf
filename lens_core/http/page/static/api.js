// Asking the daemon. Errors are told in its own words; without a token the login form comes.

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const RETRY_MS = 3000;

// No answer, or one that says "not now": it is asked again.
export const passes = (error) => error instanceof ApiError && (error.status === 0 || error.status === 429 || error.status >= 500);

// Work of a view that is done again soon when what it asked was not answered.
export function retried(work, { say, signal }) {
  let again = null;
  return async function run() {
    clearTimeout(again);
    try {
      await work();
    } catch (error) {
      if (signal.aborted) return;
      say(error);
      if (passes(error)) again = setTimeout(run, RETRY_MS);
    }
  };
}

let session = null;
let answeredAt = null; // ms

// When the daemon answered a question last, in ms; null before the first time.
export function lastAnswered() {
  return answeredAt;
}

export function apiUrl(path, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    const items = Array.isArray(value) ? value : [value];
    for (const item of items) { // of several names one may be empty
      if (item !== null && item !== undefined && (item !== "" || items.length > 1)) query.append(name, item);
    }
  }
  const text = query.toString();
  return `api/v1/${path}${text ? `?${text}` : ""}`;
}

export function workloadPath(uid, rest = "") {
  return `workloads/${encodeURIComponent(uid)}${rest}`;
}

const AHEAD_MS = 5000;
const ahead = new Map(); // url → answer

// Ask now what a view asks for as soon as its modules are there.
export function askAhead(path, parameters = {}) {
  const url = apiUrl(path, parameters);
  const answer = request(url);
  answer.catch(() => {}); // told to whoever asks
  ahead.set(url, answer);
  setTimeout(() => ahead.delete(url), AHEAD_MS); // of a view that was left before it could ask
}

export async function get(path, parameters = {}, options = {}) {
  const url = apiUrl(path, parameters);
  const known = ahead.get(url);
  ahead.delete(url);
  const response = await (known ?? request(url, options));
  return response.json();
}

export async function request(url, options = {}) {
  let response;
  try {
    response = await fetch(url, { cache: "no-cache", credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The daemon does not answer.");
  }
  if (response.ok) {
    answeredAt = Date.now();
    return response;
  }
  if (response.status === 401) {
    location.assign("login");
    throw new ApiError(401, "A token is needed.");
  }
  throw new ApiError(response.status, await wordsOf(response));
}

async function wordsOf(response) {
  const text = await response.text();
  try {
    return JSON.parse(text).message || text;
  } catch {
    return text.slice(0, 200) || `The daemon answered ${response.status}.`;
  }
}

export async function whoAmI() {
  session ??= await get("session");
  return session;
}

export async function send(method, url) {
  const { csrf, csrf_header: header } = await whoAmI();
  return request(url, { method, headers: csrf ? { [header]: csrf } : {} });
}
