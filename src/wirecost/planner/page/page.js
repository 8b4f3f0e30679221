"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const canvas = document.getElementById("scatter");
const drawing = canvas.getContext("2d");
const names = Object.keys(data.choices);
const at = new Map(data.place.map((place, index) => [place, index]));
const pareto = new Set(data.pareto.map((place) => at.get(place)));
const listed = new Set(data.listed.map((place) => at.get(place)));
const box = { left: 70, right: 1060, top: 15, bottom: 415 };
const wanted = {};
let shown = [];
let picked = [];

function word(name, index) {
  const value = data.choices[name][index];
  if (name === "stack") return data.stacks[value];
  return data.words[name] ? data.words[name][value] : String(value);
}

function seconds(value) {
  const size = Math.abs(value);
  if (size >= 1) return value.toPrecision(4) + " s";
  if (size >= 1e-3) return (value * 1e3).toPrecision(4) + " ms";
  return (value * 1e6).toPrecision(3) + " µs";
}

function label(index) {
  return names
    .filter((name) => (name !== "placement" && name !== "schedule") || data.choices[name][index] > (name === "schedule" ? 1 : 0))
    .map((name) => name + "=" + word(name, index))
    .join(", ");
}

function scales() {
  const times = data.time.map(Math.log);
  const low = Math.min(...times), high = Math.max(...times, low + 0.01);
  const most = Math.max(data.gpu_memory, ...data.memory);
  return {
    x: (value) => box.left + ((Math.log(value) - low) / (high - low)) * (box.right - box.left),
    y: (value) => box.bottom - (value / most) * (box.bottom - box.top),
    low, high, most,
  };
}
const scale = scales();

function text(value, x, y, align) {
  drawing.textAlign = align;
  drawing.fillText(value, x, y);
}

function axes() {
  drawing.fillStyle = "#555";
  drawing.strokeStyle = "#eee";
  drawing.font = "12px system-ui, sans-serif";
  for (let step = 0; step <= 5; step++) {
    const time = Math.exp(scale.low + ((scale.high - scale.low) * step) / 5);
    const x = scale.x(time);
    drawing.beginPath(); drawing.moveTo(x, box.top); drawing.lineTo(x, box.bottom); drawing.stroke();
    text(seconds(time), x, box.bottom + 18, step === 5 ? "right" : step ? "center" : "left");
    const memory = (scale.most * step) / 5, y = scale.y(memory);
    drawing.beginPath(); drawing.moveTo(box.left, y); drawing.lineTo(box.right, y); drawing.stroke();
    text((memory / 2 ** 30).toFixed(0) + " GiB", box.left - 8, y + 4, "right");
  }
  text("iteration time (logarithmic)", (box.left + box.right) / 2, box.bottom + 38, "center");
}

function dot(index, colour, size) {
  drawing.fillStyle = colour;
  drawing.fillRect(scale.x(data.time[index]) - size / 2, scale.y(data.memory[index]) - size / 2, size, size);
}

function draw() {
  drawing.clearRect(0, 0, canvas.width, canvas.height);
  axes();
  for (const index of shown) if (!pareto.has(index)) dot(index, "#7aa6c2", 3);
  for (const index of shown) if (pareto.has(index)) dot(index, "#e07b39", 6);
  for (const index of shown) if (listed.has(index)) dot(index, "#222", 6);
  picked.forEach((index, number) => {
    drawing.strokeStyle = number ? "#2a7f3f" : "#b01020";
    drawing.lineWidth = 2;
    drawing.strokeRect(scale.x(data.time[index]) - 7, scale.y(data.memory[index]) - 7, 14, 14);
    drawing.lineWidth = 1;
  });
  document.getElementById("count").textContent =
    `${shown.length} of ${data.total} plans are shown` +
    (data.place.length < data.total ? ` (the fastest, and every few of the others: ${data.place.length} in this page).` : ".");
  for (const row of document.querySelectorAll("#plans tr[data-place]"))
    row.classList.toggle("on", picked.includes(at.get(Number(row.dataset.place))));
}

function apply() {
  shown = [];
  for (let index = 0; index < data.place.length; index++)
    if (names.every((name) => wanted[name] === undefined || data.choices[name][index] === wanted[name])) shown.push(index);
  draw();
}

function filters() {
  const form = document.getElementById("filters");
  for (const name of names) {
    const values = [...new Set(data.choices[name])].sort((a, b) => a - b);
    if (values.length < 2) continue;
    const select = document.createElement("select");
    select.add(new Option("any", ""));
    for (const value of values) {
      const index = data.choices[name].indexOf(value);
      select.add(new Option(word(name, index), value));
    }
    select.addEventListener("change", () => {
      wanted[name] = select.value === "" ? undefined : Number(select.value);
      apply();
    });
    const holder = document.createElement("label");
    holder.append(name + " ", select);
    form.append(holder);
  }
}

function row(table, cells, tag) {
  const line = table.insertRow();
  cells.forEach((cell, number) => {
    const element = document.createElement(tag || "td");
    element.textContent = cell;
    if (number === cells.length - 1 && !tag) element.className = "text";
    line.append(element);
  });
}

function halfWidth(a, b) {
  let variance = 0;
  const size = Math.sqrt(data.time[a] * data.time[b]);
  data.parts.forEach((part, number) => {
    variance += (((part[a] - part[b]) * data.part_errors[number]) / size) ** 2;
  });
  const differs = (name) => data.choices[name][a] !== data.choices[name][b];
  if (["tp", "pp", "vpp", "cp", "ep", "mb", "recompute", "sp"].some(differs)) variance += data.other_degrees ** 2;
  if (differs("stack")) variance += data.other_stack ** 2;
  if (data.choices.cp[a] > 1 !== data.choices.cp[b] > 1) variance += data.unfitted ** 2;
  return Math.sqrt(variance);
}

function explain() {
  const place = document.getElementById("picked");
  place.replaceChildren();
  picked.forEach((index, number) => {
    const line = document.createElement("p");
    line.textContent = `${"AB"[number]}: ${seconds(data.time[index])}, ${(data.memory[index] / 2 ** 30).toFixed(1)} GiB, ` +
      `${Math.round(data.tokens / data.time[index]).toLocaleString("en")} tokens/s: ${label(index)}`;
    place.append(line);
  });
  if (picked.length < 2) return;
  const [a, b] = picked;
  const ratio = data.time[b] / data.time[a], width = halfWidth(a, b);
  const verdict = document.createElement("p");
  verdict.textContent = `B takes ${ratio.toFixed(3)} times as long, 90 % interval ${(ratio * Math.exp(-width)).toFixed(2)} ` +
    `to ${(ratio * Math.exp(width)).toFixed(2)}: the model ${Math.abs(Math.log(ratio)) <= width ? "can't tell" : "tells"} them apart.`;
  const table = document.createElement("table");
  row(table, ["part", "A", "B", "B - A", "decided by"], "th");
  data.parts
    .map((part, number) => [number, part[a], part[b]])
    .filter(([, first, second]) => first || second)
    .sort((one, other) => Math.abs(other[2] - other[1]) - Math.abs(one[2] - one[1]))
    .forEach(([number, first, second]) =>
      row(table, [data.part_names[number], seconds(first), seconds(second),
        (second >= first ? "+" : "") + seconds(second - first), data.part_causes[number]]));
  place.append(verdict, table);
}

function pick(index) {
  if (index === undefined) return;
  picked = picked.includes(index) ? picked.filter((each) => each !== index) : [...picked, index].slice(-2);
  draw();
  explain();
}

canvas.addEventListener("click", (event) => {
  const frame = canvas.getBoundingClientRect();
  const x = ((event.clientX - frame.left) * canvas.width) / frame.width;
  const y = ((event.clientY - frame.top) * canvas.height) / frame.height;
  let nearest, least = 15 ** 2;
  for (const index of shown) {
    const distance = (scale.x(data.time[index]) - x) ** 2 + (scale.y(data.memory[index]) - y) ** 2;
    if (distance < least) [nearest, least] = [index, distance];
  }
  pick(nearest);
});
for (const line of document.querySelectorAll("#plans tr[data-place]"))
  line.addEventListener("click", () => pick(at.get(Number(line.dataset.place))));
filters();
apply();
