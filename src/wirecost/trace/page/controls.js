// Moving, zooming, selecting, searching, and the way from a finding to its place.
const tip = document.getElementById("tip"), panel = document.getElementById("selection"), byId = (id) => document.getElementById(id);
const LEAST = 20;                                    // ns: no closer than that
function place(from, span) {
  span = Math.min(END * 1.02, Math.max(LEAST, span));
  const start = Math.min(Math.max(from, -0.01 * END), END * 1.01 - span);
  view = [start, start + span]; draw();
}
function zoom(factor, centre) {
  const span = Math.min(END * 1.02, Math.max(LEAST, (view[1] - view[0]) * factor)), share = (centre - view[0]) / (view[1] - view[0]);
  place(centre - share * span, span);
}
const middle = () => (view[0] + view[1]) / 2, everything = () => place(-0.01 * END, END * 1.02);
function around(from, to, room = 0.3) { const span = Math.max(to - from, LEAST); place(from - room * span, span * (1 + 2 * room)); }

function rankAt(py) {
  let y = AXIS - scroll.scrollTop;
  for (let r = 0; r < data.ranks.length; r++) { if (py < y + rowHeight(r)) return {r, inside: py - y}; y += rowHeight(r); }
  return null;
}
function topOf(r) { let y = 0; for (let i = 0; i < r; i++) y += rowHeight(i); return y; }
function toggle(r) { if (opened.has(r)) opened.delete(r); else opened.add(r); draw(); }

function describe(event) {
  const box = canvas.getBoundingClientRect(), px = event.clientX - box.left, py = event.clientY - box.top, hit = rankAt(py);
  if (!hit || px < labelWidth() || py < AXIS) return "";
  const rank = data.ranks[hit.r], time = timeAt(px), half = (view[1] - view[0]) / scroll.clientWidth;
  if (time < rank.start || time > rank.end) return rank.label + "  outside the recording";
  const {parts, recorded} = within(rank, time - half, time + half), lines = [rank.label + "  at " + text(time)];
  const shares = Object.entries(parts).filter(([, ns]) => ns > 0.005 * recorded).sort((a, b) => b[1] - a[1]);
  lines.push(shares.map(([name, ns]) => WORDS[name] + (ns > 0.995 * recorded ? "" : " " + percent(ns / recorded))).join(", "));
  const step = rank.steps.find(([, from, to]) => time >= from && time < to);
  if (step) lines.push(step[0]);
  const lane = opened.has(hit.r) ? Math.floor((hit.inside - GAP / 2 - STRIP - 4) / LANE) : -1;
  let listed = 0;
  for (const i of eventsIn(rank, time - half, time + half)) {
    if (lane >= 0 && rank.of[i] !== lane) continue;
    if (++listed > 5) { lines.push("…"); break; }
    const call = rank.calls.get(i);
    lines.push(data.names[rank.names[i]].slice(0, 200) + "  " + text(rank.ends[i] - rank.starts[i]));
    if (call) lines.push("   " + data.ops[call.op] + ", exposed " + text(call.exposed) + (call.wait >= 0 ? (call.bubble ? ", bubble " : ", waits ") + text(call.wait) : ", wait unknown"));
  }
  return lines.join("\n");
}
function showTip(event) {
  tip.textContent = describe(event);
  tip.style.display = tip.textContent ? "block" : "none";
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8)) + "px";
  tip.style.top = Math.max(4, Math.min(event.clientY + 16, window.innerHeight - tip.offsetHeight - 8)) + "px";
}

// Selection: the sums of a stretch over the ranks that were dragged over.
function select(from, to, lowest, highest) {
  if (to - from < 1) { selection = null; panel.hidden = true; draw(); return; }
  selection = {from, to, ranks: [Math.min(lowest, highest), Math.max(lowest, highest)]};
  showSelection(); draw();
}
function table(rows, heads) {
  const made = element("table"), head = element("tr");
  heads.forEach((title, n) => head.append(element("th", title, n ? "n" : "")));
  made.append(element("thead"), element("tbody")); made.firstChild.append(head);
  for (const cells of rows) {
    const line = element("tr");
    cells.forEach((cell, n) => { const td = element("td", "", n ? "n" : ""); if (cell.dot) { const dot = element("i", "", "dot"); dot.style.background = cell.dot; td.append(dot); } td.append(cell.text ?? cell); line.append(td); });
    made.lastChild.append(line);
  }
  return made;
}
function showSelection() {
  const {from, to, ranks: [low, high]} = selection, picked = data.ranks.slice(low, high + 1);
  const sums = {}, names = new Map();
  let recorded = 0, missing = false;
  for (const rank of picked) {
    const found = within(rank, from, to);
    recorded += found.recorded;
    for (const [name, ns] of Object.entries(found.parts)) sums[name] = (sums[name] || 0) + ns;
    for (const i of eventsIn(rank, from, to)) {
      const known = names.get(rank.names[i]) || {count: 0, ns: 0, kind: rank.kinds[i]};
      known.count++; known.ns += Math.min(rank.ends[i], to) - Math.max(rank.starts[i], from);
      names.set(rank.names[i], known);
    }
    missing = missing || rank.kept < rank.total;
  }
  const who = picked.length === 1 ? picked[0].label : picked[0].label + " to " + picked[picked.length - 1].label + ", means over " + picked.length + " ranks";
  const parts = Object.entries(sums).filter(([, ns]) => ns > 0).map(([name, ns]) => [{text: WORDS[name], dot: colors[name]}, text(ns / picked.length), recorded ? percent(ns / recorded) : "–"]);
  const tops = [...names].sort((a, b) => b[1].ns - a[1].ns).slice(0, 8).map(([name, v]) => [{text: data.names[name].slice(0, 160), dot: colors[["compute", "transfer", "memory"][v.kind]]}, String(v.count), text(v.ns / picked.length)]);
  panel.replaceChildren(element("h3", text(to - from) + " from " + text(from) + " to " + text(to) + ": " + who));
  const cols = element("div", "", "cols"), left = element("div"), right = element("div", "", "kernels"), tools = element("div", "", "tools");
  left.append(table(parts, ["category", "time", "share"]));
  right.append(table(tops, ["kernel" + (missing ? " (the longest events only)" : ""), "count", "time"]));
  cols.append(left, right);
  const closer = element("button", "Zoom to it"), away = element("button", "Clear");
  closer.onclick = () => around(from, to, 0.02); away.onclick = () => select(0, 0, 0, 0);
  tools.append(closer, away);
  panel.append(cols, tools); panel.hidden = false;
}

let drag = null, moves = matchMedia("(pointer: coarse)").matches;
const touches = new Map();
function mode(value) {
  moves = value; canvas.classList.toggle("moves", moves);
  byId("m-move").setAttribute("aria-pressed", moves); byId("m-select").setAttribute("aria-pressed", !moves);
}
canvas.addEventListener("wheel", e => {
  const box = canvas.getBoundingClientRect();
  if (e.ctrlKey || e.metaKey) { e.preventDefault(); zoom(Math.exp(Math.max(-0.5, Math.min(0.5, e.deltaY / 200))), timeAt(e.clientX - box.left)); }
  else if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) { e.preventDefault(); place(view[0] + (e.deltaX || e.deltaY) / scroll.clientWidth * (view[1] - view[0]), view[1] - view[0]); }
}, {passive: false});
canvas.addEventListener("pointerdown", e => {
  const box = canvas.getBoundingClientRect(), px = e.clientX - box.left, py = e.clientY - box.top, hit = rankAt(py);
  touches.set(e.pointerId, px);
  canvas.setPointerCapture(e.pointerId);
  if (touches.size === 2) { drag = null; return; }
  if (px < labelWidth()) { if (hit && py > AXIS) toggle(hit.r); return; }
  drag = {px, py, from: view[0], start: timeAt(px), r: hit ? hit.r : 0, moves: moves || e.shiftKey || e.button === 1 || py < AXIS};
});
canvas.addEventListener("pointermove", e => {
  const box = canvas.getBoundingClientRect(), px = e.clientX - box.left;
  if (touches.size === 2 && touches.has(e.pointerId)) {
    const [a, b] = [...touches.values()], was = Math.abs(a - b);
    touches.set(e.pointerId, px);
    const [c, d] = [...touches.values()], now = Math.abs(c - d);
    if (was > 5 && now > 5) zoom(was / now, timeAt((c + d) / 2));
    return;
  }
  if (!drag) return showTip(e);
  tip.style.display = "none";
  if (drag.moves) return place(drag.from - (px - drag.px) / (scroll.clientWidth - labelWidth()) * (view[1] - view[0]), view[1] - view[0]);
  if (Math.abs(px - drag.px) < 3) return;
  const hit = rankAt(e.clientY - box.top), time = timeAt(px);
  select(Math.min(drag.start, time), Math.max(drag.start, time), drag.r, hit ? hit.r : drag.r);
});
function release(e) {
  const box = canvas.getBoundingClientRect();
  touches.delete(e.pointerId);
  if (drag && !drag.moves && Math.abs(e.clientX - box.left - drag.px) < 3) select(0, 0, 0, 0);
  drag = null;
}
canvas.addEventListener("pointerup", release);
canvas.addEventListener("pointercancel", release);
canvas.addEventListener("pointerleave", () => { tip.style.display = "none"; });
canvas.addEventListener("dblclick", e => zoom(0.25, timeAt(e.clientX - canvas.getBoundingClientRect().left)));
canvas.addEventListener("keydown", e => {
  const span = view[1] - view[0], act = {
    "+": () => zoom(0.6, middle()), "=": () => zoom(0.6, middle()), "-": () => zoom(1.6, middle()), "0": everything,
    ArrowLeft: () => place(view[0] - span / 6, span), ArrowRight: () => place(view[0] + span / 6, span),
    Escape: () => select(0, 0, 0, 0), Enter: () => { const hit = rankAt(AXIS + 1); if (hit) toggle(hit.r); },
  }[e.key];
  if (act) { e.preventDefault(); act(); }
});
let brushing = false;
const brush = (e) => { const left = labelWidth(), box = overview.getBoundingClientRect(), span = view[1] - view[0]; place((e.clientX - box.left - left) / (box.width - left) * END - span / 2, span); };
overview.addEventListener("pointerdown", e => { brushing = true; overview.setPointerCapture(e.pointerId); brush(e); });
overview.addEventListener("pointermove", e => { if (brushing) brush(e); });
overview.addEventListener("pointerup", () => { brushing = false; });
byId("in").onclick = () => zoom(0.6, middle());
byId("out").onclick = () => zoom(1.6, middle());
byId("all").onclick = everything;
byId("m-select").onclick = () => mode(false);
byId("m-move").onclick = () => mode(true);

const steps = new Map(), chooser = byId("step");
for (const rank of data.ranks) for (const [name, from, to] of rank.steps) {
  const had = steps.get(name) || [Infinity, -Infinity];
  steps.set(name, [Math.min(had[0], from), Math.max(had[1], to)]);
}
chooser.add(new Option("all", ""));
for (const name of steps.keys()) chooser.add(new Option(name.slice(0, 60), name));
chooser.disabled = !steps.size;
chooser.onchange = () => { const span = steps.get(chooser.value); if (span) around(span[0], span[1], 0.02); else everything(); };

for (const button of document.querySelectorAll("button.go")) button.onclick = () => {
  const from = Number(button.dataset.from), to = Number(button.dataset.to), r = Number(button.dataset.rank);
  opened.add(r);
  around(from, to);
  select(from, to, r, r);
  scroll.scrollTop = Math.max(0, topOf(r) - 20);
  byId("timeline").scrollIntoView({behavior: "smooth", block: "start"});
};
