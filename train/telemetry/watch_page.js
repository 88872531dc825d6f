"use strict";
// Draws what /run/INDEX/NEXT answers: figures, curves, time by part, busy ranks, events, checkpoints. Names are in docs/json.md.
const byId = id => document.getElementById(id);
const dash = "\u2013";
const known = v => v !== null && v !== undefined && Number.isFinite(v);
const human = v => { let u = 0; while (Math.abs(v) >= 999.5 && u < 4) { v /= 1e3; ++u; } return v.toPrecision(3) + ["", "k", "M", "B", "T"][u]; };
const readable = v => !known(v) ? dash : Math.abs(v) >= 1e4 ? human(v) : String(+v.toPrecision(Math.abs(v) < 1e-2 ? 3 : 4));
const fixed = (v, n) => known(v) ? v.toFixed(n) : dash;
const whole = v => v.toLocaleString("en");
const bytes = v => { let u = 0; while (v >= 1024 && u < 5) { v /= 1024; ++u; } return (u ? v.toPrecision(3) : v) + " " + ["B", "KiB", "MiB", "GiB", "TiB", "PiB"][u]; };
const time = s => { if (!known(s)) return dash;
  if (s < 1) return (s * 1000).toPrecision(3) + " ms";
  if (s < 60) return s.toFixed(1) + " s";
  const two = v => String(Math.floor(v)).padStart(2, "0");
  if (s < 3600) return Math.floor(s / 60) + "m " + two(s % 60) + "s";
  if (s < 86400) return Math.floor(s / 3600) + "h " + two(s % 3600 / 60) + "m";
  return Math.floor(s / 86400) + "d " + two(s % 86400 / 3600) + "h"; };
const make = (tag, attributes, ...children) => {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) if (value !== undefined) e.setAttribute(name, value);
  e.append(...children.filter(c => c !== null && c !== undefined));
  return e;
};
const svgNode = (tag, attributes, title) => {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  if (title) { const t = document.createElementNS("http://www.w3.org/2000/svg", "title"); t.textContent = title; e.append(t); }
  return e;
};

// A curve as bins {x0, x1, min, max, mean, gaps}; an answer brings those from a step on, maybe of a greater width.
const binOf = b => b.length === 2 ? { x0: b[0], x1: b[0], min: b[1], max: b[1], mean: b[1], gaps: b[1] === null ? 1 : 0 }
  : { x0: b[0], x1: b[1], min: b[2], max: b[3], mean: b[4], gaps: b[5] || 0 };
const joined = (a, b) => {
  if (b.mean === null) return { ...a, x1: b.x1, gaps: a.gaps + b.gaps };
  if (a.mean === null) return { ...b, x0: a.x0, gaps: a.gaps + b.gaps };
  const na = a.x1 - a.x0 + 1, nb = b.x1 - b.x0 + 1;
  return { x0: a.x0, x1: b.x1, min: Math.min(a.min, b.min), max: Math.max(a.max, b.max), mean: (a.mean * na + b.mean * nb) / (na + nb), gaps: a.gaps + b.gaps };
};
const widened = (bins, width) => {
  const out = [];
  for (const b of bins) {
    const last = out[out.length - 1];
    if (last && Math.floor(last.x0 / width) === Math.floor(b.x0 / width)) out[out.length - 1] = joined(last, b); else out.push(b);
  }
  return out;
};
const extend = (curve, answer) => {
  const fresh = answer.bins.map(binOf);
  if (!curve) return { width: answer.width, bins: fresh };
  let bins = answer.width > curve.width ? widened(curve.bins, answer.width) : curve.bins;
  if (fresh.length) bins = bins.filter(b => b.x0 < fresh[0].x0);
  return { width: answer.width, bins: bins.concat(fresh) };
};

// The bins' means by a line fitted around each, with weights that fall off like a Gaussian.
const smooth = (bins, sigma) => {
  if (sigma < 0.5 || bins.length < 8) return bins.map(b => b.mean);
  const reach = Math.ceil(3 * sigma), weights = Array.from({ length: reach + 1 }, (_, i) => Math.exp(-0.5 * i * i / (sigma * sigma)));
  return bins.map((b, i) => {
    if (b.mean === null) return null;
    let w0 = 0, w1 = 0, w2 = 0, y0 = 0, y1 = 0;
    for (let j = Math.max(0, i - reach); j <= Math.min(bins.length - 1, i + reach); ++j) {
      if (bins[j].mean === null) continue;
      const x = j - i, w = weights[Math.abs(x)], y = bins[j].mean;
      w0 += w; w1 += w * x; w2 += w * x * x; y0 += w * y; y1 += w * x * y;
    }
    const det = w0 * w2 - w1 * w1;
    return det > 1e-9 * w0 * w0 ? (w2 * y0 - w1 * y1) / det : y0 / w0;
  });
};

const ticksOf = (low, high, count) => {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough)), lead = rough / power;
  const step = power * (lead < 1.5 ? 1 : lead < 3.5 ? 2 : lead < 7.5 ? 5 : 10), out = [];
  for (let i = Math.ceil(low / step - 1e-6); i <= Math.floor(high / step + 1e-6); ++i) out.push(i * step);
  return out;
};
const tickText = ticks => {
  const largest = Math.max(...ticks.map(Math.abs)), step = ticks.length > 1 ? ticks[1] - ticks[0] : largest;
  let unit = 1, suffix = "";
  if (largest >= 1e4) { const t = Math.min(Math.floor(Math.log10(largest * 1.000001) / 3), 4); unit = 1000 ** t; suffix = " kMBT"[t]; }
  else if (largest > 0 && largest < 0.01) { const p = Math.floor(Math.log10(largest * 1.000001)); unit = 10 ** p; suffix = "e" + p; }
  const digits = step > 0 ? Math.min(12, Math.max(0, Math.ceil(-Math.log10(step / unit * 1.000001)))) : 0;
  return ticks.map(t => t === 0 ? "0" : (t / unit).toFixed(digits) + suffix);
};

const runs = [];
const view = { range: null, smoothing: 14, log: false, marks: true, chosen: 0, at: null };
const several = () => runs.length > 1;
const shown = () => runs.filter(r => r.data && !r.hidden);
const chosen = () => runs[view.chosen];
const span = () => view.range || [0, Math.max(1, ...shown().map(r => r.data.step))];
const inView = (bins, [x0, x1]) => bins.filter(b => b.x1 >= x0 && b.x0 <= x1);
const curveOf = (run, name) => run.curves[name] ? run.curves[name].bins : [];
const percents = bins => bins.map(b => b.mean === null ? b : { ...b, min: 100 * b.min, max: 100 * b.max, mean: 100 * b.mean });

// The range that the curves usually cover: spikes and first steps may leave the picture.
const usualRange = (lists, fromZero) => {
  const means = [], noise = [];
  let low = Infinity, high = -Infinity;
  for (const bins of lists) for (const b of bins) if (b.mean !== null) {
    means.push(b.mean); noise.push(b.max - b.min); low = Math.min(low, b.min); high = Math.max(high, b.max);
  }
  if (!means.length) return null;
  means.sort((a, b) => a - b); noise.sort((a, b) => a - b);
  const rare = Math.floor(means.length / 50), least = means[rare], most = means[means.length - 1 - rare], spread = most - least;
  const slack = Math.max(0.35 * spread, Math.min(1.5 * noise[Math.floor(noise.length / 4)], Math.max(spread, 0.25 * Math.abs(most))));
  low = Math.max(low, least - slack); high = Math.min(high, most + slack);
  if (fromZero) low = Math.min(low, 0);
  let room = 0.05 * (high - low);
  if (room <= 1e-9 * Math.abs(high)) room = high ? 0.1 * Math.abs(high) : 0.5;
  return [low - (fromZero && low === 0 ? 0 : room), high + room];
};

// A chart: lists of {run, bins, color, look, name}; look is line, noisy or points.
class Chart {
  constructor(title, unit, curves, options) {
    Object.assign(this, { title, curves, options: options || {}, unitText: unit });
    this.unit = make("span", { class: "unit" }, unit);
    this.keys = make("span", { class: "keys" });
    this.plot = make("div", { class: "plot", tabindex: "0", role: "img", "aria-label": title });
    this.svg = svgNode("svg", { viewBox: "0 0 1000 400", preserveAspectRatio: "none", "aria-hidden": "true" });
    this.labels = make("div", { "aria-hidden": "true" });
    this.at = make("span", { class: "at", hidden: "" });
    this.plot.append(this.svg, this.labels, this.at);
    this.figure = make("figure", { class: "chart" + (this.options.wide ? " wide" : "") },
      make("figcaption", {}, make("h2", {}, title), this.unit, this.keys), this.plot);
    listen(this);
  }
  lists() { return this.curves().filter(c => c.bins.length); }
  draw() {
    const range = span(), lists = this.lists().map(c => ({ ...c, bins: inView(c.bins, range) }));
    this.figure.hidden = !this.lists().length;
    if (this.figure.hidden) return;
    const log = this.options.log && view.log;
    this.scale = log ? this.logRange(lists) : usualRange(lists.map(c => c.bins), this.options.fromZero);
    this.svg.replaceChildren(); this.labels.replaceChildren();
    if (!this.scale) return;
    const [x0, x1] = range, [y0, y1] = this.scale;
    this.across = x => (x - x0) / (x1 - x0) * 1000;
    const down = y => log ? (y > 0 ? (1 - (Math.log(y) - y0) / (y1 - y0)) * 400 : 400) : (1 - (y - y0) / (y1 - y0)) * 400;
    this.down = y => Math.min(1600, Math.max(-1600, down(y)));
    this.grid(range, log);
    this.drawn = lists.map(c => this.line(c));
    if (this.options.marks && view.marks) this.marks();
    this.legend();
    this.describe();
  }
  logRange(lists) {
    let low = Infinity, high = 0;
    for (const c of lists) for (const b of c.bins) if (b.mean > 0) { low = Math.min(low, b.min > 0 ? b.min : b.mean); high = Math.max(high, b.max); }
    return high > 0 ? [Math.log(low) - 0.04, Math.log(high) + 0.04] : null;
  }
  grid([x0, x1], log) {
    const xs = ticksOf(x0, x1, this.plot.clientWidth > 600 ? 8 : 4).filter(Number.isInteger), [y0, y1] = this.scale;
    let ys = log ? ticksOf(Math.exp(y0), Math.exp(y1), 12) : ticksOf(y0, y1, 4);
    if (log) ys = ys.filter((y, i) => y > 0 && (i === 0 || this.down(ys[i - 1]) - this.down(y) > 24 || i % 3 === 0));
    const texts = tickText(ys), steps = tickText(xs);
    let d = ys.map(y => `M0 ${this.down(y).toFixed(1)}h1000`).join("") + xs.map(x => `M${this.across(x).toFixed(1)} 400v6`).join("");
    this.svg.append(svgNode("path", { class: "grid", d }));
    ys.forEach((y, i) => this.labels.append(make("span", { class: "y", style: `top:${this.down(y) / 4}%` }, texts[i])));
    xs.forEach((x, i) => this.labels.append(make("span", { class: "x", style: `left:${this.across(x) / 10}%` }, (i ? "" : "step ") + steps[i])));
  }
  line(c) {
    const noisy = c.look === "noisy", values = noisy ? smooth(c.bins, view.smoothing * c.bins.length / 1000) : c.bins.map(b => b.mean);
    const paint = d => ({ d, style: `stroke:${c.color}` }), middle = b => this.across((b.x0 + b.x1) / 2);
    let raw = "", line = "", dots = "", fresh = true;
    c.bins.forEach((b, i) => {
      if (b.mean === null) { fresh = true; return; }
      const x = middle(b).toFixed(1), pen = fresh ? "M" : "L";
      if (noisy) raw += `${pen}${x} ${this.down(b.min).toFixed(1)}` + (b.max > b.min ? `L${x} ${this.down(b.max).toFixed(1)}` : fresh ? "h0" : "");
      line += `${pen}${x} ${this.down(values[i]).toFixed(1)}` + (fresh ? "h0" : "");
      if (c.look === "points") dots += `M${x} ${this.down(values[i]).toFixed(1)}h0`;
      fresh = b.gaps > 0;
    });
    if (raw) this.svg.append(svgNode("path", { class: "raw", ...paint(raw) }));
    this.svg.append(svgNode("path", { class: "line", ...paint(line), ...(c.dashed ? { "stroke-dasharray": "5 4" } : {}) }, c.name));
    if (dots && c.bins.length <= 200) this.svg.append(svgNode("path", { class: "dots", ...paint(dots) }));
    return { ...c, values };
  }
  // Events on the curve of their run; saves as ticks at the bottom.
  marks() {
    const [x0, x1] = span();
    for (const drawn of this.drawn.filter(c => c.main)) {
      const events = drawn.run.events.filter(e => e.step >= x0 && e.step <= x1);
      const saves = [...new Set(events.filter(e => e.event === "save").map(e => Math.round(this.across(e.step))))];
      if (saves.length) this.svg.append(svgNode("path", { class: "saves", d: saves.map(x => `M${x} 400v-9`).join("") }, "saves"));
      for (const e of events.filter(e => e.event !== "save" && e.event !== "memory_save").slice(-300)) {
        const y = valueAt(drawn, e.step);
        if (y === null) continue;
        const text = `step ${whole(e.step)}: ${e.text}`;
        this.labels.append(make("span", { class: "mark " + e.event, title: text, role: "img", "aria-label": text,
          style: `left:${this.across(e.step) / 10}%;top:${Math.min(100, Math.max(0, this.down(y) / 4))}%` }));
      }
    }
  }
  legend() {
    const many = this.drawn.length > 1;
    this.values = this.drawn.map(c => make("b", {}, lastValue(c.bins)));
    this.keys.replaceChildren(...this.drawn.map((c, i) => make("span", { class: "key" },
      many ? make("i", { style: `background:${c.color}` }) : null, many ? c.name + " " : null, this.values[i])));
    const gaps = this.drawn.reduce((n, c) => n + c.bins.reduce((m, b) => m + b.gaps, 0), 0);
    if (gaps) this.keys.prepend(make("span", { class: "bad" }, gaps + " not finite"));
  }
  describe() {
    const words = this.drawn.map(c => `${c.name} ${lastValue(c.bins)}`).join(", ");
    this.plot.setAttribute("aria-label", `${this.title} over steps; last: ${words}`);
  }
  point(step) {
    if (this.figure.hidden || !this.scale) return;
    this.at.hidden = step === null;
    this.unit.textContent = step === null ? this.unitText : "step " + whole(step);
    if (step !== null) this.at.style.left = this.across(step) / 10 + "%";
    this.drawn.forEach((c, i) => { this.values[i].textContent = step === null ? lastValue(c.bins) : readable(valueAt(c, step)); });
  }
}
const lastValue = bins => { for (let i = bins.length - 1; i >= 0; --i) if (bins[i].mean !== null) return readable(bins[i].x0 === bins[i].x1 ? bins[i].max : bins[i].mean); return dash; };
const binAt = (bins, step) => { let low = 0, high = bins.length - 1;
  while (low < high) { const m = (low + high) >> 1; bins[m].x1 < step ? low = m + 1 : high = m; }
  return low; };
const valueAt = (drawn, step) => drawn.bins.length ? drawn.values[binAt(drawn.bins, step)] : null;

// Time by part, as areas on top of each other.
const partColor = name => ({ forward: "--p1", backward: "--p0", optimizer: "--p2", data: "--p3", wait_dp: "--p4", wait_tp: "--p5", wait_pp: "--p6" })[name] || "--p7";
const partName = name => name.startsWith("wait_") ? "waiting for " + name.slice(5) : name;
class PartsChart extends Chart {
  constructor() {
    super("Time by part", "ms a step", () => [], { wide: true });
    this.list = make("div", { class: "legend" });
    this.figure.append(this.list);
  }
  draw() {
    const run = chosen(), names = run && run.data ? Object.keys(run.data.parts_ms) : [];
    this.figure.hidden = !names.length;
    if (this.figure.hidden) return;
    const order = ["backward", "forward", "optimizer", "data"];
    names.sort((a, b) => (order.indexOf(a) + 9) % 9 - (order.indexOf(b) + 9) % 9 || (a < b ? -1 : 1));
    const range = span(), base = inView(curveOf(run, "step_ms"), range);
    this.svg.replaceChildren(); this.labels.replaceChildren();
    const sums = base.map(() => 0), layers = [];
    for (const name of names) {
      const bins = curveOf(run, "part/" + name), lower = sums.slice();
      base.forEach((b, i) => { const j = binAt(bins, (b.x0 + b.x1) / 2), v = bins.length && bins[j].x0 <= b.x1 ? bins[j].mean : 0; sums[i] += v || 0; });
      layers.push({ name, lower, upper: sums.slice(), bins });
    }
    const sorted = sums.slice().sort((a, b) => a - b), high = 1.25 * (sorted[Math.floor(0.97 * (sorted.length - 1))] || 1);
    const [x0, x1] = range;
    this.scale = [0, high];
    this.across = x => (x - x0) / (x1 - x0) * 1000;
    this.down = y => (1 - Math.min(y, high) / high) * 400;
    for (const layer of layers) {
      const x = base.map(b => this.across((b.x0 + b.x1) / 2).toFixed(1));
      const d = x.map((at, i) => `${i ? "L" : "M"}${at} ${this.down(layer.upper[i]).toFixed(1)}`).join("") +
        x.map((at, i) => `L${at} ${this.down(layer.lower[i]).toFixed(1)}`).reverse().join("") + "Z";
      this.svg.append(svgNode("path", { class: "area", d, style: `fill:var(${partColor(layer.name)})` }, partName(layer.name)));
    }
    this.grid(range, false);
    const all = names.reduce((sum, n) => sum + run.data.parts_ms[n], 0) || 1;
    this.drawn = layers.map(l => ({ bins: l.bins, values: l.bins.map(b => b.mean), name: l.name }));
    this.values = names.map(n => make("b", {}, (100 * run.data.parts_ms[n] / all).toFixed(1) + " %"));
    this.shares = this.values.map(v => v.textContent);
    this.list.replaceChildren(...names.map((n, i) => make("span", {}, make("i", { class: "swatch", style: `background:var(${partColor(n)})` }), partName(n) + " ", this.values[i])));
    this.plot.setAttribute("aria-label", "Time by part over steps: " + names.map((n, i) => partName(n) + " " + this.shares[i]).join(", "));
  }
  point(step) {
    super.point(step);
    if (this.figure.hidden) return;
    this.drawn.forEach((c, i) => { this.values[i].textContent = step === null ? this.shares[i] : readable(valueAt(c, step)) + " ms"; });
  }
}

// Busy times of ranks, relative to the median of all at that step.
class BusyChart extends Chart {
  constructor() {
    super("Busy time of ranks", "relative to the median", () => [], { wide: true });
    this.canvas = make("canvas", { "aria-hidden": "true" });
    this.plot.insertBefore(this.canvas, this.svg);
  }
  draw() {
    const run = chosen(), busy = run && run.busy;
    this.figure.hidden = !busy || !busy.columns.length;
    if (this.figure.hidden) return;
    const range = span(), [x0, x1] = range, rows = busy.columns[0].ms.length;
    this.columns = busy.columns.filter(c => c.x1 >= x0 && c.x0 <= x1);
    this.across = x => (x - x0) / (x1 - x0) * 1000;
    this.svg.replaceChildren(); this.labels.replaceChildren();
    this.scale = [0, rows]; this.drawn = []; this.values = [];
    this.canvas.width = 1000; this.canvas.height = rows;
    const pen = this.canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
    const hot = style.getPropertyValue("--hot"), cold = style.getPropertyValue("--cold");
    pen.clearRect(0, 0, 1000, rows);
    this.columns.forEach((c, i) => {
      const left = this.across(i ? c.x0 : Math.min(c.x0, x0)), right = this.across(i + 1 < this.columns.length ? this.columns[i + 1].x0 : Math.max(c.x1, c.x0 + busy.every));
      c.ms.forEach((ms, row) => {
        const off = ms / c.median - 1, much = Math.min(1, Math.abs(off) / 0.25) ** 1.4;
        pen.fillStyle = `rgba(${off > 0 ? hot : cold}, ${0.06 + 0.94 * much})`;
        pen.fillRect(left, row, Math.max(1, right - left), 1);
      });
    });
    const xs = ticksOf(x0, x1, this.plot.clientWidth > 600 ? 8 : 4).filter(Number.isInteger), steps = tickText(xs);
    xs.forEach((x, i) => this.labels.append(make("span", { class: "x", style: `left:${this.across(x) / 10}%` }, (i ? "" : "step ") + steps[i])));
    const ranks = ticksOf(0, rows, Math.min(rows, 6)).filter(r => Number.isInteger(r) && r < rows);
    ranks.forEach(r => this.labels.append(make("span", { class: "y", style: `top:${100 * (r + 0.5) / rows}%` }, (r ? "" : "rank ") + r * busy.ranks_per_row)));
    const last = busy.columns[busy.columns.length - 1], slowest = run.data.slowest;
    const words = `median ${readable(last.median)} ms` + (slowest && slowest.ratio ? `; slowest now: rank ${slowest.rank}, ${(100 * (slowest.ratio - 1)).toFixed(0)} % above its peers` : "");
    this.keys.textContent = this.rest = words;
    this.plot.setAttribute("aria-label", `${this.title}, ${busy.ranks} ranks; ${words}`);
  }
  point(step, event) {
    if (this.figure.hidden) return;
    this.at.hidden = step === null;
    this.unit.textContent = step === null ? this.unitText : "step " + whole(step);
    this.keys.textContent = this.rest;
    if (step === null) return;
    this.at.style.left = this.across(step) / 10 + "%";
    const column = [...this.columns].reverse().find(c => c.x0 <= step) || this.columns[0];
    if (!event || !column) return;
    const box = this.plot.getBoundingClientRect(), row = Math.min(column.ms.length - 1, Math.max(0, Math.floor((event.clientY - box.top) / box.height * column.ms.length)));
    const off = 100 * (column.ms[row] / column.median - 1);
    this.keys.textContent = `rank ${row * chosen().busy.ranks_per_row}: ${readable(column.ms[row])} ms, ${off >= 0 ? "+" : ""}${off.toFixed(0)} %`;
  }
}

const charts = [];
const pointAll = (step, source, event) => { view.at = step; for (const c of charts) c.point(step, c === source ? event : undefined); };
const stepAt = (chart, event) => { const box = chart.plot.getBoundingClientRect(), [x0, x1] = span();
  return Math.round(Math.min(x1, Math.max(x0, x0 + (event.clientX - box.left) / box.width * (x1 - x0)))); };
function listen(chart) {
  const plot = chart.plot;
  let from = null, band = null;
  plot.addEventListener("pointermove", e => {
    const step = stepAt(chart, e);
    pointAll(step, chart, e);
    if (from === null || Math.abs(e.clientX - from.x) < 6) return;
    if (!band) plot.append(band = make("div", { class: "zoom" }));
    const [x0, x1] = span(), a = 100 * (from.step - x0) / (x1 - x0), b = 100 * (step - x0) / (x1 - x0);
    band.style.left = Math.min(a, b) + "%"; band.style.width = Math.abs(a - b) + "%";
  });
  plot.addEventListener("pointerdown", e => { if (e.pointerType === "mouse" && e.button === 0) { from = { x: e.clientX, step: stepAt(chart, e) }; e.preventDefault(); plot.focus({ focusVisible: false }); } });
  plot.addEventListener("pointerup", e => {
    if (band) { const to = stepAt(chart, e); if (Math.abs(to - from.step) >= 2) view.range = [Math.min(from.step, to), Math.max(from.step, to)]; band.remove(); band = null; drawAll(); }
    from = null;
  });
  plot.addEventListener("pointerleave", () => { if (band) band.remove(); band = from = null; pointAll(null); });
  plot.addEventListener("dblclick", () => { view.range = null; drawAll(); });
  plot.addEventListener("blur", () => pointAll(null));
  plot.addEventListener("keydown", e => {
    const [x0, x1] = span(), move = Math.max(1, Math.round((x1 - x0) / (e.shiftKey ? 10 : 100)));
    const at = view.at === null ? x1 : view.at;
    const to = { ArrowLeft: at - move, ArrowRight: at + move, Home: x0, End: x1 }[e.key];
    if (e.key === "Escape") { view.range = null; pointAll(null); drawAll(); }
    if (to === undefined) return;
    e.preventDefault();
    pointAll(Math.min(x1, Math.max(x0, to)));
  });
}

const colorOf = (run, single) => several() ? `var(--run${run.index % 8})` : `var(${single})`;
const named = (run, name) => several() ? run.data.name + (name ? ", " + name : "") : name;
const simple = (curve, name, look, single) => () => shown().map(run => ({ run, bins: curveOf(run, curve), color: colorOf(run, single || "--train"), look, name: named(run, several() ? "" : name) }));
function layOut() {
  charts.length = 0;
  const loss = () => shown().flatMap(run => [
    { run, bins: curveOf(run, "loss"), color: colorOf(run, "--train"), look: "noisy", name: named(run, several() ? "" : "train"), main: true },
    { run, bins: curveOf(run, "val_loss"), color: colorOf(run, "--val"), look: "points", name: named(run, "validation"), dashed: several() }]);
  charts.push(new Chart("Loss", "nats per token", loss, { log: true, marks: true }),
    new PartsChart(), new BusyChart(),
    new Chart("Speed", "tokens per second", simple("tokens_per_second", "train", "noisy"), { fromZero: true }),
    new Chart("MFU", "% of the peak product rate", () => simple("mfu", "train", "noisy")().map(c => ({ ...c, bins: percents(c.bins) })), { fromZero: true }),
    new Chart("Step time", "ms", simple("step_ms", "train", "noisy"), { fromZero: true }),
    new Chart("Gradient norm", "before clipping", simple("grad_norm", "train", "noisy"), { fromZero: true }),
    new Chart("Learning rate", "", simple("lr", "train", "line"), { fromZero: true }),
    new Chart("Bits per byte", "held-out text", simple("bits_per_byte", "validation", "points", "--val"), {}),
    new Chart("Power", "W", simple("power_w", "train", "noisy"), { fromZero: true }));
  const names = new Set(shown().flatMap(r => Object.keys(r.curves).filter(c => c.startsWith("choices/")).map(c => c.slice(8))));
  for (const name of names) charts.push(new Chart(name, "share of questions", simple("choices/" + name, "acc", "points"), {}));
  byId("charts").replaceChildren(...charts.map(c => c.figure));
}
function drawAll() {
  for (const c of charts) c.draw();
  byId("whole").hidden = view.range === null;
  if (view.at !== null) pointAll(view.at);
}

const table = (heads, rows) => make("table", { class: "list" }, make("thead", {}, make("tr", {}, ...heads.map(h => make("th", { scope: "col" }, h)))),
  make("tbody", {}, ...rows.map(cells => make("tr", {}, ...cells.map(c => typeof c === "object" ? make("td", {}, c) : make("td", { class: /^[\d,.]+( \w+)?$/.test(c) ? "number" : undefined }, c))))));
const quiet = words => make("p", { class: "quiet" }, words);
const put = (id, key, build) => { const e = byId(id); if (e.dataset.key !== key) { e.dataset.key = key; e.replaceChildren(build()); } };
const rowsTable = rows => make("table", { class: "facts" }, make("tbody", {}, ...rows.map(([n, v]) => make("tr", {}, make("th", { scope: "row" }, n), make("td", {}, v)))));

function figures(d) {
  const last = d.last, rows = [];
  const add = (key, name, value, below) => rows.push(make("div", {}, make("dt", {}, name), make("dd", { "data-key": key }, value), make("dd", { class: "below" }, below || "")));
  add("step", "step", whole(d.step), d.steps ? (d.step > d.steps ? "train.steps is " : "of ") + whole(d.steps) : "");
  const runs = d.state === "running" && d.step > 0 && d.steps;
  add("eta", runs ? "time left" : "time of steps", time(runs ? d.eta_seconds : d.elapsed_seconds), runs ? time(d.elapsed_seconds) + " so far" : "");
  add("loss", "loss", fixed(last.loss, 4), "training");
  if (known(last.val_loss)) add("val_loss", "validation loss", fixed(last.val_loss, 4), known(last.best_val_loss) ? `best ${fixed(last.best_val_loss, 4)} at ${whole(last.best_step)}` : "");
  if (known(last.bits_per_byte)) add("bits_per_byte", "bits per byte", fixed(last.bits_per_byte, 4), "held-out text");
  add("tokens", "tokens", human(last.tokens), known(last.tokens_per_second) ? human(last.tokens_per_second) + "/s" : "");
  if (known(last.mfu)) add("mfu", "MFU", (100 * last.mfu).toFixed(1) + " %", "of the peak rate");
  add("grad_norm", "gradient norm", readable(last.grad_norm), "before clipping");
  add("lr", "learning rate", readable(last.lr), "");
  add("step_ms", "step time", known(last.step_ms) ? time(last.step_ms / 1000) : dash, known(last.data_ms) && last.data_ms >= 1 ? time(last.data_ms / 1000) + " for data" : "");
  if (known(d.goodput)) add("goodput", "goodput", (100 * d.goodput).toFixed(1) + " %", "of the wall time");
  const saved = d.checkpoints[d.checkpoints.length - 1];
  add("checkpoint", "checkpoint", saved ? "step " + whole(saved.step) : "none", saved && saved.time ? time(d.now - saved.time) + " ago" : "");
  const m = d.machine;
  if (m && known(m.power_w)) add("power_w", "power", readable(m.power_w) + " W", known(m.joules_per_token) ? readable(m.joules_per_token) + " J a token" : "");
  if (m && known(m.kwh)) add("kwh", "energy", readable(m.kwh) + " kWh", known(m.co2_g) ? readable(m.co2_g / 1000) + " kg CO\u2082" : "");
  if (m && known(m.cost)) add("cost", "cost", m.cost.toFixed(2) + " " + m.currency, known(m.projected_cost) ? m.projected_cost.toFixed(2) + " at the end" : "");
  byId("figures").replaceChildren(...rows);
}
function memoryBar(rows) {
  const all = rows.reduce((sum, [, v]) => sum + Number(v), 0);
  if (!all) return quiet("not known: the config cannot be planned here");
  const colors = ["--p0", "--p1", "--p2", "--p3", "--p4"];
  return make("div", {}, make("div", { class: "stack", role: "img", "aria-label": rows.map(([n, v]) => n + " " + bytes(Number(v))).join(", ") },
    ...rows.map(([n, v], i) => make("i", { style: `width:${100 * v / all}%;background:var(${colors[i % 5]})`, title: n + ", " + bytes(Number(v)) }))),
  make("div", { class: "legend", style: "margin-left:0" }, ...rows.map(([n, v], i) => make("span", {}, make("i", { class: "swatch", style: `background:var(${colors[i % 5]})` }), n + " ", make("b", {}, bytes(Number(v))))),
    make("span", {}, "all ", make("b", {}, bytes(all)))));
}
function details() {
  const run = chosen(), d = run.data;
  document.title = `${d.name} \u00b7 ${d.state}` + (known(d.last.loss) ? ` \u00b7 ${fixed(d.last.loss, 4)}` : "");
  byId("title").textContent = d.name;
  byId("where").textContent = byId("directory").textContent = d.directory;
  const state = byId("state");
  state.className = "status " + d.state;
  state.textContent = d.state === "silent" ? "silent for " + time(d.silent_seconds) : d.more ? `reading, ${Math.round(100 * d.read_bytes / d.file_bytes)} %` : d.state;
  const part = d.steps ? Math.min(100, 100 * d.step / d.steps) : 0;
  byId("bar").firstElementChild.style.width = part + "%";
  byId("bar").setAttribute("aria-valuenow", part.toFixed(1));
  const failed = d.exit && d.exit.code > 0 && d.state !== "running" && d.state !== "silent";
  byId("verdict").hidden = !failed;
  if (failed) byId("verdict").textContent = `ended with code ${d.exit.code}: ${d.exit.cause}` + (d.exit.host ? ` on ${d.exit.host}` : "") + (d.exit.message ? ". " + d.exit.message : "");
  figures(d);
  const events = run.events.slice().sort((a, b) => a.step - b.step).slice(-200).reverse();
  put("events", run.index + "/" + d.next.split("/")[2] + "/" + d.generation, () => events.length ? table(["step", "event", ""], events.map(e => [whole(e.step), make("span", { class: "kind " + e.event }, e.event.replace(/_/g, " ")), e.text])) : quiet("none so far"));
  const saves = d.checkpoints.slice().reverse(), age = s => s.time ? time(d.now - s.time).replace(/ \d+s$/, "").replace(/\.\d s/, " s") + " ago" : dash;
  put("checkpoints", JSON.stringify([run.index, saves.map(s => [s.step, s.problem, age(s)])]), () => saves.length ? table(["step", "size", "age", "state"], saves.map(s => [whole(s.step), s.problem ? dash : bytes(s.bytes), age(s), s.problem ? make("span", { class: "bad" }, s.problem) : "all files are there"])) : quiet("none on disk"));
  put("memory", run.index + JSON.stringify(d.memory), () => memoryBar(d.memory));
  put("facts", run.index + JSON.stringify([d.facts, d.environment, d.starts]), () => rowsTable([...d.facts, ...d.environment, ...d.starts.map((s, i) => [i ? "restart" : "start", new Date(1000 * s.time).toLocaleString() + `, ${s.ranks} rank${s.ranks > 1 ? "s" : ""}` + (s.step ? `, after step ${whole(s.step)}` : "")])]));
  put("data", run.index + JSON.stringify(d.data), () => d.data.length ? rowsTable(d.data) : quiet("no data.jsonl yet"));
  if (byId("config").textContent !== run.config) byId("config").textContent = run.config;
}
function runList() {
  byId("runs").hidden = !several();
  if (!several()) return;
  byId("runs").replaceChildren(...runs.map(run => {
    const d = run.data, name = (d ? d.name : run.name) + (d ? ` \u00b7 ${fixed(d.last.loss, 4)} at ${whole(d.step)}` : "");
    const choose = make("button", { class: run.index === view.chosen ? "chosen" : "", "aria-label": "details of " + name }, make("i", { style: `background:var(--run${run.index % 8})` }), name);
    choose.addEventListener("click", () => { view.chosen = run.index; refresh(); });
    const hide = make("button", { "aria-pressed": String(!run.hidden), "aria-label": "curves of " + name }, run.hidden ? "show" : "hide");
    hide.addEventListener("click", () => { run.hidden = !run.hidden; refresh(); });
    return make("li", {}, choose, " ", hide);
  }));
}
let names = "";
function refresh() {
  const now = JSON.stringify([runs.length, shown().map(r => Object.keys(r.curves).filter(c => c.startsWith("choices/")))]);
  if (now !== names) { names = now; layOut(); }
  runList();
  if (chosen() && chosen().data) details();
  drawAll();
}

// Columns of a busy map that share a greater width, with their mean.
function wider(columns, width, median) {
  const out = [];
  for (const c of columns) {
    const last = out[out.length - 1];
    if (!last || Math.floor(last.x0 / width) !== Math.floor(c.x0 / width)) { out.push({ ...c, n: 1 }); continue; }
    last.ms = last.ms.map((ms, row) => (ms * last.n + c.ms[row]) / (last.n + 1));
    ++last.n; last.x1 = c.x1; last.median = median(last.ms);
  }
  return out;
}
function take(run, answer) {
  if (answer.whole) { run.curves = {}; run.events = []; run.busy = null; run.config = answer.config || ""; }
  for (const [name, curve] of Object.entries(answer.curves)) run.curves[name] = extend(run.curves[name], curve);
  run.events = run.events.concat(answer.events).slice(-2000);
  const b = answer.busy;
  if (b) {
    const median = list => { const s = list.slice().sort((x, y) => x - y); return (s[(s.length - 1) >> 1] + s[s.length >> 1]) / 2 || 1; };
    const fresh = b.columns.map(([x0, x1, ms]) => ({ x0, x1, ms, median: median(ms) }));
    let old = run.busy && run.busy.ranks === b.ranks ? run.busy.columns : [];
    if (old.length && run.busy.width < b.width) old = wider(old, b.width, median);
    const columns = old.filter(c => c.x0 < fresh[0].x0).concat(fresh);
    const every = columns.length > 1 ? columns[columns.length - 1].x0 - columns[columns.length - 2].x0 : 1;
    run.busy = { ranks: b.ranks, ranks_per_row: b.ranks_per_row, width: b.width, columns, every };
  }
  run.data = { ...(run.data || {}), ...answer };  // while a long file is read, answers have fewer members
}
async function poll(run) {
  const response = await fetch(`run/${run.index}/${run.data ? run.data.next : ""}`, { cache: "no-store" });
  if (!response.ok) throw new Error(await response.text());
  take(run, await response.json());
}
async function loop() {
  let wait = 1000;
  try {
    await Promise.all(runs.map(poll));
    refresh();
    if (runs.some(r => r.data.more)) wait = 300;
    else if (document.hidden) wait = 5000;
  } catch (problem) {
    byId("state").className = "status lost";
    byId("state").textContent = "no answer from trireme watch: " + problem.message;
    wait = 3000;
  }
  setTimeout(loop, wait);
}
async function begin() {
  try {
    const answer = await (await fetch("runs", { cache: "no-store" })).json();
    answer.runs.forEach((r, index) => runs.push({ index, name: r.name, data: null, curves: {}, events: [], busy: null, hidden: false, config: "" }));
    loop();
  } catch (problem) {
    byId("state").textContent = "no answer from trireme watch";
    setTimeout(begin, 3000);
  }
}
byId("smoothing").addEventListener("input", e => { view.smoothing = +e.target.value; drawAll(); });
for (const id of ["log", "marks"]) byId(id).addEventListener("click", e => { view[id] = !view[id]; e.target.setAttribute("aria-pressed", String(view[id])); drawAll(); });
byId("whole").addEventListener("click", () => { view.range = null; drawAll(); });
addEventListener("resize", () => drawAll());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll());
begin();
