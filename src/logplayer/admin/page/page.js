// The page: follows /events and changes only what has changed. There is no build step, and nothing is asked of anyone else.

import { askToken, confirmAction, headers, menu, token } from "./actions.js";
import { bytes, count, grade, headline, lagText, ms, outlookText, rank, seconds, stateName, tag, troubleText, whyText } from "./parts.js";

const el = (id) => document.getElementById(id);
const set = (node, text) => { if (node.textContent !== text) node.textContent = text; };
const paint = (node, name) => { if (node.className !== name) node.className = name; };

let status = {};
let connected = false;
let refusal = ""; // Why the server does not show its status; empty while it does.
const targets = new Map(); // name -> the target's status
const rows = new Map(); // name -> the elements of its row
const lines = new Map(); // what a line of trouble is about -> its <li>
const history = [];
const measured = { updates: 0, last: 0, largest: 0 };
window.logplayer = { measured, targets, get status() { return status; }, take };

// --- The stream ---

const SILENT_MS = 5000; // Something comes every half second. A stream that is silent for so long is given up.

async function follow() {
  for (;;) {
    refusal = "";
    const trial = new AbortController();
    let timer = 0;
    const heard = () => { clearTimeout(timer); timer = setTimeout(() => trial.abort(), SILENT_MS); };
    try {
      heard();
      const changed = token.changed(); // Before the question: one that is given meanwhile counts.
      const answer = await fetch("events", { headers: headers(), cache: "no-store", signal: trial.signal });
      if (answer.status === 401 || answer.status === 403) {
        await refused(answer, changed);
        continue;
      }
      if (answer.ok) await read(answer.body.getReader(), heard);
    } catch { /* It is away, or silent: tried again below. */ } finally { clearTimeout(timer); }
    connected = false;
    link("bad", "no connection");
    show();
    await pause(700);
  }
}

const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

// 401: a token opens it, whichever dialog it is given in. 403: no token of a reader does, so none is asked for.
async function refused(answer, changed) {
  const wanted = answer.status === 401;
  const said = await answer.json().catch(() => ({}));
  connected = false;
  link("bad", wanted ? "token needed" : "refused");
  refusal = wanted ? "This process asks for a token. Press “Token…” and give it." : said.error || `HTTP ${answer.status}`;
  show();
  if (wanted) askToken("This process asks for a token.");
  await (wanted ? changed : Promise.race([changed, pause(5000)]));
}

async function read(reader, heard) {
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    heard();
    rest += decoder.decode(value, { stream: true });
    const blocks = rest.split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const [name, data] = block.split("\n");
      take(name.slice(7), JSON.parse(data.slice(6)));
    }
  }
}

function take(name, data) {
  const began = performance.now();
  if (name === "status") whole(data);
  else if (name === "change") change(data);
  else if (name === "timeline") timeline(data);
  else if (name === "history") { history.push(...data); history.splice(0, Math.max(0, history.length - 300)); chart(); }
  measured.updates += 1;
  measured.last = performance.now() - began;
  measured.largest = Math.max(measured.largest, measured.last);
}

function whole(data) {
  status = data;
  const named = new Set(data.targets.map((t) => t.target));
  for (const name of [...targets.keys()]) if (!named.has(name)) drop(name);
  for (const t of data.targets) { targets.set(t.target, t); showRow(t); }
  arrived();
}

function change(data) {
  Object.assign(status, data.set);
  for (const name of data.gone) drop(name);
  for (const [name, fields] of Object.entries(data.targets)) {
    const t = Object.assign(targets.get(name) || {}, fields);
    targets.set(name, t);
    showRow(t);
  }
  arrived();
}

function arrived() {
  settle();
  if (!connected) link("good", "connected");
  connected = true;
  show();
}

function drop(name) {
  targets.delete(name);
  const row = rows.get(name);
  if (row) { row.tr.remove(); row.dot.remove(); rows.delete(name); }
}

function link(name, text) { paint(el("link"), `pill ${name}`); set(el("link"), text); }

// --- The whole ---

function show() {
  const all = [...targets.values()];
  const [mood, text] = refusal ? ["bad", refusal] : headline(status, all, connected);
  paint(el("verdict"), `verdict ${mood}`);
  set(el("headline"), text);
  document.title = `${mood === "good" ? "" : "● "}LogPlayer`;
  troubles(all);
  if (status.player === undefined) return;
  const verb = { playing: "plays", stuck: "is stuck", waiting: "waits for its log", stopping: "drains and ends", stopped: "has ended", away: "does not answer" }[status.state] || status.state;
  set(el("who"), `${status.player}${status.group ? `, group ${status.group}` : ""}, epoch ${count(status.epoch)}, log ${status.log_id.slice(0, 8)}`);
  set(el("rate"), count(Math.round(status.entries_per_second)));
  set(el("delay"), status.delay_p50_ms ? ms(status.delay_p50_ms) : "–");
  set(el("delay-more"), status.delay_p50_ms ? `median; p90 ${ms(status.delay_p90_ms)}, p99 ${ms(status.delay_p99_ms)}` : "nothing was acked just now");
  const worst = all.reduce((a, b) => (b.lag_entries > (a ? a.lag_entries : 0) ? b : a), null);
  set(el("lag"), count(worst ? worst.lag_entries : 0));
  set(el("lag-more"), !worst ? "entries" : worst.outlook === "fine" ? "on the way at this moment" : `${worst.target}, ${seconds(worst.lag_seconds)}, ${bytes(worst.lag_bytes)}`);
  set(el("cut"), count(status.consistent_cut));
  set(el("cut-more"), `of ${count(status.log_last)}: the consistent cut`);
  showMap(all, verb);
  showAudit();
  showProof();
  el("add").hidden = !(status.actions || []).includes("add");
}

function troubles(all) {
  const list = all.filter((t) => grade(t) !== "good").sort((a, b) => rank(a) - rank(b) || b.lag_entries - a.lag_entries);
  const wanted = list.slice(0, 5).map((t) => [`target ${t.target}`, troubleText(t), t.target]);
  if (status.log_error) wanted.unshift(["log", status.log_error]);
  if (status.unroutable) wanted.push(["unroutable", `${count(status.unroutable)} ${status.unroutable === 1 ? "entry reaches" : "entries reach"} no target: correct the map or the members`]);
  if (list.length > 5) wanted.push(["more", `and ${list.length - 5} more`]);
  const about = new Set(wanted.map(([key]) => key));
  for (const [key, li] of lines) if (!about.has(key)) { li.remove(); lines.delete(key); }
  arrange(el("troubles"), wanted.map(([key, text, name]) => {
    const li = lines.get(key) || makeLine(key, name);
    set(li.lastElementChild, text);
    return li;
  }));
}

function makeLine(key, name) {
  const li = document.createElement("li");
  if (name) li.append(Object.assign(document.createElement("a"), { href: `#t-${encodeURIComponent(name)}`, textContent: name }));
  li.append(document.createElement("span"));
  lines.set(key, li);
  return li;
}

// Puts the children into this order. Moving an element takes the focus from it, so others move around the one that has it;
// of the rest, one that leaves its place moves, and those after it stay.
function arrange(parent, nodes) {
  const focused = nodes.find((node) => node.contains(document.activeElement));
  let at = parent.firstElementChild;
  for (const node of nodes) {
    while (at && at !== node && at !== focused && (node === focused || at.nextElementSibling === node)) {
      const late = at;
      at = at.nextElementSibling;
      parent.append(late); // Its turn comes.
    }
    if (node === at) at = at.nextElementSibling;
    else parent.insertBefore(node, at);
  }
}

function showMap(all, verb) {
  const names = status.producers || [];
  set(el("producers"), names.length ? count(names.length) : "none just now");
  set(el("producers-more"), names.slice(0, 3).join(", ") + (names.length > 3 ? `, and ${names.length - 3} more` : ""));
  set(el("log-range"), `${count(status.log_first)} to ${count(status.log_last)}`);
  set(el("log-more"), status.log_bytes ? bytes(status.log_bytes) : "");
  const groups = status.groups || [];
  set(el("player-name"), groups.length ? `Players on Spark, ${groups.length} ${groups.length === 1 ? "group" : "groups"}` : "Player");
  set(el("player"), verb);
  set(el("player-more"), groups.length ? groups.map((g) => `${g.group}: ${g.worker.replace("spark ", "")}`).join(", ") : `at entry ${count(status.current)}`);
  const states = {};
  for (const t of all) states[stateName(t)] = (states[stateName(t)] || 0) + 1;
  set(el("counts"), Object.entries(states).map(([name, n]) => `${n} ${name}`).join(", ") || "none");
  paint(el("dots"), all.length > 60 ? "dots many" : "dots");
  paint(el("map"), status.entries_per_second > 0 ? "map moving" : "map");
  strip();
}

function strip() {
  const first = Math.max(1, status.log_first), last = Math.max(first, status.log_last);
  const at = (index) => `${Math.min(100, Math.max(0, (100 * index) / last))}%`;
  el("strip-held").style.left = at(first - 1);
  el("strip-held").style.right = "0";
  el("strip-trim").style.left = at(status.trim_point);
  el("strip-cut").style.left = at(status.consistent_cut);
  el("strip-main").style.left = at(status.current);
  const text = `The log holds ${count(first)} to ${count(last)}; every target has ${count(status.consistent_cut)}; the main stream is at ${count(status.current)}${status.trim_point ? `; up to ${count(status.trim_point)} nobody needs it any more` : ""}.`;
  set(el("strip-text"), text);
  el("strip").setAttribute("aria-label", text);
}

function showAudit() {
  const audit = status.audit;
  set(el("audit"), audit ? (audit.right ? "right" : "WRONG") : "not run");
  set(el("audit-more"), audit ? `${audit.targets} ${audit.targets === 1 ? "target" : "targets"}, ${new Date(audit.at * 1000).toLocaleTimeString()}${audit.right ? "" : `: ${audit.wrong.join(", ")}`}` : "logplayer audit --player …");
}

function showProof() {
  const demo = status.demo;
  document.body.classList.toggle("story", Boolean(demo));
  if (!demo) return;
  set(el("timeline-title"), "The story");
  set(el("proof-title"), demo.verdict ? "The proof" : "What you see");
  const proof = demo.verdict;
  el("proof").hidden = !proof && !demo.phase;
  if (!proof) { set(el("proof-line"), demo.phase); return; }
  paint(el("proof"), proof.holds ? "card" : "card bad");
  set(el("proof-line"), proof.holds ? "PROVED: every transfer reached its shards exactly once, in order." : "NOT PROVED");
  const facts = Object.entries(proof.facts);
  if (el("proof-facts").childElementCount === facts.length) return;
  el("proof-facts").replaceChildren(...facts.map(([name, value]) => {
    const div = document.createElement("div");
    div.append(Object.assign(document.createElement("dt"), { textContent: name }), Object.assign(document.createElement("dd"), { textContent: value }));
    return div;
  }));
}

// --- One target ---

function makeRow(name) {
  const tr = el("row").content.firstElementChild.cloneNode(true);
  const at = (selector) => tr.querySelector(selector);
  tr.id = `t-${name}`;
  set(at(".t-name"), name);
  at(".open").setAttribute("aria-label", `Act on ${name}`);
  at(".open").addEventListener("click", () => menu(targets.get(name), status.actions || []));
  const row = {
    tr, pill: at(".t-state .pill"), since: at(".t-state .more"), index: at(".t-index"), lag: at(".t-lag .v"), bar: at(".bar i"),
    rate: at(".t-rate"), outlook: at(".t-outlook b"), why: at(".t-outlook .more"), dot: document.createElement("span"), rank: -1, scale: "",
  };
  row.dot.title = name;
  rows.set(name, row);
  el("dots").append(row.dot);
  tr.hidden = !matches(name);
  return row;
}

function showRow(t) {
  const row = rows.get(t.target) || makeRow(t.target);
  const mood = grade(t), place = rank(t);
  paint(row.tr, mood);
  paint(row.dot, mood === "good" ? "" : mood);
  set(row.pill, stateName(t));
  set(row.since, `for ${seconds(t.state_seconds)}`);
  set(row.index, t.index < 0 ? "?" : count(t.index));
  set(row.lag, lagText(t));
  const share = t.outlook === "fine" ? 0 : Math.min(1, t.lag_entries / Math.max(1, status.log_last - status.log_first + 1));
  const scale = `scaleX(${t.outlook === "fine" ? 0 : Math.max(0.02, share).toFixed(3)})`;
  if (row.scale !== scale) { row.scale = scale; row.bar.style.transform = scale; }
  set(row.rate, count(Math.round(t.entries_per_second)));
  set(row.outlook, outlookText(t));
  set(row.why, whyText(t));
  if (row.rank !== place) { row.rank = place; unsettled = true; }
}

// The worst first, then by name. Rows move only when a rank has changed.
const BY_NAME = new Intl.Collator("en", { numeric: true });
let unsettled = false;

function settle() {
  if (!unsettled) return;
  unsettled = false;
  const order = [...rows].sort(([a, x], [b, y]) => x.rank - y.rank || BY_NAME.compare(a, b));
  arrange(el("rows"), order.map(([, row]) => row.tr));
}

const matches = (name) => name.toLowerCase().includes(el("find").value.trim().toLowerCase());

el("find").addEventListener("input", () => {
  let some = false;
  for (const [name, row] of rows) { const found = matches(name); row.tr.hidden = !found; some ||= found; }
  el("none").hidden = some;
});
el("add").addEventListener("click", () => confirmAction("add", null));
el("token").addEventListener("click", () => askToken("To act, show the operator's token. It is kept in this tab only."));

// --- Delays and the time line ---

function chart() {
  const points = history.filter((p) => p[1] > 0);
  const W = Math.max(260, el("chart").clientWidth), H = 190, left = 52, bottom = 168, top = 8;
  if (points.length < 2) return;
  const from = history[0][0], to = history[history.length - 1][0];
  const values = points.flatMap((p) => [p[1], p[3]]);
  const low = Math.floor(Math.log10(Math.max(0.05, Math.min(...values)))), high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...values))));
  const x = (at) => left + ((W - left - 6) * (at - from)) / Math.max(1, to - from);
  const y = (v) => bottom - ((bottom - top) * (Math.log10(Math.max(v, 10 ** low)) - low)) / (high - low);
  const make = (name, attributes, text) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text) node.textContent = text;
    return node;
  };
  const parts = [];
  for (let power = low; power <= high; power += 1) {
    parts.push(make("line", { class: "grid", x1: left, x2: W - 6, y1: y(10 ** power), y2: y(10 ** power) }));
    parts.push(make("text", { x: left - 6, y: y(10 ** power) + 4, "text-anchor": "end" }, ms(10 ** power)));
  }
  const clock = (at) => new Date(at * 1000).toLocaleTimeString([], { hour12: false });
  parts.push(make("text", { x: left, y: H - 4 }, clock(from)), make("text", { x: W - 6, y: H - 4, "text-anchor": "end" }, clock(to)));
  ["p50", "p90", "p99"].forEach((name, nth) => {
    let d = "", before = null;
    for (const p of points) { d += `${before !== null && p[0] - before < 5 ? "L" : "M"}${x(p[0]).toFixed(1)} ${y(p[nth + 1]).toFixed(1)}`; before = p[0]; }
    parts.push(make("path", { class: name, d }));
  });
  el("chart").setAttribute("viewBox", `0 0 ${W} ${H}`);
  el("chart").replaceChildren(...parts);
  const newest = points[points.length - 1];
  set(el("chart-text"), `Newest: median ${ms(newest[1])} (solid), p90 ${ms(newest[2])} (dashed), p99 ${ms(newest[3])} (dotted).`);
}

function timeline(items) {
  const list = el("timeline");
  for (const item of items) {
    const [mood, word] = tag(item);
    const li = document.createElement("li");
    li.dataset.kind = item.kind;
    const time = Object.assign(document.createElement("time"), { textContent: new Date(item.at * 1000).toLocaleTimeString([], { hour12: false }) });
    time.dateTime = new Date(item.at * 1000).toISOString();
    li.append(time, Object.assign(document.createElement("span"), { className: `pill ${mood}`, textContent: word }), Object.assign(document.createElement("span"), { textContent: item.text }));
    list.prepend(li);
  }
  while (list.childElementCount > 300) list.lastElementChild.remove();
}

const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) { token.set(given); window.history.replaceState(null, "", location.pathname); } // Not in the address bar.
follow();
