// The recommender page: one ES module without dependencies.
//
// TensorBoard imports it in an empty iframe and calls render(). A static page
// has the answers of all routes in an element and calls render() itself.
// Text that comes from records reaches the page by textContent only.

const SVG = "http://www.w3.org/2000/svg";
const RUNS_SHOWN = 200;
const GROUPS_SHOWN = 50;
const ROWS_SHOWN = 30;
const Z_LIMIT = 6;
const POLL_MS = 500; // a record is on the page within two seconds, of which the index takes one
const LEAST_REST_MS = 3000;
const LIST_REST_MS = 30000;
const STATE_KEY = "p.rec_summary.state";

const METRIC_NAMES = {
  auc: "AUC",
  normalised_entropy: "Normalised entropy",
  ne: "Normalised entropy",
  calibration: "Calibration",
  rmse: "RMSE",
  accuracy: "Accuracy",
  click_rate: "Click rate",
  traffic: "Traffic",
};
const METRIC_HINTS = {
  auc: "higher is better",
  normalised_entropy: "lower is better",
  calibration: "1 is best",
  rmse: "lower is better",
  accuracy: "higher is better",
  loss: "lower is better",
};

const STYLE = `
:root { color-scheme: light; --bg:#fff; --panel:#fff; --ink:#1d2127; --soft:#5b6470; --line:#dfe3e8;
  --grid:#eef0f3; --accent:#1a63d6; --accent-soft:#1a63d61a; --null:#c9ced5; --mid:#f7f7f7; --bad:#b42318; }
:root.dark { color-scheme: dark; --bg:#16191d; --panel:#1c2025; --ink:#e3e6ea; --soft:#9aa4b0; --line:#333940;
  --grid:#282d33; --accent:#6ea8fe; --accent-soft:#6ea8fe26; --null:#565d66; --mid:#22262b; --bad:#ff8a7a; }
* { box-sizing:border-box; } [hidden] { display:none !important; }
body { margin:0; background:var(--bg); color:var(--ink); font:13px/1.45 system-ui,Roboto,"Segoe UI",sans-serif; }
button,input,select { font:inherit; color:inherit; background:var(--panel); border:1px solid var(--line);
  border-radius:4px; padding:2px 8px; min-height:26px; }
::placeholder { color:var(--soft); opacity:1; }
button { cursor:pointer; } button:hover { border-color:var(--accent); }
button[aria-pressed=true] { border-color:var(--accent); background:var(--accent-soft); color:var(--accent); }
:focus-visible { outline:2px solid var(--accent); outline-offset:1px; }
.bar { position:sticky; top:0; z-index:5; display:flex; flex-wrap:wrap; gap:8px 14px; align-items:center;
  padding:6px 16px; background:var(--panel); border-bottom:1px solid var(--line); }
.bar .live { margin-left:auto; color:var(--soft); font-variant-numeric:tabular-nums; min-width:120px; text-align:right; }
.bar label { color:var(--soft); display:inline-flex; gap:6px; align-items:center; }
.runs { position:relative; } .runs > .list { position:absolute; top:31px; left:0; width:440px; max-width:90vw;
  background:var(--panel); border:1px solid var(--line); border-radius:6px; box-shadow:0 6px 24px #0003; padding:8px; }
.runs .items { max-height:340px; overflow:auto; margin-top:6px; }
.runs .items label { display:flex; color:var(--ink); padding:2px 4px; overflow-wrap:anywhere; }
.runs .items label:hover { background:var(--accent-soft); }
.runs .items .step { margin-left:auto; color:var(--soft); white-space:nowrap; }
.error { color:var(--bad); padding:4px 16px; overflow-wrap:anywhere; }
main { padding:4px 16px 40px; }
section { margin:14px 0 0; } h2 { font-size:14px; font-weight:600; margin:0 0 6px; }
h3 { font-size:13px; font-weight:600; margin:6px 0; color:var(--soft); }
.legend { display:flex; flex-wrap:wrap; gap:2px 14px; color:var(--soft); font-size:12px; margin-bottom:4px; }
.swatch { display:inline-block; width:12px; height:3px; margin-right:5px; vertical-align:middle; }
.cards { display:grid; grid-template-columns:repeat(auto-fit,minmax(280px,1fr)); gap:8px; }
.groups { display:flex; flex-wrap:wrap; gap:4px 20px; } .group { flex:3 1 880px; min-width:0; } .group.one { flex:1 1 280px; }
.card { border:1px solid var(--line); border-radius:6px; padding:6px 10px; background:var(--panel); min-width:0; }
.card .head { display:flex; align-items:baseline; gap:8px; } .card .name { font-weight:600; white-space:nowrap; }
.card .hint { color:var(--soft); font-size:12px; margin-left:auto; text-align:right; }
.card .value { font-size:22px; font-weight:600; font-variant-numeric:tabular-nums; line-height:1.25; }
.card .value small { font-size:12px; font-weight:400; color:var(--soft); }
svg { display:block; width:100%; overflow:hidden; } svg text { fill:var(--soft); font-size:12px; }
svg .grid { stroke:var(--grid); } svg .axis { stroke:var(--line); } svg .mark { stroke:var(--soft); stroke-dasharray:2 3; }
svg .mark.incident, svg .mark.control, svg .mark.alert { stroke:var(--bad); } svg .cross { stroke:var(--soft); }
.shade { fill:var(--bg); opacity:.65; } svg .hit { stroke:transparent; stroke-width:9; }
details { color:var(--soft); font-size:12px; } details summary { cursor:pointer; width:max-content; }
details .scroll { max-height:220px; overflow:auto; }
table { border-collapse:collapse; font-variant-numeric:tabular-nums; } th,td { padding:2px 10px 2px 0; text-align:right;
  border-bottom:1px solid var(--grid); white-space:nowrap; } th:first-child,td:first-child { text-align:left; }
th { color:var(--soft); font-weight:500; } td.best { color:var(--accent); font-weight:600; }
.scroll { overflow:auto; }
.sentence { margin:0 0 6px; overflow-wrap:anywhere; }
.finding { display:grid; grid-template-columns:110px minmax(0,1.5fr) minmax(160px,.8fr) 80px minmax(150px,.8fr); gap:12px;
  align-items:center; width:100%; text-align:left; border:0; border-top:1px solid var(--grid); border-radius:0; padding:3px 6px;
  background:none; }
.finding:hover { background:var(--accent-soft); } .finding.also,.finding.outside { color:var(--soft); }
.finding.also svg { opacity:.62; } .finding.outside svg { opacity:.35; }
.finding svg { height:24px; } .num { font-variant-numeric:tabular-nums; } .soft { color:var(--soft); }
.tools { display:flex; flex-wrap:wrap; gap:6px; align-items:center; margin-bottom:6px; }
.tools .gap { width:10px; } .scale { display:inline-flex; gap:6px; align-items:center; margin-left:auto; color:var(--soft); font-size:12px; }
.scale canvas { width:120px; height:10px; } .nullbox { width:12px; height:10px; background:var(--null); display:inline-block; }
.map { border:1px solid var(--line); border-radius:6px; background:var(--panel); overflow:hidden; }
.map .view { overflow:auto; position:relative; } .map .inner { position:relative; display:grid; grid-template-columns:200px minmax(0,1fr) 64px; }
.names .row { display:block; width:100%; height:18px; min-height:0; line-height:18px; border:0; border-radius:0; padding:0 8px; text-align:left;
  font-size:12px; overflow:hidden; white-space:nowrap; background:none; }
.names .row:hover,.names .row.on { background:var(--accent-soft); color:var(--accent); }
.tops div { height:18px; line-height:18px; font-size:12px; text-align:right; padding-right:8px; color:var(--soft); font-variant-numeric:tabular-nums; }
.plane { position:relative; cursor:crosshair; touch-action:none; } .plane canvas { display:block; width:100%; height:100%; image-rendering:pixelated; position:absolute; inset:0; }
.plane .box { position:absolute; top:0; bottom:0; pointer-events:none; } .box.out { background:var(--bg); opacity:.65; }
.box.sel { background:var(--accent-soft); border:solid var(--accent); border-width:0 1px; } .box.line { border-left:1px solid var(--ink); }
.mapaxis { position:relative; height:20px; margin:0 64px 0 200px; font-size:12px; color:var(--soft); }
.mapaxis span { position:absolute; top:1px; transform:translateX(-50%); white-space:nowrap; }
.curve { border-top:1px solid var(--line); padding:6px 10px; } .curve .head { display:flex; gap:10px; align-items:center; }
.curve .head button { margin-left:auto; }
.tip { position:fixed; z-index:9; pointer-events:none; max-width:420px; background:var(--panel); border:1px solid var(--line); border-radius:5px;
  box-shadow:0 4px 16px #0003; padding:4px 8px; font-size:12px; font-variant-numeric:tabular-nums; overflow-wrap:anywhere; white-space:pre-line; }
.empty { color:var(--soft); margin:2px 0; } code { font-family:ui-monospace,monospace; font-size:12px; color:var(--ink); }
@media (prefers-reduced-motion:no-preference) { .flash { animation:flash 1.2s; } } @keyframes flash { from { background:var(--accent); } }
`;

// ---- small helpers ---------------------------------------------------------

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  return fill(element, attributes, children);
}

function draw(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "style") for (const [k, v] of Object.entries(value)) element.style.setProperty(k, v);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) element.append(child);
  return element;
}

function cut(text, most) {
  const letters = Array.from(String(text));
  if (letters.length <= most) return letters.join("");
  const end = Math.floor((most - 1) / 2);
  return letters.slice(0, most - 1 - end).join("") + "…" + letters.slice(letters.length - end).join("");
}

// Names come from data and may be of any script or length.
function named(text, most = 60) {
  const element = make("bdi", { title: String(text) });
  element.textContent = cut(text, most);
  return element;
}

// Formats of the browser cost more to make than to use; tables have thousands of numbers.
const formats = new Map();
function format(digits) {
  if (!formats.has(digits)) formats.set(digits, new Intl.NumberFormat("en-US", digits ? { maximumSignificantDigits: digits } : {}));
  return formats.get(digits);
}
const DAY = new Intl.DateTimeFormat("sv-SE");
const TIME = new Intl.DateTimeFormat("sv-SE", { timeStyle: "medium" });

function number(value, digits = 4) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return format(0).format(value);
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(digits - 2);
  return format(Math.max(digits, Math.floor(Math.log10(size)) + 1)).format(value);
}

function compact(value) {
  const size = Math.abs(value);
  if (size >= 1e9) return +(value / 1e9).toPrecision(4) + "G";
  if (size >= 1e6) return +(value / 1e6).toPrecision(4) + "M";
  if (size >= 1e4) return +(value / 1e3).toPrecision(4) + "k";
  if (size !== 0 && size < 1e-4) return value.toExponential(1);
  return String(+value.toPrecision(5));
}

function clock(seconds, span) {
  const date = new Date(seconds * 1000);
  const day = DAY.format(date);
  const time = TIME.format(date);
  if (span === undefined) return `${day} ${time}`;
  return span > 2 * 86400 ? day.slice(5) : span < 600 ? time : time.slice(0, 5);
}

// About so many ticks, at least two: one alone gives no scale.
function ticks(low, high, count) {
  if (!(high > low)) return [low];
  const raw = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(raw));
  const unit = [1, 2, 5, 10].map((m) => m * power).find((m) => m >= raw * 0.999);
  const found = [];
  for (let i = Math.ceil(low / unit - 1e-9); i * unit <= high + unit * 1e-9; i++) found.push(i * unit);
  return found.length < 2 && count < 12 ? ticks(low, high, count + 1) : found;
}

function timeTicks(low, high, count) {
  const units = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 604800, 2592000];
  const unit = units.find((u) => u >= (high - low) / count) || 31536000;
  const found = [];
  for (let t = Math.ceil(low / unit) * unit; t <= high; t += unit) found.push(t);
  return found;
}

function nearest(sorted, value) {
  let low = 0;
  let high = sorted.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low > 0 && value - sorted[low - 1] < sorted[low] - value ? low - 1 : low;
}

// Lets the browser paint and answer input between two pieces of work.
function breathe() {
  return new Promise((resolve) => setTimeout(resolve, 0));
}

function metricName(metric) {
  return METRIC_NAMES[metric] || metric;
}

// ---- asking ----------------------------------------------------------------

let stored = null;

function readStored() {
  const element = document.getElementById("rec-summary-data");
  stored = element ? JSON.parse(element.textContent).routes : null;
}

// about: pairs of the name of a parameter and its value.
async function ask(route, about = []) {
  const key = about.length ? `${route}?${about.map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join("&")}` : route;
  if (stored) {
    if (Object.hasOwn(stored, key)) {
      if (stored[key]?.error !== undefined) throw new Error(stored[key].error);
      return stored[key];
    }
    throw new Error(`This page has no answer for ${key}.`);
  }
  let response;
  try {
    response = await fetch(key, { cache: "no-store" });
  } catch (error) {
    throw new Error(`The server does not answer (${route}): ${error.message}`);
  }
  if (!response.ok) throw new Error(`${route}: ${response.status} ${cut((await response.text()).trim(), 400)}`);
  return response.json();
}

// ---- state in the address --------------------------------------------------

const state = { runs: null, groups: [], window: null, x: "step", range: null, maps: {} };

function addressWindow() {
  try {
    if (window.parent !== window && window.parent.location.hash !== undefined) return window.parent;
  } catch (error) {
    // A parent of another origin: this frame keeps its own address.
  }
  return window;
}

function hashParts(hash) {
  return hash.replace(/^#/, "").split("&").filter((part) => part !== "");
}

function loadState() {
  const part = hashParts(addressWindow().location.hash).find((p) => p.startsWith(STATE_KEY + "="));
  if (!part) return;
  try {
    const read = JSON.parse(decodeURIComponent(part.slice(STATE_KEY.length + 1)));
    if (Array.isArray(read.runs)) state.runs = read.runs.filter((run) => typeof run === "string");
    if (Array.isArray(read.groups)) state.groups = read.groups.filter((group) => typeof group === "string");
    if (typeof read.window === "string") state.window = read.window;
    if (typeof read.focus === "string") state.focus = read.focus;
    if (read.x === "time") state.x = "time";
    if (Array.isArray(read.range) && read.range.length === 2 && read.range.every(Number.isFinite)) state.range = read.range;
    if (read.maps && typeof read.maps === "object") state.maps = read.maps;
  } catch (error) {
    // A damaged address is the same as none.
  }
}

function saveState() {
  const target = addressWindow();
  try {
    const text = encodeURIComponent(JSON.stringify({ ...state, runs: [...state.runs, ...awaited] })).replace(/'/g, "%27");
    const rest = hashParts(target.location.hash).filter((part) => !part.startsWith(STATE_KEY + "="));
    if (target !== window && rest.length === 0) rest.push("rec_summary");
    const hash = "#" + [...rest, `${STATE_KEY}=${text}`].join("&");
    if (target.location.hash !== hash) target.history.replaceState(target.history.state, "", hash);
  } catch (error) {
    // Without an address to write, the page works and only forgets its state.
  }
}

// ---- what all parts share: colours, size, pointer ---------------------------

const PALETTE_LIGHT = ["#1f6feb", "#c2570c", "#0a7d5a", "#a3348f", "#7a6a00", "#0b7f9e", "#c0264b", "#555d68"];
const PALETTE_DARK = ["#6ea8fe", "#f2a65a", "#4cc9a0", "#e58fd5", "#d9c84a", "#5cc8e6", "#ff8fa8", "#b3bcc7"];
const colourOf = new Map();

// A run or a group keeps its colour while others come and go.
function colour(run) {
  if (!colourOf.has(run)) {
    const kept = new Set([...state.runs, ...state.groups.map(groupLabel)]);
    for (const old of colourOf.keys()) if (!kept.has(old)) colourOf.delete(old);
    const used = new Set(colourOf.values());
    const free = PALETTE_LIGHT.findIndex((_, index) => !used.has(index));
    colourOf.set(run, free < 0 ? colourOf.size % PALETTE_LIGHT.length : free);
  }
  return (isDark() ? PALETTE_DARK : PALETTE_LIGHT)[colourOf.get(run)];
}

function isDark() {
  return document.documentElement.classList.contains("dark");
}

function followTheme(changed) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  let body = null;
  try {
    if (window.parent !== window) body = window.parent.document.body;
  } catch (error) {
    // A parent of another origin: the system's choice holds.
  }
  const look = () => {
    const dark = body ? body.classList.contains("dark-mode") : system.matches;
    if (dark === isDark()) return;
    document.documentElement.classList.toggle("dark", dark);
    changed();
  };
  system.addEventListener("change", look);
  if (body) new MutationObserver(look).observe(body, { attributes: true, attributeFilter: ["class"] });
  look();
}

const redraws = new WeakMap();
const sizes = new ResizeObserver((entries) => {
  for (const entry of entries) redraws.get(entry.target)?.(entry.contentRect.width);
});

function sized(element, redraw) {
  redraws.set(element, redraw);
  sizes.observe(element);
  return element;
}

let tipBox;
function tip(event, ...content) {
  tipBox.replaceChildren(...content);
  tipBox.hidden = false;
  const box = tipBox.getBoundingClientRect();
  const left = event.clientX + 14 + box.width > innerWidth ? event.clientX - 14 - box.width : event.clientX + 14;
  const top = event.clientY + 14 + box.height > innerHeight ? event.clientY - 14 - box.height : event.clientY + 14;
  tipBox.style.left = `${Math.max(2, left)}px`;
  tipBox.style.top = `${Math.max(2, top)}px`;
}
function noTip() {
  tipBox.hidden = true;
}

// The crosshair: one step, which every chart and map in the page shows.
let crossStep = null;
const crossed = new Set();
function cross(step) {
  crossStep = step;
  for (const item of crossed) {
    if (item.element.isConnected) item.show(step);
  }
}

function inRange(step) {
  return !state.range || (step >= state.range[0] && step <= state.range[1]);
}

function inside(points) {
  const kept = [];
  for (let i = 0; i < points.step.length; i++) if (inRange(points.step[i])) kept.push(i);
  return kept;
}

function xOf(points, i) {
  return state.x === "time" ? points.wall_time[i] : points.step[i];
}

function tableView(label, headings, rows) {
  const scroll = make("div", { class: "scroll", tabindex: 0 });
  const details = make("details", { "data-key": label }, make("summary", {}, "Table"), scroll);
  details.addEventListener("toggle", () => {
    if (!details.open) return;
    const body = make("tbody");
    for (const row of rows().slice(-500)) body.append(make("tr", {}, row.map((cell) => make("td", {}, cell))));
    scroll.replaceChildren(
      make("table", { "aria-label": label }, make("thead", {}, make("tr", {}, headings.map((h) => make("th", {}, h)))), body),
    );
  });
  return details;
}

// ---- line charts -------------------------------------------------------------

// The band around a point: the standard error of a run, the extremes of a group. Null without one.
function bounds(points, i) {
  if (points.value[i] === null) return null;
  if (points.least) return [points.least[i], points.greatest[i]];
  const error = points.error?.[i];
  return error === null || error === undefined ? null : [points.value[i] - 1.96 * error, points.value[i] + 1.96 * error];
}

function spread(points, i) {
  const band = bounds(points, i);
  if (!band) return "";
  return points.least ? `${number(band[0])} to ${number(band[1])}` : `± ${number(1.96 * points.error[i], 2)}`;
}

// series: [{run, step, wall_time, value, and error or least and greatest}], marks: [{kind, step, wall_time, text, run}]
function chart(label, series, marks, domain, height) {
  const box = make("div", { class: "chart" });
  let scale = null;
  const item = { element: box, show: () => {} };
  const redraw = (width) => {
    if (width < 40) return;
    const left = 52;
    const right = 8;
    const top = 6;
    const bottom = 20;
    let low = Infinity;
    let high = -Infinity;
    const kept = series.map(inside);
    series.forEach((points, s) => {
      for (const i of kept[s]) {
        const value = points.value[i];
        if (value === null) continue;
        low = Math.min(low, value);
        high = Math.max(high, value);
      }
    });
    const bare = [low, high];
    // The band widens the axis, though not without end: the line stays readable.
    const most = Math.max((high - low) * 0.75, Math.abs(high) * 1e-3);
    series.forEach((points, s) => {
      for (const i of kept[s]) {
        const band = bounds(points, i);
        if (!band) continue;
        low = Math.max(bare[0] - most, Math.min(low, band[0]));
        high = Math.min(bare[1] + most, Math.max(high, band[1]));
      }
    });
    if (low > high) [low, high] = [0, 1];
    if (low === high) [low, high] = [low - (Math.abs(low) * 0.05 || 1), high + (Math.abs(high) * 0.05 || 1)];
    const [first, last] = domain();
    const x = (v) => left + ((v - first) / (last - first || 1)) * (width - left - right);
    const y = (v) => top + ((high - v) / (high - low)) * (height - top - bottom);
    const svg = draw("svg", { width, height, role: "img", "aria-label": label });
    for (const v of ticks(low, high, 3)) {
      svg.append(
        draw("line", { class: "grid", x1: left, x2: width - right, y1: y(v), y2: y(v) }),
        draw("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, compact(v)),
      );
    }
    const count = Math.max(2, Math.floor(width / 90));
    const along = state.x === "time" ? timeTicks(first, last, count) : ticks(first, last, count);
    for (const v of along) {
      const anchor = x(v) > width - 30 ? "end" : "middle";
      svg.append(
        draw("line", { class: "axis", x1: x(v), x2: x(v), y1: height - bottom, y2: height - bottom + 4 }),
        draw("text", { x: anchor === "end" ? width - 2 : x(v), y: height - 4, "text-anchor": anchor }, state.x === "time" ? clock(v, last - first) : compact(v)),
      );
    }
    svg.append(draw("line", { class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }));
    const clip = "c" + Math.random().toString(36).slice(2);
    const plot = draw("g", { "clip-path": `url(#${clip})` });
    svg.append(draw("clipPath", { id: clip }, draw("rect", { x: left, y: 0, width: width - left - right, height: height - bottom })), plot);
    series.forEach((points, s) => {
      const thin = thinned(points, kept[s], Math.max(50, width));
      let line = "";
      let pen = "M";
      const upper = [];
      const lower = [];
      let alone = 0;
      for (const i of thin) {
        const value = points.value[i];
        if (value === null) {
          pen = "M";
          continue;
        }
        const px = x(xOf(points, i)).toFixed(1);
        line += `${pen}${px},${y(value).toFixed(1)}`;
        pen = "L";
        alone++;
        const band = bounds(points, i);
        if (band) {
          lower.push(`${px},${y(band[0]).toFixed(1)}`);
          upper.push(`${px},${y(band[1]).toFixed(1)}`);
        }
      }
      const ink = colour(points.run);
      if (upper.length > 1) {
        plot.append(draw("path", { d: `M${upper.join("L")}L${lower.reverse().join("L")}Z`, fill: ink, opacity: 0.15 }));
      }
      plot.append(draw("path", { d: line, fill: "none", stroke: ink, "stroke-width": 1.5, "stroke-linejoin": "round" }));
      if (alone === 1) {
        const i = thin.find((at) => points.value[at] !== null);
        plot.append(draw("circle", { cx: x(xOf(points, i)), cy: y(points.value[i]), r: 3, fill: ink }));
      }
    });
    for (const mark of marks) {
      if (!inRange(mark.step)) continue;
      const at = x(state.x === "time" ? mark.wall_time : mark.step);
      const hit = draw("line", { class: "hit", x1: at, x2: at, y1: top, y2: height - bottom });
      hit.addEventListener("pointermove", (event) => {
        event.stopPropagation();
        tip(event, `${mark.kind} at step ${number(mark.step)}, ${clock(mark.wall_time)}\n`, named(mark.text, 300));
      });
      plot.append(draw("line", { class: `mark ${mark.kind}`, x1: at, x2: at, y1: top, y2: height - bottom }), hit);
    }
    const line = draw("line", { class: "cross", y1: top, y2: height - bottom, visibility: "hidden" });
    const dots = series.map((points) => draw("circle", { r: 3, fill: colour(points.run), visibility: "hidden" }));
    svg.append(line, ...dots);
    scale = { first, last, left, width: width - left - right };
    item.show = (step) => {
      let at = null;
      series.forEach((points, s) => {
        const i = step === null || !points.step.length ? -1 : nearest(points.step, step);
        const shown = i >= 0 && inRange(points.step[i]) && points.value[i] !== null;
        dots[s].setAttribute("visibility", shown ? "visible" : "hidden");
        if (!shown) return;
        const px = x(xOf(points, i));
        if (at === null) at = px;
        dots[s].setAttribute("cx", px);
        dots[s].setAttribute("cy", y(points.value[i]));
      });
      line.setAttribute("visibility", at === null ? "hidden" : "visible");
      if (at !== null) {
        line.setAttribute("x1", at);
        line.setAttribute("x2", at);
      }
    };
    box.replaceChildren(svg);
    item.show(crossStep);
  };
  box.addEventListener("pointermove", (event) => {
    if (!scale || !series.length) return;
    const at = scale.first + ((event.clientX - box.getBoundingClientRect().left - scale.left) / scale.width) * (scale.last - scale.first);
    const points = series.find((p) => p.step.length);
    if (!points) return;
    const step = points.step[nearest(state.x === "time" ? points.wall_time : points.step, at)];
    cross(step);
    const content = [`step ${number(step)}`];
    for (const other of series) {
      if (!other.step.length) continue;
      const i = nearest(other.step, step);
      content.push(make("div", {}, make("span", { class: "swatch", style: { background: colour(other.run) } }), named(other.run, 40),
        `  ${number(other.value[i])} ${spread(other, i)}`));
    }
    const i = nearest(points.step, step);
    content.push(make("div", { class: "soft" }, clock(points.wall_time[i])));
    tip(event, ...content);
  });
  box.addEventListener("pointerleave", () => {
    noTip();
    cross(null);
  });
  box.style.setProperty("height", `${height}px`);
  crossed.add(item);
  return sized(box, redraw);
}

// At most two points a pixel: the least and the largest of each stretch.
function thinned(points, kept, width) {
  if (kept.length <= 2 * width) return kept;
  const result = [];
  const stretch = kept.length / width;
  for (let b = 0; b < width; b++) {
    let low = -1;
    let high = -1;
    for (let k = Math.floor(b * stretch); k < Math.min(kept.length, Math.floor((b + 1) * stretch)); k++) {
      const i = kept[k];
      if (points.value[i] === null) continue;
      if (low < 0 || points.value[i] < points.value[low]) low = i;
      if (high < 0 || points.value[i] > points.value[high]) high = i;
    }
    if (low < 0) continue;
    if (low === high) result.push(low);
    else result.push(Math.min(low, high), Math.max(low, high));
  }
  return result;
}

// ---- data of the chosen runs ---------------------------------------------------

const data = { runs: [], groups: [], source: "", answers: new Map(), shown: new Map() };

function answer(route, run) {
  return data.answers.get(`${route} ${run}`)?.value;
}

function failure(route, run) {
  return data.answers.get(`${route} ${run}`)?.error;
}

async function load(route, run, map = undefined) {
  const key = map === undefined ? `${route} ${run}` : `${route} ${run} ${map}`;
  const about = route === "group" ? [["group", run]] : [["run", run]];
  if (map !== undefined) about.push(["map", map]);
  const began = performance.now();
  const entry = data.answers.get(key) || {};
  data.answers.set(key, entry);
  if (entry.busy) return;
  entry.busy = true;
  try {
    entry.value = await ask(route, about);
    entry.error = undefined;
  } catch (error) {
    entry.error = error.message;
  }
  entry.busy = false;
  entry.took = performance.now() - began;
  entry.at = performance.now();
}

function focus() {
  return state.focus && state.runs.includes(state.focus) ? state.focus : state.runs[0];
}

function groupLabel(group) {
  return `${group} (mean)`;
}

// The curves of the chosen runs and groups, by the name that they are drawn under.
function curves() {
  const found = [...state.runs.map((run) => [run, answer("quality", run)]), ...state.groups.map((group) => [groupLabel(group), answer("group", group)])];
  return found.filter(([, curve]) => curve);
}

function windows() {
  const found = new Set();
  for (const [, quality] of curves()) {
    for (const task of quality.tasks) {
      for (const metric of task.metrics) for (const w of metric.windows) found.add(w.window);
    }
  }
  return [...found];
}

function chosenWindow(all) {
  if (state.window && all.includes(state.window)) return state.window;
  return all.find((w) => w.startsWith("last_")) || all.find((w) => w.startsWith("decayed_")) || all[0];
}

function extent() {
  let low = Infinity;
  let high = -Infinity;
  const take = (points) => {
    if (!points) return;
    for (const i of state.range ? inside(points) : [0, points.step.length - 1]) {
      const v = i >= 0 ? xOf(points, i) : undefined;
      if (v === undefined || v === null) continue;
      low = Math.min(low, v);
      high = Math.max(high, v);
    }
  };
  for (const [, quality] of curves()) {
    take(quality.loss);
    for (const task of quality.tasks) for (const m of task.metrics) for (const w of m.windows) take(w);
  }
  return low <= high ? [low, high] : [0, 1];
}

// ---- sections -------------------------------------------------------------------

const parts = {};

function section(part, title) {
  const heading = make("h2", { id: `h-${part}` }, title);
  const body = make("div");
  const element = make("section", { "data-part": part, "aria-labelledby": `h-${part}` }, heading, body);
  parts[part] = { element, body, heading };
  return element;
}

// A new body keeps what a person did to the old one: scrolled, opened, focused.
function replace(part, children) {
  const { body } = parts[part];
  const scrolls = new Map();
  for (const view of body.querySelectorAll("[data-scroll]")) scrolls.set(view.dataset.scroll, [view.scrollTop, view.scrollLeft]);
  const open = new Set([...body.querySelectorAll("details[open]")].map((d) => d.dataset.key));
  const active = body.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
  const height = body.offsetHeight;
  body.style.setProperty("min-height", `${height}px`);
  body.replaceChildren(...children.filter(Boolean));
  for (const item of crossed) if (!item.element.isConnected) crossed.delete(item);
  for (const details of body.querySelectorAll("details")) if (open.has(details.dataset.key)) details.open = true;
  for (const view of body.querySelectorAll("[data-scroll]")) {
    const was = scrolls.get(view.dataset.scroll);
    if (was) [view.scrollTop, view.scrollLeft] = was;
  }
  if (active) [...body.querySelectorAll("[data-focus]")].find((e) => e.dataset.focus === active)?.focus({ preventScroll: true });
  requestAnimationFrame(() => requestAnimationFrame(() => body.style.removeProperty("min-height")));
}

function waiting(route, run) {
  const error = failure(route, run);
  if (error) return make("p", { class: "empty" }, error);
  return answer(route, run) === undefined ? make("p", { class: "empty" }, "Loading …") : null;
}

function empty(...content) {
  return make("p", { class: "empty" }, content);
}

function paintHeads() {
  const children = [];
  const all = windows();
  const chosen = chosenWindow(all);
  const drawn = curves();
  if (!drawn.length) {
    const missing = awaited.length ? empty("Not there yet: ", awaited.map((run) => [named(run), " "])) : empty("No run is chosen.");
    replace("heads", [state.runs.length ? waiting("quality", state.runs[0]) : missing]);
    return;
  }
  const marks = [];
  for (const [run, quality] of drawn) for (const mark of quality.marks || []) marks.push({ ...mark, run });
  const domain = extent();
  if (drawn.length > 1) {
    children.push(make("div", { class: "legend" }, drawn.map(([run, { runs }]) =>
      make("span", {}, make("span", { class: "swatch", style: { background: colour(run) } }), named(run), runs ? ` of at most ${runs.length} runs, from the least to the greatest` : ""))));
  }
  const tasks = new Map();
  const losses = [];
  for (const [run, quality] of drawn) {
    if (quality.loss) losses.push({ run, ...quality.loss });
    for (const task of quality.tasks) {
      if (!tasks.has(task.task)) tasks.set(task.task, new Map());
      const metrics = tasks.get(task.task);
      for (const metric of task.metrics) {
        const points = metric.windows.find((w) => w.window === chosen) || metric.windows[0];
        if (!points) continue;
        if (!metrics.has(metric.metric)) metrics.set(metric.metric, []);
        metrics.get(metric.metric).push({ run, ...points });
      }
    }
  }
  const groups = make("div", { class: "groups" });
  for (const [task, metrics] of tasks) {
    groups.append(make("div", { class: "group" }, task ? make("h3", {}, "Task ", named(task)) : null,
      make("div", { class: "cards" }, [...metrics].map(([metric, series]) => card(task, metric, series, marks, domain, chosen)))));
  }
  if (!tasks.size) children.push(empty("No recommender metrics. Record them with ", make("code", {}, "RecommenderMetrics"), "."));
  if (losses.length) {
    groups.append(make("div", { class: "group one" }, [...tasks.keys()].some(Boolean) ? make("h3", {}, "Training") : null,
      make("div", { class: "cards" }, card("", "loss", losses, marks, domain, chosen))));
  }
  children.push(groups);
  replace("heads", children);
}

function card(task, metric, series, marks, domain, chosen) {
  const title = metric === "loss" ? "Loss" : metricName(metric);
  const first = series[0];
  let i = first.step.length - 1;
  while (i > 0 && first.value[i] === null) i--;
  const value = make("div", { class: "value" }, number(first.value[i]), " ",
    make("small", {}, i >= 0 ? `${spread(first, i)} ` : "", i >= 0 ? `at step ${number(first.step[i])}` : ""));
  const headings = ["Step", "Time", "Run", title, "± 95 %, or least to greatest"];
  const rows = () => series.flatMap((points) => inside(points).map((k) => [number(points.step[k]), clock(points.wall_time[k]), named(points.run, 40),
    number(points.value[k], 6), spread(points, k) || "–"]));
  return make("article", { class: "card", "data-task": task || "", "data-metric": metric },
    make("div", { class: "head" }, make("span", { class: "name" }, title),
      make("span", { class: "hint" }, METRIC_HINTS[metric] || "", first.window && first.window !== chosen ? ` · ${first.window.replaceAll("_", " ")}` : first.tag && first.tag !== "loss" ? [" · ", named(first.tag, 20)] : "")),
    value, chart(`${title} over ${state.x}`, series, marks, () => domain, 130), tableView(`${task} ${title}`, headings, rows));
}

// ---- findings ---------------------------------------------------------------------

const SECTION_OF = { slice: "slices", mix: "slices", rate: "slices", feature: "features", table: "tables", rank: "ranks" };

function sectionOf(kind) {
  return SECTION_OF[kind] || "others";
}

function spark(every, width = 150, height = 24) {
  const svg = draw("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true", style: { width: `${width}px` } });
  const values = every.filter((v) => v !== null);
  if (!values.length) return svg;
  const low = Math.min(...values);
  const high = Math.max(...values);
  let line = "";
  let pen = "M";
  every.forEach((value, i) => {
    if (value === null) {
      pen = "M";
      return;
    }
    line += `${pen}${((i / Math.max(1, every.length - 1)) * (width - 4) + 2).toFixed(1)},${(height - 3 - ((value - low) / (high - low || 1)) * (height - 6)).toFixed(1)}`;
    pen = "L";
  });
  svg.append(draw("path", { d: line, fill: "none", stroke: "var(--accent)", "stroke-width": 1.3 }));
  return svg;
}

function paintMoved() {
  const run = focus();
  const wait = run ? waiting("why", run) : empty("No run is chosen.");
  if (wait) return replace("moved", [wait]);
  const why = answer("why", run);
  const maps = answer("maps", run)?.maps || [];
  const findings = why.findings || [];
  const children = [];
  if (!findings.length) children.push(empty("Nothing moved beyond chance."));
  else if (why.lines?.length) {
    const sentence = make("p", { class: "sentence", title: why.lines[0].length > 400 ? why.lines[0] : null });
    const text = make("bdi");
    text.textContent = cut(why.lines[0], 400);
    sentence.append(text);
    children.push(sentence);
  }
  for (const problem of why.problems || []) children.push(make("p", { class: "sentence error" }, named(problem, 200)));
  for (const [i, finding] of findings.entries()) {
    const found = why.rows[i];
    const map = found && maps.find((each) => each.key === found.map);
    const outside = state.range && (finding.high ?? finding.step) < state.range[0] || state.range && (finding.low ?? finding.step) > state.range[1];
    const share = finding.share === null || finding.share === undefined ? "" : `, ${Math.round(finding.share * 100)} % of the change`;
    children.push(make("button", {
      class: `finding${finding.also ? " also" : ""}${outside ? " outside" : ""}`, type: "button",
      "data-finding": finding.name, "data-focus": `finding ${finding.name} ${finding.metric} ${finding.task}`,
      title: found ? "Show its row and its curve" : "No map has this row",
      onclick: () => map && openRow(map, found.row, true),
    },
    make("span", { class: "soft" }, finding.kind.replaceAll("_", " "), finding.also ? " (also)" : ""),
    make("span", {}, named(finding.name, 70), " ", make("span", { class: "soft" }, metricName(finding.metric || ""), finding.task ? [" of ", named(finding.task, 20)] : "", share)),
    found ? spark(found.value) : make("span"),
    make("span", { class: "num" }, `z ${finding.z === null || finding.z === undefined ? "–" : finding.z.toFixed(1)}`),
    make("span", { class: "num" }, `${number(finding.before)} → ${number(finding.after)}`, make("br"),
      make("span", { class: "soft" }, finding.step === null || finding.step === undefined ? "" : `step ${number(finding.step)} (${number(finding.low)}–${number(finding.high)})`,
        finding.until ? `, until ${number(finding.until)}` : "")),
    ));
  }
  replace("moved", children);
}

// ---- heat maps ------------------------------------------------------------------------

let dragging = false; // new data waits for the end of a drag
const opened = {}; // by section: the name of the row whose curve is open
const unfolded = {}; // by section: whether all rows are there
const METRIC_ORDER = ["auc", "calibration", "ne", "click_rate", "traffic"];

function rgb(text) {
  const n = parseInt(text.slice(1), 16);
  return [n >> 16, (n >> 8) & 255, n & 255];
}

// Blue, neutral, red: both ends stay apart for colour-blind readers.
function ramp() {
  const [low, middle, high, none] = (isDark() ? ["#4a9be8", "#22262b", "#f0694a", "#565d66"] : ["#1f5fa8", "#f7f7f7", "#c0391b", "#c9ced5"]).map(rgb);
  const table = [];
  for (let i = 0; i <= 120; i++) {
    const t = (i - 60) / 60;
    const end = t < 0 ? low : high;
    const w = Math.abs(t) ** 0.8;
    table.push(middle.map((m, c) => Math.round(m + (end[c] - m) * w)));
  }
  return { table, none };
}

function shade(colours, z, sign) {
  if (z === null || z === undefined) return colours.none;
  return colours.table[Math.round(((Math.max(-Z_LIMIT, Math.min(Z_LIMIT, z)) * sign) / Z_LIMIT) * 60) + 60];
}

const ordered = new WeakMap();
function sorted(rows) {
  if (!ordered.has(rows)) {
    const peak = (row) => row.z.reduce((most, z) => (z === null ? most : Math.max(most, Math.abs(z))), -1);
    ordered.set(rows, rows.map((row) => [peak(row), row]).sort((a, b) => b[0] - a[0]).map(([, row]) => row));
  }
  return ordered.get(rows);
}

// A map that is shown is asked for when there is none, or when what moved was asked again.
async function askForMap(part, run, key) {
  const name = `map ${run} ${key}`;
  const of = answer("maps", run);
  const known = data.answers.get(name);
  if (known && (known.busy || known.of === of)) return;
  await load("map", run, key);
  data.answers.get(name).of = of; // one that failed is asked for with the next maps
  while (dragging) await new Promise((resolve) => setTimeout(resolve, 100));
  if (run === focus()) paintMap(part);
}

const EMPTY = {
  slices: ["No slices. Record them with ", make("code", {}, 'RecommenderMetrics(slices={"country": ...})'), "."],
  features: ["No statistics of features. Record them with ", make("code", {}, 'RecommenderMetrics(features={"price": ...}, importance=Importance())'), "."],
  tables: ["No statistics of embedding tables. Record them with ", make("code", {}, 'RecommenderMetrics(ids={"item": ...})'), "."],
  ranks: ["No ranks to compare. Record a run of several ranks."],
};

function wishFor(map) {
  return { kind: map.kind, task: map.task || "", column: map.column, metric: map.metric };
}

function choose(maps, wish = {}) {
  const score = (map) => (map.kind === wish.kind) * 1 + ((map.task || "") === wish.task) * 2 + (map.column === wish.column) * 4 + (map.metric === wish.metric) * 8;
  if (Object.keys(wish).length) return maps.reduce((best, map) => (score(map) > score(best) ? map : best), maps[0]);
  const moved = new Set((answer("why", focus())?.rows || []).map((row) => row?.map));
  return maps.find((map) => moved.has(map.key)) || maps.find((map) => map.metric === "calibration") || maps[0];
}

function toggles(part, maps, map, key, label, order) {
  const values = [...new Set(maps.map((m) => m[key] || ""))];
  if (values.length < 2) return [];
  if (order) values.sort((a, b) => (order.indexOf(a) + 99) % 99 - (order.indexOf(b) + 99) % 99);
  const set = async (value) => {
    // The nearest to the one that is shown, of those that the toggle is about.
    const next = choose(mapsOf(part).filter((m) => (m[key] || "") === value), { ...map, task: map.task || "" });
    state.maps[part] = wishFor(next);
    opened[part] = undefined;
    saveState();
    await askForMap(part, focus(), next.key);
    paintMap(part);
  };
  const caption = make("span", { class: "soft" }, label);
  if (values.length > 8) {
    const select = make("select", { "aria-label": label, "data-focus": `${part} ${key}`, onchange: () => set(select.value) },
      values.map((v) => make("option", { value: v, selected: v === (map[key] || "") }, cut(key === "metric" ? metricName(v) : v || "–", 60))));
    return [caption, select, make("span", { class: "gap" })];
  }
  return [caption, ...values.map((v) => make("button", { type: "button", "aria-pressed": String(v === (map[key] || "")), "data-toggle": `${key}=${v}`,
    "data-focus": `${part} ${key} ${v}`, onclick: () => set(v) }, named(key === "metric" ? metricName(v) : v || "–", 30))), make("span", { class: "gap" })];
}

function mapsOf(part) {
  return (answer("maps", focus())?.maps || []).filter((map) => sectionOf(map.kind) === part);
}

function paintMap(part) {
  const run = focus();
  const wait = run ? waiting("maps", run) : empty("No run is chosen.");
  if (wait) return replace(part, [wait]);
  const maps = mapsOf(part);
  parts[part].element.hidden = part === "others" && !maps.length;
  if (!maps.length) return replace(part, [empty(...(EMPTY[part] || []).map((e) => (e.cloneNode ? e.cloneNode(true) : e)))]);
  const about = choose(maps, state.maps[part]);
  askForMap(part, run, about.key);
  const entry = data.answers.get(`map ${run} ${about.key}`);
  const map = { ...about, ...entry.value };
  const sameKind = maps.filter((m) => m.kind === map.kind);
  const inColumn = sameKind.filter((m) => m.column === map.column);
  const sign = map.worse === "fall" ? -1 : 1;
  const legend = sign < 0 ? "red: lower, the worse" : map.worse ? "red: higher, the worse" : "red: higher";
  const colours = ramp();
  const bar = make("canvas", { width: 121, height: 1, "aria-hidden": "true" });
  const barData = new ImageData(121, 1);
  for (let i = 0; i <= 120; i++) barData.data.set([...colours.table[i], 255], i * 4);
  bar.getContext("2d").putImageData(barData, 0, 0);
  const ends = sign < 0 ? ["+6", "−6"] : ["−6", "+6"];
  const scale = make("span", { class: "scale" }, `z ${ends[0]}`, bar, ends[1], ` ${legend}`, make("span", { class: "nullbox" }), "too few examples");
  const tools = make("div", { class: "tools" },
    toggles(part, maps, map, "kind", "Kind"), toggles(part, inColumn, map, "metric", "Metric", METRIC_ORDER),
    toggles(part, sameKind, map, "column", "Column"), toggles(part, inColumn, map, "task", "Task"), scale);
  if (!entry.value) return replace(part, [tools, entry.error ? empty(entry.error) : empty("Loading …")]);
  const all = sorted(map.rows);
  const openAt = all.findIndex((row) => row.name === opened[part]);
  if (openAt >= ROWS_SHOWN) unfolded[part] = true;
  const rows = unfolded[part] ? all : all.slice(0, ROWS_SHOWN);
  const n = map.step.length;
  const canvas = make("canvas", { width: Math.max(1, n), height: Math.max(1, rows.length), role: "img",
    "aria-label": `${metricName(map.metric)}: ${rows.length} rows over ${n} columns of steps. The table below has the numbers.` });
  const image = new ImageData(Math.max(1, n), Math.max(1, rows.length));
  rows.forEach((row, r) => {
    for (let c = 0; c < n; c++) {
      const at = (r * n + c) * 4;
      const [red, green, blue] = shade(colours, row.z[c], sign);
      image.data[at] = red;
      image.data[at + 1] = green;
      image.data[at + 2] = blue;
      image.data[at + 3] = 255;
    }
  });
  canvas.getContext("2d").putImageData(image, 0, 0);
  const names = make("div", { class: "names" });
  const tops = make("div", { class: "tops", title: "The z farthest from 0" });
  const from = map.column ? `${map.column}=` : "";
  for (const row of rows) {
    names.append(make("button", { type: "button", class: `row${row.name === opened[part] ? " on" : ""}`, "data-row": row.name, "data-focus": `${part} row ${row.name}`,
      title: from + row.name, onclick: () => openRow(map, row.name, false) }, named(row.name, 26)));
    const z = row.z.reduce((most, v) => (v !== null && Math.abs(v) > Math.abs(most) ? v : most), 0);
    tops.append(make("div", {}, z.toFixed(1)));
  }
  const line = make("div", { class: "box line", hidden: true });
  const before = make("div", { class: "box out", hidden: true });
  const after = make("div", { class: "box out", hidden: true });
  const selection = make("div", { class: "box sel", hidden: true });
  const plane = make("div", { class: "plane", "data-plane": part, style: { height: `${rows.length * 18}px` } }, canvas, before, after, selection, line);
  if (state.range && n) {
    let a = map.step.findIndex((s) => s >= state.range[0]);
    let b = n - 1;
    while (b >= 0 && map.step[b] > state.range[1]) b--;
    if (a < 0) a = n;
    before.hidden = after.hidden = false;
    fill(before, { style: { left: "0", width: `${(a / n) * 100}%` } }, []);
    fill(after, { style: { left: `${((b + 1) / n) * 100}%`, right: "0" } }, []);
  }
  const cell = (event) => {
    const box = plane.getBoundingClientRect();
    return [Math.max(0, Math.min(n - 1, Math.floor(((event.clientX - box.left) / box.width) * n))), Math.floor((event.clientY - box.top) / 18)];
  };
  let drag = null;
  plane.addEventListener("pointerdown", (event) => {
    if (event.button === 0) {
      drag = { from: cell(event)[0], x: event.clientX, moved: false };
      dragging = true;
      plane.setPointerCapture(event.pointerId);
    }
  });
  plane.addEventListener("pointermove", (event) => {
    const [c, r] = cell(event);
    const row = rows[r];
    if (drag && Math.abs(event.clientX - drag.x) > 4) drag.moved = true;
    if (drag?.moved) {
      const [a, b] = [Math.min(drag.from, c), Math.max(drag.from, c)];
      selection.hidden = false;
      selection.style.left = `${(a / n) * 100}%`;
      selection.style.width = `${((b - a + 1) / n) * 100}%`;
    }
    cross(map.step[c]);
    if (!row) return noTip();
    tip(event, named(from + row.name, 80), `\nsteps ${c > 0 ? number(map.step[c - 1]) : ""}–${number(map.step[c])}, ${clock(map.wall_time[c])}\n`,
      `${metricName(map.metric)} ${number(row.value[c])}   z ${row.z[c] === null ? "–" : row.z[c].toFixed(1)}`,
      row.examples && row.examples[c] !== null ? `   ${number(row.examples[c])} examples` : "");
  });
  plane.addEventListener("pointerup", (event) => {
    const was = drag;
    drag = null;
    dragging = false;
    selection.hidden = true;
    if (!was) return;
    const [c, r] = cell(event);
    if (!was.moved) {
      if (rows[r]) openRow(map, rows[r].name, false);
      return;
    }
    const [a, b] = [Math.min(was.from, c), Math.max(was.from, c)];
    setRange([a > 0 ? map.step[a - 1] + 1 : map.step[0], map.step[b]]);
  });
  plane.addEventListener("lostpointercapture", () => {
    drag = null;
    dragging = false;
    selection.hidden = true;
  });
  plane.addEventListener("pointerleave", () => {
    noTip();
    cross(null);
  });
  const item = { element: plane, show: (step) => {
    line.hidden = step === null || !n;
    if (!line.hidden) line.style.left = `${((nearest(map.step, step) + 0.5) / n) * 100}%`;
  } };
  item.show(crossStep);
  crossed.add(item);
  const axis = make("div", { class: "mapaxis", "aria-hidden": "true" });
  const labels = Math.min(n, 8);
  for (let k = 0; k < labels; k++) {
    const c = labels === 1 ? 0 : Math.round((k * (n - 1)) / (labels - 1));
    const span = map.wall_time[n - 1] - map.wall_time[0];
    axis.append(make("span", { style: { left: `${((c + 0.5) / n) * 100}%` } }, state.x === "time" ? clock(map.wall_time[c], span) : compact(map.step[c])));
  }
  const view = make("div", { class: "view", "data-scroll": part, style: { "max-height": `${ROWS_SHOWN * 18}px` } },
    make("div", { class: "inner" }, names, plane, tops));
  const frame = make("div", { class: "map" }, view, axis);
  const row = openAt >= 0 ? all[openAt] : null;
  if (row) frame.append(curve(part, map, row));
  const more = all.length > ROWS_SHOWN ? make("button", { type: "button", "data-focus": `${part} more`, "aria-expanded": String(Boolean(unfolded[part])),
    onclick: () => {
      unfolded[part] = !unfolded[part];
      if (!unfolded[part]) opened[part] = undefined;
      paintMap(part);
    } }, unfolded[part] ? `first ${ROWS_SHOWN} rows` : `all ${all.length} rows`) : null;
  const table = tableView(`${part} map`, ["Row", "Largest |z|", "Newest z", `Newest ${metricName(map.metric)}`, "Examples"], () => all.map((r) => {
    let i = n - 1;
    while (i > 0 && r.value[i] === null) i--;
    const z = r.z.reduce((most, v) => (v !== null && Math.abs(v) > Math.abs(most) ? v : most), 0);
    return [named(r.name, 60), z.toFixed(1), number(r.z[i], 3), number(r.value[i]), number(r.examples?.[i])];
  }));
  replace(part, [tools, frame, make("div", { class: "tools" }, more, table)]);
}

function curve(part, map, row) {
  const series = [{ run: focus(), step: map.step, wall_time: map.wall_time, value: row.value }];
  const kept = inside(series[0]);
  const domain = kept.length ? [xOf(map, kept[0]), xOf(map, kept[kept.length - 1])] : [0, 1];
  const marks = answer("quality", focus())?.marks || [];
  return make("div", { class: "curve", "data-curve": row.name },
    make("div", { class: "head" }, named((map.column ? `${map.column}=` : "") + row.name, 100), make("span", { class: "soft" }, metricName(map.metric), map.task ? [" of ", named(map.task, 30)] : ""),
      make("button", { type: "button", "data-focus": `${part} close`, onclick: () => {
        opened[part] = undefined;
        paintMap(part);
      } }, "Close")),
    chart(`${metricName(map.metric)} of one row`, series, marks, () => domain, 160),
    tableView(`${part} curve`, ["Step", "Time", metricName(map.metric), "z", "Examples"], () => kept.map((i) => [number(map.step[i]), clock(map.wall_time[i]),
      number(row.value[i], 6), number(row.z[i], 3), number(row.examples?.[i])])));
}

async function openRow(map, name, scroll) {
  const part = sectionOf(map.kind);
  state.maps[part] = wishFor(map);
  opened[part] = opened[part] === name && !scroll ? undefined : name;
  saveState();
  if (scroll) await askForMap(part, focus(), map.key);
  paintMap(part);
  if (!scroll) return;
  const row = [...parts[part].body.querySelectorAll("[data-row]")].find((r) => r.dataset.row === name);
  if (!row) return;
  row.scrollIntoView({ block: "center" });
  row.classList.add("flash");
  row.focus({ preventScroll: true });
}

// ---- runs side by side -----------------------------------------------------------------

function paintRuns() {
  parts.runs.element.hidden = state.runs.length < 2;
  if (state.runs.length < 2) return;
  const rows = state.runs.flatMap((run) => answer("lineage", run) || []);
  if (!rows.length) return replace("runs", [waiting("lineage", state.runs[0]) || empty("No lineage.")]);
  const fixed = ["run", "status", "step"];
  const keys = [...new Set(rows.flatMap((row) => Object.keys(row)))].filter((key) => !fixed.includes(key));
  const judges = (key) => key === "loss" || key.startsWith("recommender/") || key.startsWith("best/");
  const differs = (key) => new Set(rows.map((row) => JSON.stringify(row[key] ?? null))).size > 1;
  const numeric = (key) => rows.some((row) => typeof row[key] === "number");
  const judging = keys.filter((key) => judges(key) && numeric(key)).slice(0, 16);
  const columns = [...fixed, ...judging, ...keys.filter((key) => !judges(key) && differs(key))];
  const best = new Map();
  for (const key of judging) {
    const rank = /calibration/.test(key) ? (v) => Math.abs(Math.log(Math.max(v, 1e-9))) : /auc|accuracy/.test(key) ? (v) => -v : (v) => v;
    const values = rows.map((row) => row[key]).filter((v) => typeof v === "number");
    if (values.length > 1) best.set(key, values.reduce((a, b) => (rank(b) < rank(a) ? b : a)));
  }
  const cellOf = (row, key) => {
    const value = row[key];
    const chosen = best.has(key) && value === best.get(key);
    if (key === "run") return make("td", {}, make("span", { class: "swatch", style: { background: state.runs.includes(value) ? colour(value) : "var(--soft)" } }), named(value ?? "", 60));
    return make("td", { class: chosen ? "best" : null }, typeof value === "number" ? number(value, 5) : value === null || value === undefined ? "–" : named(typeof value === "object" ? JSON.stringify(value) : value, 100),
      chosen ? " ★" : "");
  };
  replace("runs", [make("div", { class: "scroll", tabindex: 0, "data-scroll": "runs" }, make("table", { "aria-label": "Chosen runs" },
    make("thead", {}, make("tr", {}, columns.map((key) => make("th", { scope: "col" }, named(key, 44))))),
    make("tbody", {}, rows.map((row) => make("tr", { "data-row": row.run }, columns.map((key) => cellOf(row, key))))))),
  make("p", { class: "empty" }, "★ the best value. Hyper-parameters are there only where the runs differ.")]);
}

// ---- the bar -----------------------------------------------------------------------------

const bar = {};

function buildBar() {
  bar.filter = make("input", { type: "search", placeholder: "Filter runs", "aria-label": "Filter runs", style: { width: "100%" }, oninput: paintRunList });
  bar.items = make("div", { class: "items" });
  bar.count = make("div", { class: "soft" });
  bar.list = make("div", { class: "list", hidden: true }, bar.filter, bar.items, bar.count);
  bar.button = make("button", { type: "button", "aria-expanded": "false", onclick: () => showList(bar.list.hidden) }, "Runs");
  const chooser = make("div", { class: "runs" }, bar.button, bar.list);
  document.addEventListener("pointerdown", (event) => {
    if (!bar.list.hidden && !chooser.contains(event.target)) showList(false);
  });
  chooser.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !bar.list.hidden) {
      showList(false);
      bar.button.focus();
    }
  });
  bar.window = make("select", { "aria-label": "Window", onchange: () => {
    state.window = bar.window.value;
    saveState();
    paintHeads();
  } });
  bar.focus = make("select", { "aria-label": "Findings and maps of", style: { "max-width": "260px" }, onchange: () => {
    state.focus = bar.focus.value;
    saveState();
    paintAll();
    loadFocus();
  } });
  bar.focusLabel = make("label", {}, "Findings of", bar.focus);
  bar.x = ["step", "time"].map((x) => make("button", { type: "button", "data-x": x, onclick: () => {
    state.x = x;
    saveState();
    paintBar();
    paintAll();
  } }, x));
  bar.range = make("span", { class: "num" });
  bar.reset = make("button", { type: "button", "data-reset": "range", onclick: () => setRange(null) }, "Reset range");
  bar.live = make("span", { class: "live" });
  bar.error = make("div", { class: "error", role: "alert", hidden: true });
  return make("div", {}, make("div", { class: "bar" }, chooser, make("label", {}, "Window", bar.window), bar.focusLabel,
    make("span", { class: "tools", style: { margin: "0" } }, make("span", { class: "soft" }, "x"), bar.x), bar.range, bar.reset, bar.live), bar.error);
}

function showList(show) {
  bar.list.hidden = !show;
  bar.button.setAttribute("aria-expanded", String(show));
  if (show) {
    paintRunList();
    bar.filter.focus();
  }
}

function paintRunList() {
  const wish = bar.filter.value.toLowerCase();
  const chosen = new Set(state.runs);
  const found = [];
  let matches = 0;
  for (const run of data.runs) {
    if (wish && !run.run.toLowerCase().includes(wish)) continue;
    matches++;
    if (found.length < RUNS_SHOWN) found.push(run);
  }
  const active = bar.items.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
  const groups = data.groups.filter(({ group }) => group.toLowerCase().includes(wish)).slice(0, GROUPS_SHOWN);
  bar.items.replaceChildren(...groups.map(({ group, runs }) => {
    const box = make("input", { type: "checkbox", "data-group": group, "data-focus": `group ${group}`, style: { "min-height": "0", margin: "0 6px 0 0" }, onchange: () => toggleGroup(group, box.checked) });
    box.checked = state.groups.includes(group);
    return make("label", {}, box, named(group, 60), make("span", { class: "step" }, `group of ${runs} runs`));
  }), ...found.map((run) => {
    const box = make("input", { type: "checkbox", value: run.run, "data-focus": `run ${run.run}`, style: { "min-height": "0", margin: "0 6px 0 0" }, onchange: () => toggleRun(run.run, box.checked) });
    box.checked = chosen.has(run.run);
    return make("label", {}, box, named(run.run, 70), make("span", { class: "step" }, run.step === null ? "" : `step ${number(run.step)}`));
  }));
  if (active !== null) [...bar.items.querySelectorAll("input")].find((box) => box.dataset.focus === active)?.focus({ preventScroll: true });
  bar.count.textContent = matches > found.length ? `The newest ${found.length} of ${number(matches)} runs. Filter for the others.` : `${number(matches)} runs`;
}

function toggleRun(run, on) {
  state.runs = on ? [...state.runs, run] : state.runs.filter((other) => other !== run);
  saveState();
  paintBar();
  paintAll();
  loadChosen();
}

function toggleGroup(group, on) {
  state.groups = on ? [...state.groups, group] : state.groups.filter((other) => other !== group);
  saveState();
  paintBar();
  paintAll();
  loadGroups(state.groups.filter((name) => !answer("group", name)));
}

function options(select, values, chosen, text = (v) => v) {
  const key = JSON.stringify(values);
  if (select.dataset.values !== key) {
    select.replaceChildren(...values.map((v) => make("option", { value: v, title: v }, cut(text(v), 50))));
    select.dataset.values = key;
  }
  select.value = chosen;
}

function paintBar() {
  const more = state.groups.length ? `, ${state.groups.length} ${state.groups.length === 1 ? "group" : "groups"},` : "";
  bar.button.replaceChildren(...(state.runs.length === 1 ? ["Run ", named(state.runs[0], 50)] : [`${state.runs.length} runs`]), data.isPartial ? `${more} ▾` : `${more} of ${number(data.runs.length)} ▾`);
  const all = windows();
  bar.window.parentElement.hidden = !all.length;
  bar.window.parentElement.style.display = all.length ? "" : "none";
  options(bar.window, all, chosenWindow(all), (w) => w.replaceAll("_", " "));
  bar.focusLabel.style.display = state.runs.length > 1 ? "" : "none";
  options(bar.focus, state.runs, focus());
  for (const button of bar.x) button.setAttribute("aria-pressed", String(button.dataset.x === state.x));
  bar.range.textContent = state.range ? `steps ${number(state.range[0])}–${number(state.range[1])}` : "all steps";
  bar.reset.hidden = !state.range;
}

function paintLive() {
  if (stored) {
    const newest = Math.max(...data.runs.map((run) => run.wall_time || 0).slice(0, RUNS_SHOWN), 0);
    bar.live.textContent = newest ? `as of ${clock(newest)}` : "a saved page";
    return;
  }
  if (bar.lastAnswer === undefined) return;
  const age = Math.round((performance.now() - bar.lastAnswer) / 1000);
  bar.live.textContent = age < 120 ? `updated ${age} s ago` : `updated ${Math.round(age / 60)} min ago`;
}

function showError(text) {
  bar.error.hidden = !text;
  bar.error.textContent = text ? cut(text.replace(/\s+/g, " "), 600) : "";
}

function setRange(range) {
  state.range = range;
  saveState();
  paintBar();
  paintAll();
}

// ---- life ---------------------------------------------------------------------------------

const MAPS = ["slices", "features", "tables", "ranks", "others"];

async function paintAll() {
  paintHeads();
  paintMoved();
  paintRuns();
  for (const part of MAPS) {
    await breathe();
    paintMap(part);
  }
}

function errorsOfChosen() {
  for (const run of state.runs) {
    for (const route of ["quality", "why", "maps", "lineage"]) if (failure(route, run)) return failure(route, run);
  }
  for (const group of state.groups) if (failure("group", group)) return failure("group", group);
  return "";
}

async function loadQuality(runs) {
  await Promise.all(runs.map((run) => load("quality", run)));
  paintBar();
  paintHeads();
}

async function loadGroups(groups) {
  if (!groups.length) return;
  await Promise.all(groups.map((group) => load("group", group)));
  paintBar();
  paintHeads();
  showError(errorsOfChosen());
}

async function loadFocus() {
  const run = focus();
  if (!run) return;
  // Curves come first; their errors and marks when the run has been read to say what moved.
  await load("why", run);
  if (run === focus()) paintMoved();
  if (answer("quality", run)?.is_current === false) await loadQuality([run]);
  await load("maps", run);
  // A map that failed may be there no more; one that is looked at is asked for by its painting.
  for (const [name, entry] of data.answers) if (entry.error && name.startsWith(`map ${run} `)) data.answers.delete(name);
  // The server reads a run at most a twentieth of the time: what came meanwhile is asked for later.
  if (["quality", "why", "maps"].some((route) => answer(route, run)?.is_current === false)) stale.add(run);
  if (run === focus()) paintMoved();
  for (const part of MAPS) {
    await breathe();
    while (dragging) await new Promise((resolve) => setTimeout(resolve, 100));
    if (run === focus()) paintMap(part);
  }
}

async function loadChosen() {
  const missing = state.runs.filter((run) => !answer("quality", run));
  await loadQuality(missing);
  document.body.dataset.state = "ready";
  await loadGroups(state.groups.filter((group) => !answer("group", group)));
  await breathe();
  if (data.isPartial) loadRuns().then(() => (paintBar(), paintRunList()), (error) => showError(error.message));
  if (focus() && !(answer("why", focus()) && answer("maps", focus()))) await loadFocus();
  if (state.runs.length > 1) {
    await Promise.all(state.runs.filter((run) => !answer("lineage", run)).map((run) => load("lineage", run)));
    paintRuns();
  }
  for (const run of state.runs) {
    if (answer("quality", run)?.is_current !== false || answer("why", run)) continue;
    await load("why", run);
    await loadQuality([run]);
  }
  showError(errorsOfChosen());
}

function visible() {
  return document.visibilityState === "visible" && document.documentElement.clientHeight > 0;
}

// With names, only these: a list of many runs takes the server long.
async function loadRuns(names = []) {
  const all = await ask("runs", names.map((name) => ["run", name]));
  data.runs = all.runs;
  if (!names.length) data.groups = all.groups;
  data.isPartial = names.length > 0;
  data.source = all.source;
  bar.lastAnswer = performance.now();
}

let awaited = []; // runs of the address that are not there yet: another run is not shown instead

function firstRuns() {
  const known = new Set(data.runs.map((run) => run.run));
  const wanted = [...(state.runs || []), ...awaited];
  state.runs = wanted.filter((run) => known.has(run));
  awaited = stored ? [] : wanted.filter((run) => !known.has(run));
  if (state.runs.length || state.groups.length || awaited.length) return;
  const first = data.runs.find((run) => run.is_recommender) || data.runs[0];
  if (first) state.runs = [first.run];
}

async function poll() {
  if (!state.runs.length && !awaited.length) return;
  const now = await ask("runs", [...state.runs, ...awaited].map((run) => ["run", run]));
  bar.lastAnswer = performance.now();
  if (now.runs.some(({ run }) => awaited.includes(run))) await listAgain();
  const changed = [];
  for (const { run, step, wall_time: time } of now.runs) {
    const key = `${step} ${time}`;
    if (data.shown.get(run) !== key) stale.add(run);
    if (data.shown.get(run) !== key || failure("quality", run)) changed.push(run);
    data.shown.set(run, key);
    const names = [`why ${run}`, `maps ${run}`];
    if ([...data.answers].some(([name, entry]) => entry.error && (names.includes(name) || name.startsWith(`map ${run} `)))) stale.add(run);
  }
  if (changed.length) await loadQuality(changed);
  // The focus first, then the others, whose errors and marks come with a reading as well.
  const run = [focus(), ...state.runs].find((each) => stale.has(each) && isDue(each));
  if (run === undefined) return;
  stale.delete(run);
  if (run === focus()) loadFocus();
  else load("why", run).then(() => loadQuality([run]));
}

// Findings cost the server more than curves: they take at most a twentieth of the time.
function isDue(run) {
  const entries = ["why", "maps"].map((route) => data.answers.get(`${route} ${run}`) || {});
  return entries.every((e) => !e.busy && performance.now() - (e.at || 0) >= Math.max(LEAST_REST_MS, 20 * (e.took || 0)));
}
const stale = new Set();

async function listAgain() {
  await loadRuns();
  await loadGroups(state.groups);
  if (!state.runs.length || awaited.length) {
    firstRuns();
    loadChosen();
  }
  if (state.runs.length > 1) {
    await Promise.all(state.runs.map((run) => load("lineage", run)));
    paintRuns();
  }
  paintBar();
}

async function live() {
  let listed = performance.now();
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    if (!visible()) continue;
    try {
      if (!data.runs.length || performance.now() - listed > LIST_REST_MS) {
        listed = performance.now();
        listAgain().catch((error) => showError(error.message)); // a long list keeps no record waiting
      }
      await poll();
      showError(errorsOfChosen());
    } catch (error) {
      showError(error.message);
    }
    paintLive();
  }
}

export async function render() {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(STYLE);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  document.title ||= "Recommender";
  document.documentElement.lang ||= "en";
  state.runs = null;
  tipBox = make("div", { class: "tip", role: "status", hidden: true });
  const main = make("main", {}, section("heads", "Quality"), section("moved", "What moved"), section("slices", "Slices over time"),
    section("features", "Features over time"), section("tables", "Embedding tables over time"), section("ranks", "Ranks over time"),
    section("others", "Tasks and training over time"), section("runs", "Chosen runs"));
  document.body.append(buildBar(), main, tipBox);
  // Of a map that is gone, the document gets it.
  document.addEventListener("lostpointercapture", () => {
    dragging = false;
  });
  parts.others.element.hidden = parts.runs.element.hidden = true;
  try {
    readStored();
    loadState();
    await loadRuns(stored ? [] : state.runs || []);
    if (!data.runs.length) await loadRuns();
    firstRuns();
    for (const run of data.runs) if (state.runs.includes(run.run)) data.shown.set(run.run, `${run.step} ${run.wall_time}`);
    followTheme(() => state.runs && parts.runs && paintAll());
    paintBar();
    paintLive();
    if (!data.runs.length) {
      replace("heads", [empty("No runs yet. They appear here when they are written.")]);
      document.body.dataset.state = "ready";
    } else {
      await loadChosen();
    }
  } catch (error) {
    showError(error.message);
    state.runs = state.runs || [];
  }
  if (!stored) live();
}
