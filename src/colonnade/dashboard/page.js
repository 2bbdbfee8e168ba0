// What a page does by itself: it looks for news and exchanges what has changed, shows the numbers of a chart at a place,
// and listens to a few keys. All text comes from the server as markup in which it is escaped already.
"use strict";

const HEADER = { "X-Colonnade-Part": "1" };
const main = () => document.getElementById("main");
const reduced = matchMedia("(prefers-reduced-motion: reduce)");

// -- news --------------------------------------------------------------------------------------------------------

let tag = "", failures = 0, timer = 0;
const shown = new Map(); // what the server last sent for each part, by its id

function parts(root) {
  return [...root.querySelectorAll("[data-block], figure[data-chart], figure.chart")].filter(one => one.id);
}

function exchange(text) {
  const template = document.createElement("template");
  template.innerHTML = text;
  const fresh = template.content.querySelector("main");
  if (!fresh) return;
  const now = main();
  now.dataset.every = fresh.dataset.every;
  document.title = `${fresh.dataset.title} · ${document.title.split(" · ").pop()}`;
  const there = parts(now).map(one => one.id).join(), coming = parts(fresh).map(one => one.id).join();
  if (there !== coming) {
    keepingFocus(now, () => { now.innerHTML = fresh.innerHTML; });
    shown.clear();
    for (const one of parts(now)) shown.set(one.id, one.outerHTML);
    charts(now);
    return;
  }
  for (const one of parts(fresh)) {
    const markup = one.outerHTML;
    if (shown.get(one.id) === markup) continue;
    shown.set(one.id, markup);
    const old = document.getElementById(one.id), at = old.matches("[data-chart]") ? old.dataset.at : undefined;
    keepingFocus(old, () => old.replaceWith(one));
    if (at !== undefined) one.dataset.at = at;
    charts(one.parentElement, one);
  }
}

function keepingFocus(within, change) {
  const active = document.activeElement;
  const inside = active && active !== document.body && within.contains(active);
  const key = inside && (active.id ? `#${CSS.escape(active.id)}` : active.getAttribute("href")
    ? `a[href="${CSS.escape(active.getAttribute("href"))}"]` : null);
  const scrolls = [...within.querySelectorAll(".scroll, .said")].map(one => [one.scrollLeft, one.scrollTop]);
  const place = within.id;
  change();
  const now = place ? document.getElementById(place) : null;
  if (now) [...now.querySelectorAll(".scroll, .said")].forEach((one, k) => {
    if (scrolls[k]) [one.scrollLeft, one.scrollTop] = scrolls[k];
  });
  if (key) (document.querySelector(key) || now || main()).focus({ preventScroll: true });
}

function gone(words) {
  const note = document.getElementById("gone");
  if (note.textContent !== words) note.textContent = words;
  note.hidden = !words;
}

async function look() {
  if (document.hidden) return;
  try {
    const headers = tag ? { ...HEADER, "If-None-Match": tag } : HEADER;
    const answer = await fetch(location.pathname + location.search, { headers, cache: "no-store" });
    if (answer.status === 403) { gone("This dashboard was started anew: its terminal shows the link to it."); return; }
    if (answer.status === 200) {
      tag = answer.headers.get("ETag") || "";
      exchange(await answer.text());
    }
    failures = 0;
    gone("");
  } catch {
    failures += 1;
    gone("The dashboard was stopped. Start it again to go on: colonnade dashboard");
  }
  clearTimeout(timer);
  timer = setTimeout(look, Math.min(Number(main().dataset.every || 2500) * (1 + failures), 10000));
}

document.addEventListener("visibilitychange", () => { clearTimeout(timer); look(); });

// -- charts ------------------------------------------------------------------------------------------------------

const SVG = "http://www.w3.org/2000/svg";

function written(value, bytes) {
  if (bytes) {
    for (const unit of ["B", "kB", "MB", "GB"]) {
      if (value < 1000 || unit === "GB") return `${unit === "B" ? value.toFixed(0) : value.toFixed(1)} ${unit}`;
      value /= 1000;
    }
  }
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return Number(value.toPrecision(5)).toLocaleString("en", { maximumFractionDigits: 6 });
}

function nearest(values, x) {
  let low = 0, high = values.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (values[middle] < x) low = middle; else high = middle;
  }
  return Math.abs(values[low] - x) <= Math.abs(values[high] - x) ? low : high;
}

function readAt(figure, x) {
  const of = figure.numbers, svg = figure.querySelector("svg"), out = figure.querySelector("output");
  const [left, from, right, to] = of.x;
  let line = svg.querySelector(".cursor");
  if (x === null) {
    if (line) line.remove();
    out.textContent = "";
    delete figure.dataset.at;
    return;
  }
  const longest = of.series.reduce((a, b) => (a.x.length >= b.x.length ? a : b));
  const place = longest.x[nearest(longest.x, x)];
  figure.dataset.at = place;
  if (!line) {
    line = document.createElementNS(SVG, "line");
    line.setAttribute("class", "cursor");
    line.setAttribute("y1", "10");
    line.setAttribute("y2", "230");
    svg.append(line);
  }
  const at = to > from ? left + (place - from) / (to - from) * (right - left) : left;
  line.setAttribute("x1", at);
  line.setAttribute("x2", at);
  const values = of.series.map(one => {
    const value = written(one.y[nearest(one.x, place)], of.bytes);
    return of.series.length > 1 ? `${one.name} ${value}` : value;
  });
  out.textContent = `${values.join(", ")} at ${written(place)} ${of.label}`;
}

function charts(root, only) {
  for (const figure of only ? [only] : root.querySelectorAll("figure[data-chart]")) {
    if (!figure.dataset || !figure.dataset.chart || figure.numbers) continue;
    figure.numbers = JSON.parse(figure.dataset.chart);
    const svg = figure.querySelector("svg"), [left, from, right, to] = figure.numbers.x;
    figure.addEventListener("pointermove", event => {
      const box = svg.getBoundingClientRect(), at = (event.clientX - box.left) / box.width * 360;
      readAt(figure, from + (at - left) / (right - left) * (to - from));
    });
    figure.addEventListener("pointerleave", () => readAt(figure, null));
    figure.addEventListener("blur", () => readAt(figure, null));
    figure.addEventListener("keydown", event => {
      const xs = figure.numbers.series.reduce((a, b) => (a.x.length >= b.x.length ? a : b)).x, last = xs.length - 1;
      const now = figure.dataset.at === undefined ? last : nearest(xs, Number(figure.dataset.at));
      const to = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: last }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      readAt(figure, xs[Math.max(0, Math.min(last, to))]);
    });
    if (figure.dataset.at !== undefined) readAt(figure, Number(figure.dataset.at));
  }
}

// -- keys and themes ---------------------------------------------------------------------------------------------

const THEMES = ["", "light", "dark"], NAMES = { "": "as the system has it", light: "light", dark: "dark" };

function theme(next) {
  const root = document.documentElement, now = root.dataset.theme || "";
  const chosen = next ? THEMES[(THEMES.indexOf(now) + 1) % THEMES.length] : now;
  if (chosen) root.dataset.theme = chosen; else delete root.dataset.theme;
  try { localStorage.setItem("colonnade-theme", chosen); } catch { /* it holds for this page alone */ }
  const button = document.getElementById("theme");
  button.textContent = chosen ? (chosen === "light" ? "Light" : "Dark") : "Auto";
  button.setAttribute("aria-label", `theme: ${NAMES[chosen]}`);
}

function help() {
  const dialog = document.getElementById("help");
  if (dialog.open) dialog.close(); else dialog.showModal();
}

document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
  const target = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
  if (target) { event.preventDefault(); target.click(); }
});
document.getElementById("theme").addEventListener("click", () => theme(true));
document.getElementById("keys").addEventListener("click", help);
document.getElementById("help").addEventListener("click", event => {
  if (event.target.id === "help") event.target.close();
});

theme(false);
for (const one of parts(main())) shown.set(one.id, one.outerHTML);
charts(main());
timer = setTimeout(look, Number(main().dataset.every || 2500));
