// What the page shows is in its address, so that a link shows somebody else the same.

export function read() {
  const [path, query = ""] = location.hash.replace(/^#/, "").split("?");
  return { path: path || "/", query: new URLSearchParams(query) };
}

export function link(path, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const item of Array.isArray(value) ? value : [value]) {
      if (item !== null && item !== undefined && item !== "" && item !== false) query.append(name, item);
    }
  }
  const text = query.toString();
  return `#${path}${text ? `?${text}` : ""}`;
}

// Change the address without building the view anew.
export function note(parameters) {
  history.replaceState(null, "", link(read().path, parameters));
}

export function kept(name, fallback) {
  try {
    return localStorage.getItem(`lens.${name}`) ?? fallback;
  } catch {
    return fallback; // storage is switched off: the setting lasts as long as the page
  }
}

export function keep(name, value) {
  try {
    localStorage.setItem(`lens.${name}`, value);
  } catch {
    document.documentElement.dataset[name] = value; // storage is switched off
  }
}
