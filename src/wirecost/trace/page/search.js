// Kernel names: the table, the search, and the way from match to match.
const box = byId("search"), hits = byId("hits"), body = document.querySelector("#kernels tbody");
let shown = 20, matches = [], at = -1;
const lower = data.names.map(name => name.toLowerCase());

function listKernels() {
  const query = box.value.trim().toLowerCase(), whole = data.kernels.reduce((sum, k) => sum + k[3], 0);
  const rows = data.kernels.filter(k => !query || lower[k[0]].includes(query) || KINDS[k[1]].includes(query) || (k[4] || "").toLowerCase().includes(query));
  body.replaceChildren(...rows.slice(0, shown).map(([name, kind, count, ns, why]) => {
    const line = element("tr"), first = element("td"), dot = element("i", "", "dot");
    dot.style.background = colors[["compute", "transfer", "memory"][kind]];
    const label = element("span", "", "long");
    label.append(dot, data.names[name]); label.title = data.names[name]; first.append(label);
    line.append(first, element("td", KINDS[kind]), element("td", count.toLocaleString("en"), "n"), element("td", text(ns), "n"), element("td", percent(whole ? ns / whole : 0), "n"));
    line.cells[1].title = why; if (kind === 1 || !why.startsWith("no sign")) line.cells[1].append(element("small", why));
    line.onclick = () => { box.value = data.names[name]; search(); byId("timeline").scrollIntoView({behavior: "smooth"}); };
    return line;
  }));
  const rest = rows.length - shown, covered = data.ranks.reduce((s, r) => s + r.kept, 0), total = data.ranks.reduce((s, r) => s + r.total, 0);
  byId("more").hidden = rest <= 0;
  byId("more").textContent = "show " + Math.min(rest, 200) + " more";
  byId("kernel-note").textContent = rows.length + " of " + data.kernels.length + " rows, over all ranks and the whole recording"
    + (data.distinct > new Set(data.kernels.map(k => k[0])).size ? " (" + data.distinct + " names in all: --table kernels lists them)" : "") + ". "
    + (covered < total ? "The time line holds the " + covered.toLocaleString("en") + " longest of " + total.toLocaleString("en") + " events; search finds those." : "Click a name to find it in the time line.");
}
function search() {
  const query = box.value.trim().toLowerCase();
  wanted = null; matches = []; at = -1;
  if (query) {
    wanted = new Set(lower.flatMap((name, n) => name.includes(query) ? [n] : []));
    data.ranks.forEach((rank, r) => {
      for (let i = 0; i < rank.names.length; i++) {
        const call = rank.calls.get(i);
        if (wanted.has(rank.names[i]) || (call && data.ops[call.op].toLowerCase().includes(query))) { matches.push([rank.starts[i], rank.ends[i], r]); wanted.add(rank.names[i]); }
      }
    });
    matches.sort((a, b) => a[0] - b[0]);
  }
  hits.textContent = query ? matches.length.toLocaleString("en") + " found" : "";
  listKernels(); draw();
}
function go(step) {
  if (!matches.length) return;
  at = at < 0 ? Math.max(0, matches.findIndex(m => m[0] >= view[0])) : (at + step + matches.length) % matches.length;
  const [from, to, r] = matches[at];
  hits.textContent = (at + 1).toLocaleString("en") + " of " + matches.length.toLocaleString("en");
  opened.add(r);
  if (to < view[0] || from > view[1] || (to - from) / (view[1] - view[0]) < 0.01) around(from, to, 4);
  select(from, to, r, r);
  const top = topOf(r), seen = scroll.clientHeight;
  if (top < scroll.scrollTop || top + rowHeight(r) > scroll.scrollTop + seen) scroll.scrollTop = Math.max(0, top - 20);
}
box.addEventListener("input", search);
box.addEventListener("keydown", e => { if (e.key === "Enter") { e.preventDefault(); go(e.shiftKey ? -1 : 1); } });
byId("next").onclick = () => go(1);
byId("prev").onclick = () => go(-1);
byId("more").onclick = () => { shown += 200; listKernels(); };

scroll.addEventListener("scroll", draw);
window.addEventListener("resize", () => { sumOfAll = null; draw(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColors(); listKernels(); if (selection) showSelection(); draw(); });
readColors(); mode(moves); listKernels(); everything();
document.body.dataset.ready = "yes";
