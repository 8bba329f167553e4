/* The report's own script: tables that sort, filter and save; charts; a view that links keep.
   Numbers come from the page's data alone, quantities in base SI. */
"use strict";
(async () => {
const byId = id => document.getElementById(id);
const unpacked = base64 => new Response(
  new Blob([Uint8Array.from(atob(base64), character => character.charCodeAt(0))]).stream()
    .pipeThrough(new DecompressionStream("gzip"))).json();
const data = await unpacked(byId("data").textContent);

/* What people read: as opdb.units writes it. */

const MISSING = "–";
const PREFIXES = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"],
  [1e-6, "µ"], [1e-9, "n"]];
/* Python rounds a half to the even digit, JavaScript up. */
const ZEROS = 30;
const isHalf = digits => /^50*$/.test(digits.slice(-ZEROS)) && /[02468]$/.test(digits.slice(0, -ZEROS));
const fixed = (value, digits) => {
  const long = value.toFixed(digits + ZEROS);
  return isHalf(long) ? long.slice(0, -ZEROS) : value.toFixed(digits);
};
const rounded = (value, digits) => {
  const [long, exponent] = value.toExponential(digits - 1 + ZEROS).split("e");
  return Number(isHalf(long) ? `${long.slice(0, -ZEROS)}e${exponent}` : value.toPrecision(digits));
};
const show = (value, unit) => {
  if (value === 0) return `0 ${unit}`;
  const [scale, prefix] = PREFIXES.find(([least]) => Math.abs(value) >= least) || [1, ""];
  return `${rounded(value / scale, 4)} ${prefix}${unit}`;
};
const text = (value, unit) => {
  if (value === null || value === undefined) return MISSING;
  if (unit === "share") return `${fixed(100 * value, 1)} %`;
  if (unit === "ratio") return fixed(value, 3);
  if (unit === "number") return String(rounded(value, 3));
  return unit ? show(value, unit) : String(value);
};
const interval = (ends, unit) => ends ? `${text(ends[0], unit)} to ${text(ends[1], unit)}` : MISSING;
const element = (name, attributes = {}, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};
const sum = values => values.reduce((total, each) => total + (each ?? 0), 0);

/* The view: what links keep, after the #. */

const view = new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
const keep = (name, value) => {
  if (value) view.set(name, value); else view.delete(name);
  history.replaceState(null, "", `#${view}`);
};

/* Files. */

const save = (name, type, content) => {
  const link = element("a", {
    href: URL.createObjectURL(new Blob([content], {type})), download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
};
const button = (label, title, act) => {
  const made = element("button", {type: "button", title}, label);
  made.addEventListener("click", act);
  return made;
};

/* Tables. */

const valueOf = cell => cell.dataset.v ?? cell.textContent;
const compare = (a, b) => {
  const [one, other] = [valueOf(a), valueOf(b)];
  if (one === MISSING || other === MISSING) return (one === MISSING) - (other === MISSING);
  const [x, y] = [parseFloat(one), parseFloat(other)];
  return Number.isNaN(x) || Number.isNaN(y) ? one.localeCompare(other) : x - y;
};
const sort = (table, column) => {
  const place = Math.abs(column) - 1, sign = Math.sign(column);
  const rows = [...table.tBodies[0].rows];
  rows.sort((a, b) => sign * compare(a.cells[place], b.cells[place]));
  table.tBodies[0].append(...rows);
  [...table.tHead.rows[0].cells].forEach((heading, number) => {
    if (number !== place) heading.removeAttribute("aria-sort");
    else heading.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
  });
};
const filter = (table, words, told) => {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of table.tBodies[0].rows) {
    const said = row.textContent.toLowerCase();
    row.hidden = !wanted.every(word => said.includes(word));
    shown += !row.hidden;
  }
  told.textContent = `${shown} of ${table.tBodies[0].rows.length} rows`;
};
const quoted = field => /[",\n]/.test(field) ? `"${field.replaceAll('"', '""')}"` : field;
const csv = table => {
  const names = [...table.tHead.rows[0].cells].map(each => each.dataset.name || each.textContent);
  const rows = [...table.tBodies[0].rows].filter(row => !row.hidden).map(row =>
    [...row.cells].map(cell => valueOf(cell) === MISSING ? "" : valueOf(cell)));
  return [names, ...rows].map(row => row.map(quoted).join(",") + "\n").join("");
};
const tools = table => {
  const box = element("input", {type: "search", size: 18});
  const told = element("output");
  box.value = view.get(`${table.id}.filter`) || "";
  box.addEventListener("input", () => {
    keep(`${table.id}.filter`, box.value);
    filter(table, box.value, told);
  });
  box.setAttribute("aria-label", `Filter: ${table.caption.textContent}`);
  const label = element("label", {}, "Filter ", box);
  table.parentElement.before(element("div", {class: "controls"}, label, told,
    button("CSV", "Save the rows shown as CSV", () => save(`${table.id}.csv`, "text/csv", csv(table)))));
  const again = () => {
    const by = Number(view.get(`${table.id}.sort`));
    if (by && Math.abs(by) <= table.tHead.rows[0].cells.length) sort(table, by);
    filter(table, box.value, told);
  };
  table.refresh = () => { headings(table); again(); };
  table.refresh();
};
const headings = table => [...table.tHead.rows[0].cells].forEach((heading, place) => {
  if (heading.querySelector("button")) return;
  const act = button(heading.textContent, "Sort by this column", () => {
    const by = heading.getAttribute("aria-sort") === "ascending" ? -(place + 1) : place + 1;
    keep(`${table.id}.sort`, String(by));
    sort(table, by);
  });
  heading.replaceChildren(act);
});
const fill = (table, columns, rows) => {
  if (!table.tHead.rows[0].cells.length)
    table.tHead.rows[0].append(...columns.map(column =>
      element("th", {scope: "col", "data-name": column.name}, column.title)));
  table.tBodies[0].replaceChildren(...rows.map(row => element("tr", {}, ...columns.map(column => {
    const value = row[column.name];
    const cell = element("td", {}, text(value, column.unit));
    if (typeof value === "number") cell.dataset.v = value;
    if (column.unit) cell.className = "number";
    return cell;
  }))));
  table.refresh?.();
};

/* Charts: Observable Plot draws; its own style sheet is in the report's. */

const draw = (figure, summary, colours, options) => {
  const drawn = Plot.plot({width: 960, marginLeft: 70, marginBottom: 40, ...options});
  const svg = drawn.tagName === "svg" ? drawn : drawn.querySelector("svg");
  drawn.querySelectorAll("style").forEach(each => each.remove());
  svg.querySelectorAll("[aria-label]").forEach(each => each.removeAttribute("aria-label"));
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", summary);
  const swatches = element("ul", {class: "swatches"},
    ...colours.map((name, number) => element("li", {class: `k${number % 8}`}, name)));
  figure.querySelector(".drawn").replaceChildren(svg, swatches);
};
const colour = names => ({domain: names, range: names.map((_, n) => `var(--c${n % 8})`)});
const asFile = svg => {
  const copy = svg.cloneNode(true), from = [svg, ...svg.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((each, number) => {
    const style = getComputedStyle(from[number]);
    for (const name of ["fill", "stroke"]) each.setAttribute(name, style.getPropertyValue(name));
  });
  copy.setAttribute("font-family", "sans-serif");
  copy.setAttribute("font-size", "10");
  return new XMLSerializer().serializeToString(copy);
};
const ticks = unit => value => show(value, unit);
const si = value => show(value, "").trim();

/* A choice of the view: a select, or radio buttons. */

const choice = (id, act) => {
  const box = byId(id);
  const radios = [...box.querySelectorAll("input")];
  const set = value => radios.length
    ? radios.forEach(each => { each.checked = each.value === value; })
    : (box.value = value);
  const get = () => radios.length ? radios.find(each => each.checked).value : box.value;
  const known = radios.length ? radios.map(each => each.value) : [...box.options].map(o => o.value);
  if (known.includes(view.get(id))) set(view.get(id));
  box.addEventListener("change", () => { keep(id, get()); act(get()); });
  return {get, show: value => { if (known.includes(value)) { set(value); act(value); } }};
};
const fields = measure => measure === "time"
  ? {predicted: "predicted_time_s", measured: "measured_time_s", ends: "time_interval_s", unit: "s"}
  : {predicted: "predicted_energy_j", measured: "measured_energy_j", ends: "energy_interval_j", unit: "J"};
const titleOf = run => `${run.shown}, ${run.words}, ${run.mode}, ${run.board.slice(0, 12)}`;

/* Accuracy. */

const modes = [...new Set(data.runs.map(run => run.mode))];
const accuracy = measure => {
  const of = fields(measure);
  const rows = data.runs.filter(run => run.whole && run[of.predicted] && run[of.measured]).map(run => ({
    run, x: run[of.measured], y: run[of.predicted] / run[of.measured],
    ends: run[of.ends]?.map(end => end / run[of.measured])}));
  draw(byId("accuracy-chart"), `Predicted over measured ${measure} of ${rows.length} runs, with ` +
    "95 % intervals, over the measured value; the table of runs has the numbers.", modes, {
    height: 380, color: colour(modes),
    x: {type: "log", label: `measured ${measure}`, tickFormat: ticks(of.unit), ticks: 8},
    y: {type: "log", label: "predicted / measured", grid: true, tickFormat: y => y.toFixed(2),
      ticks: 8},
    marks: [
      Plot.ruleY([1]),
      Plot.ruleX(rows.filter(row => row.ends), {x: "x", y1: row => row.ends[0],
        y2: row => row.ends[1], stroke: row => row.run.mode, strokeOpacity: 0.35}),
      Plot.dot(rows, {x: "x", y: "y", r: 2.5, fill: row => row.run.mode}),
      Plot.tip(rows, Plot.pointer({x: "x", y: "y", fill: "var(--ground)", title: row =>
        `${titleOf(row.run)}\npredicted ${text(row.run[of.predicted], of.unit)} ` +
        `(${interval(row.run[of.ends], of.unit)})\nmeasured ${text(row.run[of.measured], of.unit)}`})),
    ]});
};

/* One run: where its time and energy go. */

const part = (run, name, time_s, dynamic_j) => {
  const base = run.base_power_w === null ? null : run.base_power_w * time_s;
  return {part: name, time_s, dynamic_energy_j: dynamic_j, base_energy_j: base,
    energy_j: base === null ? null : base + (dynamic_j ?? 0)};
};
const configurations = run => {
  const workload = data.workloads[run.workload];
  return workload.configurations.map((place, number) => {
    const [key, title, shape] = data.configurations[place];
    const calls = workload.counts[number], time_s = run.times_s[number];
    const dynamic = run.dynamic_j[number];
    const found = time_s === null
      ? {part: title, time_s: null, energy_j: null, dynamic_energy_j: null, base_energy_j: null}
      : part(run, title, calls * time_s, dynamic === null ? null : calls * dynamic);
    return {...found, configuration: key, input: shape, calls,
      status: time_s === null ? "missing" : "measured"};
  });
};
const rest = run => run.rest.map(([what, time_s]) => ({...part(run, what, time_s, null), calls: null}));
const withShares = (run, rows) => rows.map(row => ({...row,
  share_time: row.time_s === null || !run.predicted_time_s ? null : row.time_s / run.predicted_time_s,
  share_energy: row.energy_j === null || !run.predicted_energy_j ? null
    : row.energy_j / run.predicted_energy_j}));
const added = (one, other) => one === null && other === null ? null : (one ?? 0) + (other ?? 0);
const kinds = (run, rows) => {
  const found = new Map();
  for (const row of rows) {
    const kind = found.get(row.part);
    if (!kind) { found.set(row.part, {...row}); continue; }
    for (const name of ["calls", "time_s", "energy_j", "dynamic_energy_j", "base_energy_j"])
      kind[name] = added(kind[name], row[name]);
  }
  return [...found.values()];
};
const longest = rows => [...rows].sort((a, b) => (b.time_s ?? 0) - (a.time_s ?? 0));
const parts = run => {
  const own = configurations(run), others = rest(run);
  return {configurations: longest(withShares(run, [...own, ...others])),
    kinds: longest(withShares(run, [...kinds(run, own), ...others]))};
};
const drawKinds = (run, rows) => {
  const shown = rows.filter(row => row.time_s > 0).slice(0, 16);
  draw(byId("kinds-time"), "Time by kind; the table of kinds has the numbers.", [], {
    height: 40 + 22 * shown.length, marginLeft: 220,
    x: {label: "time", tickFormat: ticks("s"), grid: true, ticks: 6},
    y: {label: null, domain: shown.map(row => row.part)},
    marks: [Plot.barX(shown, {x: "time_s", y: "part", fill: "var(--c0)"})]});
  const sides = ["dynamic", "base"];
  const powered = shown.filter(row => row.energy_j !== null).flatMap(row => [
    {part: row.part, side: "dynamic", value: row.dynamic_energy_j ?? 0},
    {part: row.part, side: "base", value: row.base_energy_j}]);
  draw(byId("kinds-energy"), "Dynamic and base energy by kind; the table of kinds has the numbers.",
    sides, {height: 40 + 22 * shown.length, marginLeft: 220, color: colour(sides),
      x: {label: "energy", tickFormat: ticks("J"), grid: true, ticks: 6},
      y: {label: null, domain: shown.map(row => row.part)},
      marks: [Plot.barX(powered, {x: "value", y: "part", fill: "side"})]});
};
const drawOrder = run => {
  const workload = data.workloads[run.workload], sides = ["dynamic", "base"];
  const steps = [];
  let at = 0;
  const step = (time_s, dynamic, title) => {
    if (!time_s) return;
    const base = run.base_power_w ?? 0, over = Math.max(0, (dynamic ?? 0) / time_s);
    steps.push({x1: at, x2: at + time_s, y1: 0, y2: base, side: "base"},
      {x1: at, x2: at + time_s, y1: base, y2: base + over, side: "dynamic", title});
    at += time_s;
  };
  workload.order.forEach((number, place) => {
    const [, title, shape] = data.configurations[workload.configurations[number]];
    step(run.times_s[number], run.dynamic_j[number],
      `call ${place + 1}: ${title} ${shape}\n${text(run.times_s[number], "s")}, ` +
      `${text(run.dynamic_j[number], "J")} dynamic`);
  });
  run.rest.forEach(([what, time_s]) => step(time_s, 0, what));
  draw(byId("order-chart"), "Power of each call over the time of the pass, in the order of the " +
    "calls; areas are energies, of base and dynamic power.", sides, {
    height: 260, color: colour(sides),
    x: {label: "time in the pass", tickFormat: ticks("s"), ticks: 8},
    y: {label: run.base_power_w === null ? "no power readings" : "power, W", grid: true},
    marks: [Plot.rect(steps, {x1: "x1", x2: "x2", y1: "y1", y2: "y2", fill: "side",
      title: "title"})]});
};
const runsByName = new Map(data.runs.map(run => [run.name, run]));
const list = (id, rows) => byId(id).replaceChildren(...rows.filter(row => row[1]).flatMap(
  ([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
const one = name => {
  const run = runsByName.get(name), found = parts(run);
  list("run-figures", [
    ["predicted time", `${text(run.predicted_time_s, "s")} (${interval(run.time_interval_s, "s")})`],
    ["measured time", `${text(run.measured_time_s, "s")}, predicted / measured ` +
      text(run.attribution_time, "ratio")],
    ["predicted energy", `${text(run.predicted_energy_j, "J")} (${interval(run.energy_interval_j, "J")})`],
    ["measured energy", `${text(run.measured_energy_j, "J")}, predicted / measured ` +
      text(run.attribution_energy, "ratio")],
    ["board", run.board], ["base power", text(run.base_power_w, "W")],
    ["coverage", Object.entries(run.coverage).map(([of, share]) => `${of} ${text(share, "share")}`).join(", ")],
    ["flags of the run", run.flags.join("; ")], ["notes", run.notes.join("; ")]]);
  drawKinds(run, found.kinds);
  drawOrder(run);
  fill(byId("kinds"), data.columns.kinds, found.kinds);
  fill(byId("configurations"), data.columns.parts, found.configurations);
};

/* One model over batch sizes, modes and boards. */

/* Labels of places on a logarithmic axis: places too close for two labels share one. */
const CLOSE = 0.04;
const labels = places => {
  const sorted = [...places].sort((one, other) => one - other), groups = [];
  const close = CLOSE * Math.log(sorted.at(-1) / sorted[0]);
  sorted.forEach((place, n) => n && Math.log(place / sorted[n - 1]) < close
    ? groups.at(-1).push(place) : groups.push([place]));
  return new Map(groups.map(group => [group[Math.floor(group.length / 2)], group.join(", ")]));
};
const overs = {
  batch_size: {title: "batch size", of: run => run.batch_size, words: /^batch \d+ /},
  context: {title: "context", of: run => run.context, words: / context \d+( length \d+)?/}};
const scaling = () => {
  const model = scalingModel.get(), measure = scalingMeasure.get(), of = fields(measure);
  const over = overs[scalingOver.get()];
  const rows = data.runs.filter(run => run.shown === model).map(run => {
    const a = value => value === null || value === undefined ? null : value / run.samples;
    return {...run, series: `${run.mode}, ${run.words.replace(over.words, "")}`,
      time_per_sample_s: a(run.predicted_time_s), measured_time_per_sample_s: a(run.measured_time_s),
      energy_per_sample_j: a(run.predicted_energy_j),
      measured_energy_per_sample_j: a(run.measured_energy_j),
      x: over.of(run), y: a(run[of.predicted]), seen: a(run[of.measured]),
      ends: run[of.ends]?.map(a)};
  });
  const shown = rows.filter(row => row.x !== null && row.y !== null);
  const names = [...new Set(shown.map(row => row.series))];
  const sizes = [...new Set(shown.map(row => row.x))], told = labels(sizes);
  const domain = sizes.length ? {} : {domain: [1, 10]};
  draw(byId("scaling-chart"), `Predicted and measured ${measure} of ${model}, each sample, over the ` +
    `${over.title}; the table of the model has the numbers.`, names, {
    height: 340, color: colour(names),
    x: {type: "log", label: over.title, inset: 20, ...domain},
    y: {type: "log", label: `${measure} a sample`, tickFormat: ticks(of.unit), grid: true, ticks: 6,
      ...domain},
    marks: [
      Plot.axisX(sizes, {text: place => told.get(place) ?? ""}),
      Plot.ruleX(shown.filter(row => row.ends), {x: "x", y1: row => row.ends[0],
        y2: row => row.ends[1], stroke: "series", strokeWidth: 3, strokeOpacity: 0.4}),
      Plot.lineY(shown, {x: "x", y: "y", z: row => `${row.series} ${row.board}`, stroke: "series",
        sort: "x"}),
      Plot.dot(shown.filter(row => row.seen !== null), {x: "x", y: "seen", fill: "series", r: 3.5}),
      Plot.tip(shown, Plot.pointer({x: "x", y: "y", fill: "var(--ground)", title: row =>
        `${titleOf(row)}\npredicted ${text(row.y, of.unit)}, measured ${text(row.seen, of.unit)}`})),
    ]});
  fill(byId("scaling"), data.columns.scaling, rows);
};

/* Rooflines. */

const points = model => model.points.map(values =>
  Object.fromEntries(data.columns.points.map((column, place) => [column.name, values[place]])));
const roofAt = (x, unit, peaks, measure) => {
  const compute = peaks.flops_per_s[unit], memory = peaks.bytes_per_s.memory;
  if (!compute || !memory) return null;
  const seconds = Math.max(x / compute, 1 / memory);
  if (measure === "time") return x / seconds;
  const least = Math.max(x / peaks.flops_per_j[unit], 1 / peaks.bytes_per_j.memory);
  const joules = least + peaks.base_power_w * seconds;
  return Number.isFinite(joules) ? x / joules : null;
};
const roofline = () => {
  const model = data.roofs.models[Number(roofModel.get())], measure = roofMeasure.get();
  const rate = measure === "time" ? "flops_per_s" : "flops_per_j";
  const share = measure === "time" ? "share_time" : "share_energy";
  const unit = measure === "time" ? "FLOP/s" : "FLOP/J";
  const rows = points(model), drawn = rows.filter(row => row.intensity > 0 && row[rate] > 0);
  const weight = new Map();
  drawn.forEach(row => weight.set(row.operator, (weight.get(row.operator) ?? 0) + (row[share] ?? 0)));
  const names = [...weight.keys()].sort((a, b) => weight.get(b) - weight.get(a));
  const first = names.slice(0, 7), name = row => first.includes(row.operator) ? row.operator : "other";
  const shown = names.length > 7 ? [...first, "other"] : first;
  const units = [...new Set(drawn.map(row => row.unit))];
  const low = Math.min(0.05, ...drawn.map(row => row.intensity / 2));
  const high = Math.max(3000, ...drawn.map(row => row.intensity * 3));
  const roofs = [["measured", data.roofs.measured], ["vendor", data.roofs.vendor]].flatMap(
    ([source, peaks]) => units.flatMap(each => d3.range(101).map(step => {
      const x = low * (high / low) ** (step / 100);
      return {x, y: roofAt(x, each, peaks, measure), source, z: `${source} ${each}`, unit: each};
    }))).filter(row => row.y !== null);
  const ends = [...d3.rollup(roofs.filter(row => row.source === "measured"),
    each => each[each.length - 1], row => row.z).values()];
  draw(byId("roofline-chart"), `Roofline for ${measure} of ${model.title}: ${unit} over FLOP/byte; ` +
    "the table of operators has the numbers.", shown, {
    height: 420, color: colour(shown), marginRight: 90, r: {range: [2, 14]},
    x: {type: "log", label: "arithmetic intensity, FLOP/byte", tickFormat: si, ticks: 8},
    y: {type: "log", label: unit, tickFormat: si, grid: true, ticks: 6},
    marks: [
      Plot.line(roofs.filter(row => row.source === "vendor"), {x: "x", y: "y", z: "z",
        stroke: "var(--soft)", strokeDasharray: "4 3"}),
      Plot.line(roofs.filter(row => row.source === "measured"), {x: "x", y: "y", z: "z",
        stroke: "var(--ink)"}),
      Plot.text(ends, {x: "x", y: "y", text: "unit", textAnchor: "start", dx: 4}),
      Plot.dot(drawn, {x: "intensity", y: rate, r: share, fill: name, fillOpacity: 0.75}),
      Plot.dot(model.intensity && model[rate] ? [model] : [], {x: "intensity", y: rate, r: 9,
        symbol: "star", fill: "var(--ink)"}),
      Plot.tip(drawn, Plot.pointer({x: "intensity", y: rate, fill: "var(--ground)", title: row =>
        `${row.operator}, ${row.count} calls\n${text(row[rate], unit)}, ` +
        `${text(row[share], "share")} of the ${measure}`})),
    ]});
  fill(byId("points"), data.columns.points, rows);
};

/* The page. */

document.querySelectorAll("table").forEach(tools);
document.querySelectorAll("figure").forEach(figure => figure.querySelector("figcaption").append(" ",
  button("SVG", "Save this figure as SVG", () =>
    save(`${figure.id}.svg`, "image/svg+xml", asFile(figure.querySelector("svg"))))));
const measureChoice = choice("accuracy-measure", accuracy);
const runChoice = choice("run", one);
const scalingModel = choice("scaling-model", scaling), scalingMeasure = choice("scaling-measure", scaling);
const scalingOver = choice("scaling-over", scaling);
accuracy(measureChoice.get());
one(runChoice.get());
scaling();
let roofModel, roofMeasure;
if (data.roofs) {
  roofModel = choice("roofline-model", roofline);
  roofMeasure = choice("roofline-measure", roofline);
  roofline();
}
const go = id => {
  const heading = byId(id);
  if (heading) { heading.scrollIntoView(); heading.focus({preventScroll: true}); }
};
document.addEventListener("click", event => {
  const link = event.target.closest("a[href^='#']");
  if (!link) return;
  event.preventDefault();
  const asked = new URLSearchParams(link.hash.slice(1));
  if (asked.has("run")) {
    keep("run", asked.get("run"));
    runChoice.show(asked.get("run"));
  }
  const at = asked.get("at") || (asked.has("run") ? "where" : link.hash.slice(1));
  keep("at", at);
  go(at);
});
if (view.get("at")) go(view.get("at"));
/* for tests and for people at the console: what the page computes */
window.opdbReport = {data, parts, text, points};
})();
