// What an operator may do. Each asks for a confirmation that says what it does; the server asks for the token.

const number = { type: "number", min: "0", step: "1", inputMode: "numeric" };

function quarantined(row) {
  const indexes = row.quarantined_indexes || [];
  return indexes.length ? ` Quarantined: ${indexes.join(", ")}${row.quarantined > indexes.length ? ", …" : ""}.` : "";
}

export const ACTIONS = {
  retry: {
    title: (t) => `Try ${t} again?`, button: "Try again",
    short: "Try now instead of after its back-off.",
    says: (t) => `The player opens a new session with ${t} at once. What blocked it, if anything, is looked at again. Nothing can be lost or doubled.`,
    when: (t) => t.state === "SUSPENDED" || (t.state === "BLOCKED" && t.blocked.kind !== "HELD"),
  },
  suspend: {
    title: (t) => `Suspend ${t}?`, button: "Suspend",
    short: "Leave it alone, for maintenance.",
    says: (t) => `The player ends its session with ${t} and leaves it alone until you resume it, or until another player takes over. ${t} lags meanwhile, and the log keeps what it lacks. The other targets go on.`,
    when: (t) => !(t.blocked && t.blocked.kind === "HELD"),
  },
  resume: {
    title: (t) => `Resume ${t}?`, button: "Resume",
    short: "Go on delivering to it.",
    says: (t) => `The player connects to ${t} and delivers what it lacks, from the index that ${t} itself reports.`,
    when: (t) => Boolean(t.blocked && t.blocked.kind === "HELD"),
  },
  quarantine: {
    title: (t) => `Quarantine an entry at ${t}?`, button: "Quarantine it",
    short: "Let it pass the entry that its store refuses.",
    says: (t, row) => `${t} keeps its part of this entry apart from its data and goes on after it. The entry is missing at ${t} from then on, until you redrive it. The decision is a record in the log, for every later player.`,
    fields: [["index", "Entry", number, (row) => (row && row.blocked && row.blocked.kind === "POISON" ? row.blocked.index : "")], ["reason", "Reason, recorded in the log", { type: "text" }]],
    when: (t) => Boolean(t.blocked && t.blocked.kind === "POISON"),
  },
  redrive: {
    title: (t) => `Redrive an entry at ${t}?`, button: "Redrive it",
    short: "Deliver a quarantined entry after all.",
    says: (t, row) => `If ${t} has not reached the entry yet, the decision to quarantine it is revoked. If it has passed it, its part is appended to the log as a new transaction: it is applied after everything that came since, and overwrites newer values of its keys.${quarantined(row)}`,
    fields: [["index", "Entry", number, (row) => row.quarantined_indexes?.[0] ?? ""]],
    when: (t) => t.quarantined > 0,
  },
  remove: {
    title: (t) => `Remove ${t}?`, button: "Remove it", danger: true,
    short: "It is not a member any more.",
    says: (t) => `${t} gets nothing that it does not have by now, and no longer keeps the log from being trimmed. Its data stays where it is. Refused while the map in force gives it keys.`,
    when: () => true,
  },
  add: {
    title: () => "Add a target", button: "Add it",
    short: "Make it a member of this log.",
    says: () => "The target becomes a member by a record in the log; players connect to it once they read that. It must hold what the log says up to the index that you give: 0 for an empty store.",
    fields: [["target", "Name", { type: "text", required: true }], ["address", "Address, grpc://HOST:PORT or tcp://HOST:PORT", { type: "text", required: true }], ["at", "It holds everything up to index", number, () => 0]],
  },
};

const dialog = document.getElementById("dialog");
const el = (id) => document.getElementById(id);
let submit = null;

let renewed, renew;
const expect = () => { renewed = new Promise((done) => { renew = done; }); };
expect();

export const token = {
  get: () => sessionStorage.getItem("logplayer-token") || "",
  set: (value) => { sessionStorage.setItem("logplayer-token", value); renew(); expect(); },
  changed: () => renewed, // Resolves when it is set the next time.
};

export const headers = () => (token.get() ? { authorization: `Bearer ${token.get()}` } : {});

function open(title, says, button, fields, act) {
  el("dialog-title").textContent = title;
  el("dialog-says").textContent = says;
  el("dialog-error").textContent = "";
  const box = el("dialog-fields");
  box.replaceChildren();
  for (const [name, label, attributes, value] of fields) {
    const line = document.createElement("label");
    const input = Object.assign(document.createElement("input"), attributes, { name });
    input.value = value ?? "";
    line.append(label, input);
    box.append(line);
  }
  el("confirm").textContent = button;
  el("confirm").hidden = !button;
  submit = act;
  const first = box.querySelector("input") || el("cancel");
  el("cancel").removeAttribute("aria-describedby");
  // A screen reader reads what a dialog says when it opens. If another takes its place, the element with the focus says it.
  if (dialog.open) first.setAttribute("aria-describedby", "dialog-title dialog-says");
  else dialog.showModal();
  first.focus();
}

el("cancel").addEventListener("click", () => dialog.close());
el("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const values = {};
  for (const input of el("dialog-fields").querySelectorAll("input")) {
    if (input.value !== "") values[input.name] = input.type === "number" ? Number(input.value) : input.value;
  }
  const focused = document.activeElement;
  el("confirm").disabled = true; // This takes the focus from it.
  try {
    const problem = await submit(values);
    if (problem) el("dialog-error").textContent = problem;
    else dialog.close();
  } finally {
    el("confirm").disabled = false;
    if (dialog.open) focused.focus();
  }
});

export function askToken(why) {
  open("Token", why, "Use it", [["token", "Token", { type: "password", autocomplete: "off" }, token.get()]], async (values) => {
    token.set(values.token || "");
    return "";
  });
}

async function post(name, body) {
  let answer;
  try {
    answer = await fetch(`actions/${name}`, { method: "POST", headers: { "content-type": "application/json", ...headers() }, body: JSON.stringify(body) });
  } catch {
    return "The server does not answer; nothing was done.";
  }
  if (answer.ok) return "";
  const said = await answer.json().catch(() => ({}));
  return said.error || `HTTP ${answer.status}`;
}

export function confirmAction(name, row) {
  const action = ACTIONS[name];
  const target = row ? row.target : "";
  const fields = (action.fields || []).map(([field, label, attributes, value]) => [field, label, attributes, value ? value(row) : ""]);
  open(action.title(target), action.says(target, row), action.button, fields, (values) => post(name, { ...(target ? { target } : {}), ...values }));
}

export function menu(row, allowed) {
  const names = Object.keys(ACTIONS).filter((name) => allowed.includes(name) && ACTIONS[name].when && ACTIONS[name].when(row));
  open(row.target, row.why ? `${row.why}` : `${row.address}, session ${row.session || "none"}, digest ${row.digest.slice(0, 12)}…`, "", [], async () => "");
  const box = document.createElement("div");
  box.className = "menu";
  for (const name of names) {
    const button = document.createElement("button");
    button.type = "button";
    button.dataset.action = name;
    const more = Object.assign(document.createElement("span"), { className: "more", textContent: ACTIONS[name].short });
    button.append(ACTIONS[name].button, more);
    button.addEventListener("click", () => confirmAction(name, row));
    box.append(button);
  }
  el("dialog-fields").replaceChildren(box);
  (box.querySelector("button") || el("cancel")).focus();
}
