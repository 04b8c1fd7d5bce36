// The console's only script: it draws the plots from the tables beside them, and keeps live parts of a page up to
// date. Without it the pages work as well; the tables have the plots' values, and a page shows news when loaded again.
"use strict";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const plots = new Map();

// Colours by meaning, with dashes so that no line is told by its colour alone.
const styles = [["--good", []], ["--busy", [8, 4]], ["--bad", [2, 3]], ["--quiet", [10, 4, 2, 4]], ["--accent", [4, 4]], ["--link", [14, 5]]];

function draw(place) {
  const table = document.getElementById("values-" + place.dataset.plot);
  if (!table || !window.uPlot) return;
  const names = [...table.tHead.rows[0].cells].slice(1).map((c) => c.textContent);
  // A row is of a time of day, or of a time since a beginning in seconds.
  const since = place.dataset.first === "after";
  const at = (r) => since ? Number(r.cells[0].dataset.seconds) : Date.parse(r.querySelector("time").dateTime) / 1000;
  const rows = [...table.tBodies[0].rows].sort((a, b) => at(a) - at(b));
  const data = [rows.map(at)];
  names.forEach((_, i) => data.push(rows.map((r) => Number(r.cells[i + 1].textContent))));
  const two = (n) => String(n).padStart(2, "0");
  const clock = (s) => { const d = new Date(s * 1000); return two(d.getUTCHours()) + ":" + two(d.getUTCMinutes()); };
  const long = (s) => (s < 120 ? [s, "s"] : s < 7200 ? [s / 60, "min"] : [s / 3600, "h"]);
  const after = (s) => { const [n, unit] = long(s); return Number(n.toFixed(1)) + " " + unit; };
  const words = since ? after : clock;
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
  const old = plots.get(place.dataset.plot);
  if (old) old.destroy();
  const chart = new uPlot({
    width: Math.max(240, place.clientWidth), height: 210,
    legend: { markers: { width: 3, dash: (_, i) => ["solid", "dashed", "dotted", "double"][(i - 1) % 4] } },
    cursor: { drag: { x: false, y: false } },
    scales: { x: { time: !since }, y: { range: (_, low, high) => [Math.min(0, low), Math.max(1, high * 1.08)] } },
    series: [{ label: since ? "after" : "UTC", value: (_, s) => (s == null ? "" : words(s)) }, ...names.map((label, i) => ({ label, stroke: colour(styles[i % styles.length][0]), dash: styles[i % styles.length][1], width: 2, points: { show: rows.length < 40 }, value: (_, v) => (v == null ? "" : String(v)) }))],
    axes: [{ ...axis, space: 70, values: (_, times) => times.map(words) }, { ...axis, size: 46 }],
  }, data, place);
  plots.set(place.dataset.plot, chart);
  place.chart = chart;
}

const drawAll = () => document.querySelectorAll(".plot").forEach(draw);

// replace puts new content into a live part. What a person has opened stays open, and the focus stays where it is.
function replace(part, html) {
  const open = new Set([...part.querySelectorAll("details[open]")].map((d) => d.id));
  const at = part.contains(document.activeElement) ? document.activeElement : null;
  const same = at && (at.id ? "#" + CSS.escape(at.id) : at.getAttribute("href") ? `a[href="${CSS.escape(at.getAttribute("href"))}"]` : at.getAttribute("aria-label") ? `[aria-label="${CSS.escape(at.getAttribute("aria-label"))}"]` : at.closest("details") ? "#" + CSS.escape(at.closest("details").id) + " > summary" : "");
  const scrolled = [...part.querySelectorAll(".scroll")].map((s) => [s.scrollLeft, s.scrollTop]);
  plots.forEach((p) => p.destroy());
  plots.clear();
  part.innerHTML = html;
  open.forEach((id) => { const d = document.getElementById(id); if (d) d.open = true; });
  [...part.querySelectorAll(".scroll")].forEach((s, i) => { if (scrolled[i]) [s.scrollLeft, s.scrollTop] = scrolled[i]; });
  drawAll();
  if (same) part.querySelector(same)?.focus({ preventScroll: true });
}

const live = document.querySelector("[data-live]");
if (live) {
  const state = document.getElementById("live-state");
  const say = (text) => { if (state.textContent !== text) state.textContent = text; };
  const news = new EventSource(live.dataset.live);
  news.addEventListener("content", (e) => { replace(live, e.data); say("Live: this page follows the stack."); });
  news.addEventListener("end", () => { news.close(); say("It has ended; the page shows how."); });
  news.addEventListener("error", () => say("No news: the console does not answer. Is acklast console still running?"));
  addEventListener("pagehide", () => news.close());
}
drawAll();
addEventListener("resize", drawAll);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
