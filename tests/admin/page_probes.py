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
INDEXES = """
return [...window.logplayer.targets.values()].map(t =>
  [t.target, t.index, document.getElementById('t-' + t.target).querySelector('.t-index').textContent]);
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
for (const e of document.querySelectorAll('main *, header *')) {
  const text = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
  if (!text || !e.getClientRects().length || e.closest('svg, .hidden')) continue;
  const a = light(getComputedStyle(e).color), b = light(back(e));
  const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
  if (ratio < 4.5) low.push(`${e.tagName}.${e.className} ${e.textContent.slice(0, 20)} ${ratio.toFixed(2)}`);
}
return low;
"""
# The milliseconds that one change of every target takes, with the layout that it leads to.
TIMED_CHANGE = """
const data = arguments[0], began = performance.now();
window.logplayer.take('change', data);
document.body.getBoundingClientRect();
return performance.now() - began;
"""
# How bad each row is, from the top; only once they are sorted by that.
SORTED = """
const moods = ['bad', 'warn', 'wait', 'good'];
const ranks = [...document.querySelectorAll('#rows tr')].map(tr => moods.indexOf(tr.className));
return ranks.every((rank, nth) => !nth || ranks[nth - 1] <= rank) && ranks;
"""
