"use strict";
// The data of the page: cells with exact sums, device events, and what both say about any stretch of time.
const data = JSON.parse(document.getElementById("data").textContent);
const CATEGORIES = ["compute", "overlapped", "exposed", "memory"];
const WORDS = {compute: "compute only", overlapped: "overlapped", exposed: "exposed communication", memory: "exposed copies", idle: "idle"};
const KINDS = ["compute", "communication", "copies and fills"];
const END = Math.max(1, data.end);

function first(values, time) {                       // the first index whose value is greater than the time
  let lo = 0, hi = values.length;
  while (lo < hi) { const mid = (lo + hi) >> 1; if (values[mid] > time) hi = mid; else lo = mid + 1; }
  return lo;
}

for (const rank of data.ranks) {
  // Cells come as code, length [, four sums]: 0 idle, 1 to 4 one category, 5 several of them.
  const coded = rank.cells, edges = [rank.start], sums = CATEGORIES.map(() => [0]);
  for (let i = 0; i < coded.length;) {
    const code = coded[i], length = coded[i + 1];
    edges.push(edges[edges.length - 1] + length);
    for (let k = 0; k < 4; k++) {
      const part = code === 5 ? coded[i + 2 + k] : code === k + 1 ? length : 0;
      sums[k].push(sums[k][sums[k].length - 1] + part);
    }
    i += code === 5 ? 6 : 2;
  }
  rank.edges = Float64Array.from(edges);
  rank.sums = sums.map(s => Float64Array.from(s));
  rank.cells = null;
  // Events come as gap, length, name, stream, kind.
  const n = rank.events.length / 5, starts = new Float64Array(n), ends = new Float64Array(n);
  rank.lanes = rank.streams.map(name => ({name, rows: []}));
  rank.names = new Int32Array(n); rank.kinds = new Uint8Array(n); rank.of = new Uint16Array(n);
  for (let i = 0, at = rank.start; i < n; i++) {
    at += rank.events[5 * i];
    starts[i] = at; ends[i] = at + rank.events[5 * i + 1];
    rank.names[i] = rank.events[5 * i + 2]; rank.of[i] = rank.events[5 * i + 3]; rank.kinds[i] = rank.events[5 * i + 4];
    rank.lanes[rank.of[i]].rows.push(i);
  }
  rank.starts = starts; rank.ends = ends; rank.events = null;
  const running = rows => { let most = -Infinity; return Float64Array.from(rows, i => most = Math.max(most, ends[i])); };
  rank.latest = running(Array.from(starts.keys()));  // the latest end so far: where to start looking
  for (const lane of rank.lanes) lane.latest = running(lane.rows);
  rank.calls = new Map(rank.calls.map(([event, op, exposed, wait, bubble]) => [event, {op, exposed, wait, bubble}]));
  rank.waits = {wait: merged(rank, 0), bubble: merged(rank, 1)};
}

function merged(rank, bubble) {                      // when calls wait for others: disjoint stretches, and their sums
  const found = {from: [], to: [], sum: [0]};
  for (const [i, call] of [...rank.calls].sort((a, b) => rank.starts[a[0]] - rank.starts[b[0]])) {
    if (call.wait <= 0 || call.bubble !== bubble) continue;
    const last = found.to.length - 1, from = rank.starts[i], to = from + call.wait;
    if (last >= 0 && from <= found.to[last]) found.to[last] = Math.max(found.to[last], to);
    else { found.from.push(from); found.to.push(to); }
  }
  found.from.forEach((from, n) => found.sum.push(found.sum[n] + found.to[n] - from));
  return found;
}
function waited(rank, kind, time) {                  // ns of waiting before a time
  const {from, to, sum} = rank.waits[kind], i = first(to, time);
  return sum[i] + (i < from.length ? Math.max(0, time - from[i]) : 0);
}

function before(rank, k, time) {                     // ns of category k before a time
  const {edges} = rank, sums = rank.sums[k], n = edges.length - 1;
  if (n < 1 || time <= edges[0]) return 0;
  if (time >= edges[n]) return sums[n];
  const i = first(edges, time) - 1;
  return sums[i] + (sums[i + 1] - sums[i]) * (time - edges[i]) / (edges[i + 1] - edges[i]);
}

function within(rank, from, to) {                    // what a stretch goes to, in ns; idle is the rest of the recording
  const parts = {};
  let busy = 0;
  CATEGORIES.forEach((name, k) => { parts[name] = before(rank, k, to) - before(rank, k, from); busy += parts[name]; });
  const recorded = Math.max(0, Math.min(to, rank.end) - Math.max(from, rank.start));
  parts.idle = Math.max(0, recorded - busy);
  return {parts, recorded};
}

function* eventsIn(rank, from, to) {
  for (let i = first(rank.latest, from); i < rank.starts.length && rank.starts[i] < to; i++) if (rank.ends[i] > from) yield i;
}

function text(ns) {
  const size = Math.abs(ns), digits = (v) => v >= 100 ? 1 : v >= 10 ? 2 : 3;
  if (size >= 1e9) return (ns / 1e9).toFixed(digits(size / 1e9)) + " s";
  if (size >= 1e6) return (ns / 1e6).toFixed(digits(size / 1e6)) + " ms";
  if (size >= 1e3) return (ns / 1e3).toFixed(digits(size / 1e3)) + " µs";
  return Math.round(ns) + " ns";
}
const percent = (share) => (100 * share).toFixed(1) + " %";
const element = (tag, content = "", name = "") => {  // text only: what comes from a trace never becomes markup
  const made = document.createElement(tag);
  made.textContent = content;
  if (name) made.className = name;
  return made;
};
