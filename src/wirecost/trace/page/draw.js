// Drawing: every column of pixels is filled by the share of its time that each category takes.
const canvas = document.getElementById("canvas"), scroll = document.getElementById("scroll");
const overview = document.getElementById("overview"), ctx = canvas.getContext("2d");
const AXIS = 24, LANE = 15, GAP = 8;
const STRIP = data.ranks.length > 48 ? 10 : data.ranks.length > 16 ? 16 : 26;
const STACK = ["compute", "overlapped", "memory", "bubble", "wait", "exposed"];   // from the bottom up
let view = [0, END], selection = null, wanted = null, colors = {};
const opened = new Set(data.ranks.length <= 2 ? data.ranks.keys() : []);
const labelWidth = () => scroll.clientWidth < 520 ? 58 : 92;
const rowHeight = (r) => STRIP + GAP + (opened.has(r) ? data.ranks[r].lanes.length * LANE + 4 : 0);

function readColors() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["page", "panel", "ink", "dim", "line", "accent", "mark", "compute", "overlapped", "transfer", "wait", "bubble", "memory", "idle", "on-bar"])
    colors[name] = style.getPropertyValue("--" + name).trim();
  colors.exposed = colors.transfer;
}
function x(time) { const left = labelWidth(); return left + (time - view[0]) / (view[1] - view[0]) * (scroll.clientWidth - left); }
function timeAt(px) { const left = labelWidth(); return view[0] + (px - left) / (scroll.clientWidth - left) * (view[1] - view[0]); }

function sized(target, width, height) {
  const scale = window.devicePixelRatio || 1, context = target.getContext("2d");
  target.style.height = height + "px";
  target.width = Math.round(width * scale); target.height = Math.round(height * scale);
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = "12px system-ui, sans-serif"; context.textBaseline = "middle";
  return context;
}

// One strip of stacked shares. `sums(time)` gives the ns before a time of the four categories, of waits and of bubbles.
function strip(context, sums, weight, from, to, left, top, width, height) {
  const columns = Math.max(1, Math.round(width)), scale = window.devicePixelRatio || 1;
  const at = (i) => from + (to - from) * i / columns;
  let before = sums(from);
  let run = null;                                    // columns that look the same are one rectangle
  const flush = (end) => {
    if (!run) return;
    let y = top + height;
    run.heights.forEach((h, s) => {
      if (h <= 0) return;
      context.fillStyle = colors[STACK[s]];
      context.fillRect(left + run.start, y - h, end - run.start, h); y -= h;
    });
  };
  for (let i = 0; i < columns; i++) {
    const now = sums(at(i + 1)), whole = (to - from) / columns * weight;
    const [compute, overlapped, exposed, memory, wait, bubble] = now.map((value, k) => (value - before[k]) / whole);
    // What of a wait compute hides isn't exposed: the exposed time is taken for waiting first.
    const bubbles = Math.min(exposed, bubble), waits = Math.min(exposed - bubbles, wait);
    const heights = [compute, overlapped, memory, bubbles, waits, exposed - bubbles - waits]
      .map(share => Math.round(Math.min(1, share) * height * scale) / scale);
    before = now;
    if (run && run.heights.every((h, s) => h === heights[s])) continue;
    flush(i); run = {start: i, heights};
  }
  flush(columns);
}

function draw() {
  const width = scroll.clientWidth, total = AXIS + data.ranks.reduce((sum, _, r) => sum + rowHeight(r), 0);
  const height = Math.min(total, Math.max(160, window.innerHeight * 0.72));
  sized(canvas, width, height);
  document.getElementById("spacer").style.height = Math.max(0, total - height) + "px";
  let y = AXIS - scroll.scrollTop;
  for (let r = 0; r < data.ranks.length; r++) {
    const tall = rowHeight(r);
    if (y + tall > AXIS && y < height) row(r, y, width);
    y += tall;
  }
  axis(width, height);
  drawOverview();
}

function row(r, y, width) {
  const rank = data.ranks[r], left = labelWidth(), top = y + GAP / 2;
  const from = Math.max(view[0], rank.start), to = Math.min(view[1], rank.end);
  ctx.save(); ctx.beginPath(); ctx.rect(left, y, width - left, rowHeight(r)); ctx.clip();
  if (to > from) {
    const start = Math.floor(x(from)), end = Math.ceil(x(to));   // whole pixels: no column is smeared over two
    ctx.fillStyle = colors.idle; ctx.fillRect(start, top, end - start, STRIP);
    strip(ctx, t => sumsBefore(rank, t), 1, timeAt(start), timeAt(end), start, top, end - start, STRIP);
    waits(rank, top);
  }
  for (const [name, start, end] of rank.steps) {
    if (end < view[0] || start > view[1]) continue;
    ctx.globalAlpha = Math.min(1, Math.max(0.15, (x(end) - x(start)) / 80));   // many iterations: a hint of each
    ctx.fillStyle = colors.ink; ctx.fillRect(x(start) - 0.5, top - 3, 1, STRIP + 6); ctx.fillRect(x(end) - 0.5, top - 3, 1, STRIP + 6);
    ctx.globalAlpha = 1;
  }
  if (opened.has(r)) rank.lanes.forEach((lane, n) => drawLane(rank, lane, top + STRIP + 4 + n * LANE, width));
  band(r, y);
  ctx.restore();
  ctx.fillStyle = colors.ink;
  ctx.fillText((rank.lanes.length ? (opened.has(r) ? "▾ " : "▸ ") : "") + rank.label.slice(0, 12), 6, top + STRIP / 2);
  if (opened.has(r)) {
    ctx.fillStyle = colors.dim;
    rank.lanes.forEach((lane, n) => ctx.fillText((left < 80 ? lane.name.replace("stream ", "#") : lane.name).slice(0, 12), 18, top + STRIP + 4 + n * LANE + LANE / 2));
  }
}

const sumsBefore = (rank, t) => [0, 1, 2, 3].map(k => before(rank, k, t)).concat(waited(rank, "wait", t), waited(rank, "bubble", t));

function waits(rank, top) {                          // a thin line above what a collective waits for others
  for (const [i, call] of rank.calls) {
    if (call.wait <= 0 || rank.starts[i] > view[1] || rank.starts[i] + call.wait < view[0]) continue;
    const left = x(rank.starts[i]), right = x(rank.starts[i] + call.wait);
    ctx.fillStyle = call.bubble ? colors.bubble : colors.wait;
    if (right - left >= 1) ctx.fillRect(left, top - 3, right - left, 3);
  }
}

function drawLane(rank, lane, top, width) {
  const left = labelWidth(), covered = [0, 1, 2].map(() => new Float32Array(width - left + 2)), tall = LANE - 2;
  const dimmed = (i) => wanted && !wanted.has(rank.names[i]);
  for (let j = first(lane.latest, view[0]); j < lane.rows.length; j++) {
    const i = lane.rows[j];
    if (rank.starts[i] >= view[1]) break;
    const from = Math.max(x(rank.starts[i]), left), to = Math.min(x(rank.ends[i]), width);
    if (to <= from) continue;
    if (to - from < 1) { if (!dimmed(i)) covered[rank.kinds[i]][Math.floor(from - left)] += to - from; continue; }
    ctx.globalAlpha = dimmed(i) ? 0.18 : 1;
    ctx.fillStyle = colors[["compute", "transfer", "memory"][rank.kinds[i]]];
    ctx.fillRect(from, top, Math.max(to - from - (to - from > 3 ? 1 : 0), 0.5), tall);
    if (to - from > 34) {
      ctx.save(); ctx.beginPath(); ctx.rect(from, top, to - from - 2, tall); ctx.clip();
      ctx.fillStyle = colors["on-bar"]; ctx.font = "11px system-ui, sans-serif";
      ctx.fillText(short(data.names[rank.names[i]]).slice(0, 120), from + 4, top + tall / 2 + 0.5); ctx.restore();
    }
  }
  covered.forEach((share, kind) => {
    ctx.fillStyle = colors[["compute", "transfer", "memory"][kind]];
    share.forEach((value, px) => { if (value > 0) { ctx.globalAlpha = Math.min(1, Math.max(0.08, value)); ctx.fillRect(left + px, top, 1, tall); } });
  });
  ctx.globalAlpha = 1;
}
const short = (name) => name.replace(/^void /, "").replace(/\(anonymous namespace\)::/g, "").replace(/^(at::native::|cutlass::)+/, "");

function band(r, y) {
  if (!selection || r < selection.ranks[0] || r > selection.ranks[1]) return;
  const left = x(selection.from), right = x(selection.to);
  ctx.fillStyle = colors.accent; ctx.globalAlpha = 0.16; ctx.fillRect(left, y, right - left, rowHeight(r)); ctx.globalAlpha = 1;
  ctx.fillRect(left - 1, y, 2, rowHeight(r)); ctx.fillRect(right - 1, y, 2, rowHeight(r));
}

function axis(width, height) {
  const left = labelWidth();
  ctx.fillStyle = colors.page; ctx.fillRect(0, 0, width, AXIS - 2);
  const rough = (view[1] - view[0]) / Math.max(2, (width - left) / 110), power = 10 ** Math.floor(Math.log10(rough));
  const unit = [1, 2, 5, 10].map(f => f * power).find(f => f >= rough) || rough;
  for (let t = Math.ceil(view[0] / unit) * unit; t <= view[1]; t += unit) {
    ctx.fillStyle = colors.line; ctx.globalAlpha = 0.7; ctx.fillRect(x(t), AXIS - 4, 1, height); ctx.globalAlpha = 1;
    ctx.fillStyle = colors.dim; ctx.fillText(text(Math.abs(t) < unit / 1e6 ? 0 : t), Math.min(x(t) + 4, width - 60), 11);
  }
}

let sumOfAll = null;
function drawOverview() {
  const width = overview.clientWidth, height = 22, context = sized(overview, width, height), left = labelWidth();
  if (!sumOfAll) {                                   // a sample of the ranks is enough for a strip of 22 pixels
    const every = Math.ceil(data.ranks.length / 24), sample = data.ranks.filter((_, r) => r % every === 0);
    const columns = Math.max(1, Math.round(width - left)), table = [];
    for (let i = 0; i <= columns; i++) table.push(sample.map(rank => sumsBefore(rank, END * i / columns)).reduce((a, b) => a.map((v, k) => v + b[k])));
    sumOfAll = {columns, table, weight: sample.length};
  }
  context.fillStyle = colors.idle; context.fillRect(left, 2, width - left, height - 4);
  const {columns, table, weight} = sumOfAll;
  strip(context, t => table[Math.min(columns, Math.round(t / END * columns))], weight, 0, END, left, 2, columns, height - 4);
  const from = left + Math.max(0, view[0]) / END * (width - left), to = left + Math.min(END, view[1]) / END * (width - left);
  context.fillStyle = colors.page; context.globalAlpha = 0.6;
  context.fillRect(left, 0, from - left, height); context.fillRect(to, 0, width - to, height); context.globalAlpha = 1;
  context.strokeStyle = colors.ink; context.strokeRect(from + 0.5, 0.5, Math.max(2, to - from - 1), height - 1);
  context.fillStyle = colors.dim; context.fillText("whole", 6, height / 2);
}
