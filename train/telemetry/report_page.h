// The style and the script of report.html; the page of `trireme watch` has the same style.
#pragma once

#include <string_view>

namespace trireme {

inline constexpr std::string_view kReportStyle = R"css(
:root { color-scheme: light dark; --paper: #fcfbf9; --ink: #22252a; --soft: #6c727b; --rule: #e6e3dd; --train: #2b68b0; --val: #c75d16; --bad: #b3261e; --good: #2e7d4f; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #15171b; --ink: #e3e1dc; --soft: #959ba5; --rule: #2c3037; --train: #74abea; --val: #eb9a5c; --bad: #f2867e; --good: #79c79a; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; font-variant-numeric: tabular-nums; }
main { max-width: 1080px; margin: 0 auto; padding: 36px 24px 48px; }
header { display: flex; align-items: baseline; flex-wrap: wrap; gap: 4px 14px; }
h1 { margin: 0; font-size: 26px; font-weight: 600; letter-spacing: -.01em; overflow-wrap: anywhere; }
.status { color: var(--soft); }
.status.running::before, .status.finished::before, .status.stopped::before { content: ""; display: inline-block; width: 8px; height: 8px; border-radius: 50%; margin-right: 7px; vertical-align: 1px; background: var(--train); }
.status.finished::before { background: var(--good); }
.status.stopped::before { background: var(--bad); }
.bar { height: 3px; margin: 18px 0 22px; border-radius: 2px; background: var(--rule); overflow: hidden; }
.bar i { display: block; height: 100%; background: var(--train); }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(112px, 1fr)); gap: 14px 20px; margin: 0 0 26px; }
.figures dt, .facts th { color: var(--soft); font-size: 13px; font-weight: 400; white-space: nowrap; }
.figures dd { margin: 1px 0 0; font-size: 20px; white-space: nowrap; }
.figures .below { font-size: 13px; color: var(--soft); min-height: 1.45em; }
.charts { display: grid; grid-template-columns: 1fr 1fr; gap: 30px 36px; }
.chart { margin: 0; min-width: 0; }
.chart:first-child { grid-column: 1 / -1; }
.chart:last-child:nth-child(even) { grid-column: 1 / -1; }
figcaption { display: flex; flex-wrap: wrap; align-items: baseline; gap: 0 10px; margin-bottom: 10px; }
h2 { margin: 0; font-size: 15px; font-weight: 600; }
.unit { color: var(--soft); font-size: 13px; }
.keys { margin-left: auto; font-size: 13px; color: var(--soft); display: flex; flex-wrap: wrap; gap: 0 16px; }
.key { white-space: nowrap; }
.key b { display: inline-block; min-width: 3.4em; text-align: right; color: var(--ink); font-weight: 600; }
.key i { display: inline-block; width: 14px; height: 2px; border-radius: 1px; margin-right: 6px; vertical-align: 4px; background: currentColor; }
.key.train i { color: var(--train); } .key.val i { color: var(--val); }
.bad { color: var(--bad); }
.plot { position: relative; height: 190px; margin: 0 14px 26px 46px; touch-action: pan-y; }
.chart:first-child .plot { height: 330px; }
svg { position: absolute; inset: 0; width: 100%; height: 100%; display: block; }
path { fill: none; vector-effect: non-scaling-stroke; stroke-linejoin: round; stroke-linecap: round; }
.grid { stroke: var(--rule); stroke-width: 1; stroke-linecap: butt; }
path.train { stroke: var(--train); } path.val { stroke: var(--val); }
.raw { stroke-width: 1; opacity: .36; }
.line { stroke-width: 1.7; }
.line.val { stroke-width: 1.3; }
.dots { stroke-width: 5.5; }
.beyond { stroke: var(--soft); stroke-width: 2; stroke-linecap: butt; }
span.beyond { color: var(--soft); }
.gaps { stroke: var(--bad); stroke-width: 1.5; stroke-linecap: butt; }
.plot span { position: absolute; font-size: 12px; line-height: 1; color: var(--soft); white-space: nowrap; }
.plot .y { right: 100%; margin-right: 9px; transform: translateY(-50%); }
.plot .x { top: 100%; margin-top: 9px; transform: translateX(-50%); }
.plot .at { left: 0; top: 0; bottom: 0; width: 0; border-left: 1px solid var(--soft); opacity: .6; pointer-events: none; }
.plot .dot { width: 7px; height: 7px; margin: -3.5px; border-radius: 50%; background: var(--ink); pointer-events: none; }
section { margin-top: 34px; }
.facts { border-collapse: collapse; width: 100%; }
.facts tr { border-top: 1px solid var(--rule); }
.facts th { text-align: left; width: 12em; padding: 7px 16px 7px 0; vertical-align: top; }
.facts td { padding: 7px 0; overflow-wrap: anywhere; }
summary { cursor: pointer; color: var(--soft); }
pre { margin: 12px 0 0; padding: 16px 18px; border: 1px solid var(--rule); border-radius: 6px; overflow-x: auto; font: 13px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
footer { margin-top: 34px; color: var(--soft); font-size: 13px; }
section > h2 { margin-bottom: 10px; }
.stack { display: flex; height: 16px; border-radius: 4px; overflow: hidden; background: var(--rule); margin: 10px 0 8px; }
.stack i { display: block; height: 100%; }
.shares { display: flex; flex-wrap: wrap; gap: 2px 18px; font-size: 13px; color: var(--soft); }
.shares b { color: var(--ink); font-weight: 600; }
.swatch { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 6px; }
.part0 { background: var(--train); } .part1 { background: #7fa9d8; } .part2 { background: var(--good); } .part3 { background: var(--val); }
.part4 { background: #8a4fa3; } .part5 { background: #c8a2d6; } .part6 { background: #d9a441; } .part7 { background: #9aa1ab; }
.config pre { columns: 17em; }
@page { margin: 15mm; }
@media print {
  :root { color-scheme: light; --paper: #fff; --ink: #111; --soft: #555; --rule: #ddd; --train: #2b68b0; --val: #c75d16; --bad: #b3261e; --good: #2e7d4f; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  main { max-width: none; padding: 0; }
  body { font-size: 12px; }
  .chart, .stack, .figures > div, tr { break-inside: avoid; }
  h1, h2, figcaption { break-after: avoid; }
  .chart:first-child .plot { height: 240px; }
  .plot { height: 140px; }
  .config { break-before: page; }
  pre { border: 0; padding: 0; font-size: 9.5px; columns: 2; white-space: pre-wrap; overflow-wrap: anywhere; }
}
@media (max-width: 720px) {
  main { padding: 22px 16px 36px; }
  .charts { grid-template-columns: 1fr; }
  .chart:first-child .plot { height: 240px; }
  .figures { grid-template-columns: repeat(auto-fit, minmax(92px, 1fr)); gap: 8px 14px; margin-bottom: 20px; }
  .figures dd { font-size: 17px; }
  .figures .below { font-size: 12px; }
  .facts th { width: 9em; }
}
)css";

// One crosshair for all charts: the legends show the values at the step under the pointer. The config stays open over a refresh.
inline constexpr std::string_view kReportScript = R"js(
const readable = v => v === null ? "\u2013" : Math.abs(v) >= 1e4 ? human(v) : +v.toPrecision(Math.abs(v) < 1e-2 ? 3 : 4) + "";
const human = v => { let u = 0; while (Math.abs(v) >= 999.5 && u < 4) { v /= 1e3; ++u; } return v.toPrecision(3) + ["", "k", "M", "B", "T"][u]; };
const add = (to, kind) => { const e = document.createElement("span"); e.className = kind; e.hidden = true; return to.appendChild(e); };
const charts = [...document.querySelectorAll(".chart")].map(figure => {
  const plot = figure.querySelector(".plot"), data = JSON.parse(plot.querySelector("script").textContent);
  return { plot, data, unit: figure.querySelector(".unit"), at: add(plot, "at"), dots: data.curves.map(() => add(plot, "dot")),
           values: [...figure.querySelectorAll(".key b")] };
});
for (const c of charts) { c.last = c.values.map(b => b.textContent); c.name = c.unit.textContent; }
const nearest = (xs, x) => { let low = 0, high = xs.length - 1; while (low < high) { const m = (low + high) >> 1; xs[m] < x ? low = m + 1 : high = m; }
  return low > 0 && x - xs[low - 1] < xs[low] - x ? low - 1 : low; };
const place = (e, x, y) => { e.hidden = x === null; e.style.left = x + "%"; if (y !== undefined) e.style.top = y + "%"; };
const show = step => { for (const c of charts) {
  const [x0, x1] = c.data.x, [y0, y1] = c.data.y, across = s => 100 * (s - x0) / (x1 - x0);
  place(c.at, across(step)); c.unit.textContent = "step " + step.toLocaleString("en");
  c.data.curves.forEach((curve, i) => {
    const j = nearest(curve.x, step), y = curve.y[j] ?? null, down = 100 * (y1 - y) / (y1 - y0);
    c.values[i].textContent = readable(y);
    place(c.dots[i], y === null || down < 0 || down > 100 ? null : across(curve.x[j]), down);
  });
} };
const hide = () => { for (const c of charts) { c.at.hidden = true; c.unit.textContent = c.name; c.dots.forEach(d => d.hidden = true); c.values.forEach((b, i) => b.textContent = c.last[i]); } };
for (const c of charts) {
  c.plot.addEventListener("pointermove", e => { const box = c.plot.getBoundingClientRect(), [x0, x1] = c.data.x;
    show(Math.round(Math.min(Math.max(x0 + (e.clientX - box.left) / box.width * (x1 - x0), x0), x1))); });
  c.plot.addEventListener("pointerleave", hide);
}
const config = document.querySelector("details");
if (config) try { config.open = sessionStorage.getItem("config") === "open"; config.addEventListener("toggle", () => sessionStorage.setItem("config", config.open ? "open" : "")); } catch {}
const status = document.querySelector(".status"), silent = (Date.now() - Date.parse(status.dataset.updated)) / 60e3;
if (status.classList.contains("running") && silent > 5) status.textContent += " \u00b7 silent for " + (silent < 120 ? Math.round(silent) + " minutes" : Math.round(silent / 60) + " hours");
)js";

}  // namespace trireme
