"""Questions to the page, in its own language."""

ROW = "const row = document.getElementById('t-' + arguments[0]);"
SAYS = """
const words = [...arguments];
return [...document.querySelectorAll('#timeline li')].some(li => words.every(word => li.textContent.includes(word)));
"""
LAG = ROW + "return Number(row.querySelector('.t-lag .v').textContent.split(' ')[0].replace(',', '')) > 2900"
BLOCKED = "return [...window.logplayer.targets.values()].find(t => t.state === 'BLOCKED')?.target"
ERROR = "return document.getElementById('dialog-error').textContent === arguments[0]"
FOCUS = "const e = document.activeElement; return e.id || e.ariaLabel || e.className || e.tagName"
FINE = "return [...window.logplayer.targets.values()].every(t => t.index >= arguments[0] && t.outlook === 'fine')"
# Notes what is shown of one target after each update: the status' time, the state, and the time of this page.
WATCH_STATE = (
    ROW
    + """
const pill = row.querySelector('.pill'), seen = window.seen = [];
new MutationObserver(() => seen.push([window.logplayer.status.now, pill.textContent, Date.now() / 1000]))
  .observe(document.querySelector('main'), { childList: true, characterData: true, subtree: true });
window.late = 0;
let last = performance.now();
setInterval(() => {
  const now = performance.now();
  window.late = Math.max(window.late, (now - last - 50) / 1000);
  last = now;
}, 50);
"""
)
# All that is shown at one moment, and the status that it is made from.
SHOWN = """
const s = window.logplayer.status, id = name => document.getElementById(name).textContent;
if (!(s.now > arguments[0])) return null;
const rows = {};
for (const [name, t] of window.logplayer.targets) {
  const at = selector => document.getElementById('t-' + name).querySelector(selector).textContent;
  rows[name] = { told: { ...t }, state: at('.t-state .pill'), index: at('.t-index'), lag: at('.t-lag .v'),
    rate: at('.t-rate'), outlook: at('.t-outlook b'), why: at('.t-outlook .more') };
}
const tiles = {};
for (const name of ['rate', 'delay', 'delay-more', 'lag', 'cut', 'cut-more', 'log-range', 'log-more', 'player-more',
    'producers-more', 'strip-text', 'audit', 'audit-more'])
  tiles[name] = id(name);
const troubles = [...document.querySelectorAll('#troubles li')].map(li => li.textContent);
return { now: s.now, current: s.current, log_last: s.log_last, rows, tiles, troubles, headline: id('headline') };
"""
TAKE_AND_SHOW = "window.logplayer.take('status', { ...arguments[1] });" + SHOWN
MAP = """
const found = { status: { ...window.logplayer.status } };
const names = ['producers', 'producers-more', 'log-range', 'log-more', 'player', 'player-more', 'counts', 'strip-text'];
for (const name of names)
  found[name] = document.getElementById(name).textContent;
found.dots = [...document.querySelectorAll('#dots span')].map(e => `${e.title}:${e.className}`).sort();
found.marks = {};
for (const name of ['held', 'trim', 'cut', 'main'])
  found.marks[name] = document.getElementById(`strip-${name}`).style.left;
return found;
"""
# The points of each line of the chart.
CHART = """
const lines = {}, numbers = at => at.split(' ').map(Number);
for (const path of document.querySelectorAll('#chart path'))
  lines[path.getAttribute('class')] = path.getAttribute('d').split(/[ML]/).slice(1).map(numbers);
return lines;
"""
SMALL_BUTTONS = """
const shown = [...document.querySelectorAll('button')].filter(b => b.getClientRects().length);
return shown.filter(b => b.getBoundingClientRect().height < 40).map(b => b.textContent);
"""
# Texts with less contrast to what is below them than WCAG's AA asks for.
LOW_CONTRAST = """
const part = v => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; };
const light = c => {
  const [r, g, b] = c.match(/[\\d.]+/g).map(Number).map(part);
  return .2126 * r + .7152 * g + .0722 * b;
};
const back = e => {
  for (; e; e = e.parentElement) {
    const c = getComputedStyle(e).backgroundColor;
    if (!c.endsWith(', 0)') && c !== 'transparent') return c;
  }
  return 'rgb(255,255,255)';
};
const low = [];
for (const e of document.querySelectorAll('main *, header *, dialog[open] *')) {
  const text = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
  if (!text || !e.getClientRects().length || e.closest('svg, .hidden')) continue;
  const a = light(getComputedStyle(e).color), b = light(back(e));
  const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
  if (ratio < 4.5) low.push(`${e.tagName}.${e.className} ${e.textContent.slice(0, 20)} ${ratio.toFixed(2)}`);
}
return low;
"""
# The milliseconds that one change of every target takes, with the layout that it leads to; and those of a control, the
# same work for this machine at any time, right before and after it.
TIMED_CHANGE = """
const data = arguments[0];
const control = () => {
  const began = performance.now();
  let sum = 0;
  for (let i = 0; i < 2e6; i += 1) sum += Math.sqrt(i);
  window.kept = sum;
  return performance.now() - began;
};
const before = control(), began = performance.now();
window.logplayer.take('change', data);
document.body.getBoundingClientRect();
const took = performance.now() - began;
return [took, before + control()];
"""
# How bad each row is, from the top; only once they are sorted by that.
SORTED = """
const moods = ['bad', 'warn', 'wait', 'good'];
const ranks = [...document.querySelectorAll('#rows tr')].map(tr => moods.indexOf(tr.className));
return ranks.every((rank, nth) => !nth || ranks[nth - 1] <= rank) && ranks;
"""
