// Numbers and states as a person reads them. No element is touched here.

const COUNT = new Intl.NumberFormat("en");

export const count = (n) => COUNT.format(n);

export function seconds(s) {
  if (s === null || s === undefined) return "–";
  if (s >= 172800) return `${Math.round(s / 86400)} d`;
  if (s >= 7200) return `${Math.round(s / 3600)} h`;
  if (s >= 120) return `${Math.round(s / 60)} min`;
  return s >= 10 ? `${Math.round(s)} s` : `${Math.round(s * 10) / 10} s`;
}

export const ms = (v) => (v >= 1000 ? seconds(v / 1000) : v >= 10 ? `${Math.round(v)} ms` : `${Math.round(v * 100) / 100} ms`);

export function bytes(n) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) { n /= 1024; unit += 1; }
  return `${n < 10 && unit ? Math.round(n * 10) / 10 : Math.round(n)} ${units[unit]}`;
}

export const STATES = { LIVE: "live", CATCHING_UP: "catching up", SUSPENDED: "away", BLOCKED: "blocked", SILENT: "silent" };

// How bad a target is: the class that colours it, and its place in the table.
const GRADES = { "fine": "good", "catches up": "warn", "too early to say": "warn", "falls behind": "bad", "is tried again": "bad", "needs you": "bad" };
const ORDER = { "needs you": 0, "falls behind": 1, "is tried again": 2, "too early to say": 3, "catches up": 4, "fine": 5 };

export const held = (t) => t.blocked !== null && t.blocked.kind === "HELD";
const fine = (t) => t.outlook === "fine" && !held(t);
const lacks = (t) => fine(t) && t.quarantined > 0;
export const grade = (t) => (held(t) ? "wait" : lacks(t) ? "warn" : GRADES[t.outlook] || "wait");
export const rank = (t) => (held(t) ? 4.5 : lacks(t) ? 4.2 : ORDER[t.outlook] ?? 3);
const entries = (n) => `${count(n)} quarantined ${n === 1 ? "entry" : "entries"}`;
const but = (n) => (n > 0 ? ` but ${entries(n)}` : "");
export const stateName = (t) => (held(t) ? "suspended" : STATES[t.state] || t.state);

export function lagText(t) {
  return t.lag_entries && t.outlook !== "fine" ? `${count(t.lag_entries)} · ${seconds(t.lag_seconds)}` : count(t.lag_entries);
}

export function outlookText(t) {
  if (held(t)) return "waits for you to resume it";
  return t.outlook === "fine" ? `has everything${but(t.quarantined)}` : t.whether;
}

// Why it is not well, and what it will lack then; what an operator suspended has its own words.
export function whyText(t) {
  return [held(t) ? "" : t.why, fine(t) || !(t.quarantined > 0) ? "" : entries(t.quarantined)].filter(Boolean).join("; ");
}

export function troubleText(t) {
  if (lacks(t)) return ` ${outlookText(t)}: redrive ${t.quarantined === 1 ? "it" : "them"} once its store takes ${t.quarantined === 1 ? "it" : "them"}`;
  const why = t.why || t.error;
  return ` is ${stateName(t)}: ${why ? `${why} – ` : ""}${outlookText(t)}${t.quarantined > 0 ? `; ${entries(t.quarantined)}` : ""}`;
}

// The one sentence that says how things are: [class, text].
export function headline(status, targets, connected) {
  if (!connected) return ["bad", "This page has lost its connection; it tries again."];
  if (status.state === "waiting") return ["warn", "The player waits for its log."];
  if (status.state === "standby") return ["good", "This player stands by: it takes over when the one that plays is gone."];
  if (status.state === "away") return ["bad", "The player does not answer. Nothing is delivered until one plays again; nothing is lost."];
  if (status.state === "stuck") return ["bad", "The log cannot be read, so nothing new is delivered."];
  const bad = targets.filter((t) => grade(t) === "bad");
  const slow = targets.filter((t) => grade(t) === "warn" && !lacks(t));
  const missing = but(targets.filter(lacks).reduce((sum, t) => sum + t.quarantined, 0));
  const waits = targets.filter(held).length;
  const rest = targets.length - bad.length - slow.length - waits;
  const others = `${rest} ${rest === 1 ? "has" : "have"} everything${missing}${waits ? `; ${waits} ${waits === 1 ? "is" : "are"} suspended` : ""}.`;
  if (!targets.length) return ["warn", "There are no targets yet."];
  if (bad.length) return ["bad", `${bad.length} of ${targets.length} ${targets.length === 1 ? "target" : "targets"} ${bad.length === 1 ? "needs" : "need"} a look; ${others}`];
  if (slow.length) return ["warn", `${slow.length} of ${targets.length} ${slow.length === 1 ? "catches" : "catch"} up; ${others}`];
  if (waits) return ["warn", `${waits} of ${targets.length} ${waits === 1 ? "is" : "are"} suspended by an operator.`];
  const whole = targets.length === 1 ? "The target has everything" : `All ${targets.length} targets have everything`;
  return [missing ? "warn" : "good", `${whole}${missing}.`];
}

// A time line item's tag: [class, word].
export function tag(item) {
  if (item.kind === "demo") return ["wait", "the demo"];
  if (item.kind === "state" && item.state === "LIVE") return ["good", "back"];
  if (item.kind === "state" && item.state === "CATCHING_UP") return ["warn", "catches up"];
  if (item.kind === "state" || item.kind === "session") return ["bad", "noticed"];
  if (item.kind === "fault" || item.level === "error") return ["bad", item.kind];
  if (item.kind === "fence") return ["warn", "fenced"];
  if (item.kind === "epoch") return ["good", "takeover"];
  return ["wait", item.kind];
}
