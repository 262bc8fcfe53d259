// The page: one state, and one function that shows it everywhere.

import { Frame, Handle, format, formatLine, svg } from "./draw.js";
import * as model from "./model.js";
import { PRESETS } from "./presets.js";

const LIMIT = { a: 3, b: 6 };
const MOST = 5;
const BIG = { ratio: 0.66, least: 250, margin: { left: 34, right: 14, top: 12, bottom: 58 } };
const SMALL = { ratio: 0.6, least: 170, margin: { left: 30, right: 10, top: 8, bottom: 24 } };

const state = { hinges: [], x: -1.5, range: 3, preset: null };
const $ = (id) => document.getElementById(id);
const layers = {
  stems: svg("g", {}, $("plot")),
  back: svg("g", {}, $("plot")),
  slopes: svg("g", {}, $("plot")),
  offsets: svg("g", {}, $("plot")),
};
let frame = null;

// The slope's handle sits this far left of its hinge: there the curve moves with the slope.
const reach = () => state.range / 4;

function make(tag, { text, ...attributes } = {}, parent = null) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  parent?.append(element);
  return element;
}

function change(s, values) {
  Object.assign(state.hinges[s], values);
  state.preset = null;
  show();
}

function load(name) {
  const { slope, offset } = PRESETS[name];
  state.hinges = slope.map((a, s) => ({ a, b: offset[s] }));
  state.range = Math.max(...offset.map(Math.abs)) > 3 ? 6 : 3;
  state.preset = name;
  show();
}

// As torchapl.init.authors_: slopes uniform within min(1/2, 1/S), positions normal with deviation 1/2.
function randomStart() {
  const bound = Math.min(0.5, 1 / state.hinges.length);
  const normal = () =>
    Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
  const rounded = (value) => Math.round(value * 1e4) / 1e4 + 0;
  state.hinges = state.hinges.map(() => ({
    a: rounded((2 * Math.random() - 1) * bound),
    b: rounded(0.5 * normal()),
  }));
  state.range = 3;
  state.preset = null;
  show();
}

function setCount(count) {
  // A new hinge has slope 0: the curve stays as it is.
  while (state.hinges.length < count) state.hinges.push({ a: 0, b: -0.5 * state.hinges.length });
  state.hinges.length = count;
  state.preset = null;
  show();
}

// Shows a number in a field unless it is being typed there.
function fill(input, value) {
  if (document.activeElement !== input || Number(input.value) !== value) input.value = value;
}

function numberField(input, limit, set) {
  const read = () => input.value.trim() !== "" && Number.isFinite(Number(input.value));
  const clamped = () => Math.min(limit, Math.max(-limit, Number(input.value)));
  input.addEventListener("input", () => {
    // Half-typed numbers ("-", "", "40") wait for the end of typing.
    if (read() && clamped() === Number(input.value)) set(clamped());
  });
  input.addEventListener("change", () => {
    if (read()) set(clamped());
    else show();
  });
}

const rows = Array.from({ length: MOST }, (_, s) => {
  const row = make("tr", {}, $("hinges"));
  make(
    "span",
    { class: "badge", style: `background: var(--s${s + 1})`, text: s + 1 },
    make("td", {}, row),
  );
  const inputs = {};
  for (const [key, word] of [
    ["a", "slope"],
    ["b", "position"],
  ]) {
    const label = `${word} of hinge ${s + 1}`;
    inputs[key] = make(
      "input",
      {
        type: "number",
        step: 0.05,
        min: -LIMIT[key],
        max: LIMIT[key],
        id: `${key}${s + 1}`,
        "aria-label": label,
      },
      make("td", {}, row),
    );
    numberField(inputs[key], LIMIT[key], (value) => change(s, { [key]: value }));
  }
  return { row, ...inputs };
});

const handles = rows.map((_, s) => {
  const common = { colour: `--s${s + 1}`, text: s + 1 };
  const stem = svg("line", { class: "stem", style: `stroke: var(--s${s + 1})` }, layers.stems);
  const slope = new Handle(layers.slopes, {
    ...common,
    mark: "square",
    radius: 8,
    vertical: true,
    label: `Slope of hinge ${s + 1}`,
    low: -LIMIT.a,
    high: LIMIT.a,
    value: () => state.hinges[s].a,
    change: (a) => change(s, { a }),
    drag: (dx, dy) => frame.dy(dy) / reach(),
  });
  const offset = new Handle(layers.offsets, {
    ...common,
    mark: "circle",
    radius: 10,
    vertical: false,
    label: `Position of hinge ${s + 1}`,
    low: -LIMIT.b,
    high: LIMIT.b,
    value: () => state.hinges[s].b,
    change: (b) => change(s, { b }),
    drag: (dx) => frame.dx(dx),
  });
  return { stem, slope, offset };
});

const probe = new Handle(layers.offsets, {
  mark: "triangle",
  radius: 9,
  colour: "--ink",
  label: "Probe x",
  vertical: false,
  low: -LIMIT.b,
  high: LIMIT.b,
  value: () => state.x,
  change: (x) => {
    state.x = x;
    show();
  },
  drag: (dx) => frame.dx(dx),
});

function showHandles() {
  const at = (x) => {
    // A handle beyond the view waits at its edge.
    const edge = state.range - frame.dx(11);
    const shown = frame.inside(x, -edge, edge);
    return [
      frame.x(shown),
      frame.y(frame.inside(model.value(state.hinges, shown), frame.low, frame.high)),
    ];
  };
  handles.forEach(({ stem, slope, offset }, s) => {
    const hinge = state.hinges[s];
    for (const element of [stem, slope.element, offset.element])
      element.style.display = hinge ? "" : "none";
    if (!hinge) return;
    const [from, to] = [at(hinge.b - reach()), at(hinge.b)];
    slope.place(...from);
    offset.place(...to);
    for (const [key, value] of Object.entries({ x1: from[0], y1: from[1], x2: to[0], y2: to[1] }))
      stem.setAttribute(key, value);
  });
  probe.place(frame.x(frame.inside(state.x, -state.range, state.range)), frame.bottom);
}

// Below the curve: the slope of each segment between two kinks.
function showSlopes(segments) {
  const top = frame.bottom + 26;
  svg("text", { x: 2, y: top + 18 }, layers.back, "slope");
  for (const { from, to, slope } of segments) {
    const [left, right] = [Math.max(from, -state.range), Math.min(to, state.range)].map((x) =>
      frame.x(x),
    );
    if (right <= left) continue;
    if (from > -state.range) {
      svg(
        "line",
        { x1: left, x2: left, y1: frame.margin.top, y2: top + 26, class: "grid" },
        layers.back,
      );
    }
    const text = format(Math.round(slope * 100) / 100);
    const room = 8 * text.length;
    if (right - left > room) {
      // Not across the word at the left edge.
      const middle = Math.max((left + right) / 2, frame.margin.left + 8 + room / 2);
      svg(
        "text",
        { x: middle, y: top + 18, class: "slope-label", "text-anchor": "middle" },
        layers.back,
        text,
      );
    }
  }
}

function showPlot() {
  frame = new Frame($("plot"), state.range, BIG);
  layers.back.replaceChildren();
  frame.axes(layers.back);
  showSlopes(model.segments(state.hinges));
  const target = state.preset && PRESETS[state.preset].target;
  if (target)
    frame.path(
      layers.back,
      target.map((y, i) => [-6 + i / 10, y]),
      "reference",
    );
  else frame.function(layers.back, model.relu, [{ position: 0 }], "reference");
  frame.function(
    layers.back,
    (x) => model.value(state.hinges, x),
    model.kinks(state.hinges),
    "curve",
  );
  if (Math.abs(state.x) <= state.range)
    frame.probe(layers.back, state.x, model.value(state.hinges, state.x));
  showHandles();
}

function fillTable(body, cells, here = -1) {
  body.replaceChildren(
    ...cells.map((texts, i) => {
      const row = make("tr", i === here ? { class: "here" } : {});
      for (const text of texts) make("td", { text }, row);
      return row;
    }),
  );
}

function interval({ from, to }) {
  if (from === -Infinity && to === Infinity) return "all x";
  if (from === -Infinity) return `x ≤ ${format(to)}`;
  return to === Infinity ? `x ≥ ${format(from)}` : `${format(from)} … ${format(to)}`;
}

const isHere = ({ from, to }) => state.x >= from && state.x < to;

function showSegments() {
  const segments = model.segments(state.hinges);
  const cells = segments.map((line) => [interval(line), format(line.slope), formatLine(line)]);
  fillTable($("segments").tBodies[0], cells, segments.findIndex(isHere));
  $("shape").textContent = model.shape(state.hinges);
}

function showMaxout() {
  const pair = model.maxoutPair(state.hinges);
  for (const [name, lines] of Object.entries(pair)) {
    const cells = lines.map((line) => [
      formatLine(line),
      interval(line),
      format(line.slope * state.x + line.intercept),
    ]);
    fillTable($(name).tBodies[0], cells, lines.findIndex(isHere));
    const picture = $(`${name}-plot`);
    const small = new Frame(picture, state.range, SMALL);
    picture.replaceChildren();
    small.axes(picture);
    for (const line of lines) {
      const ends = [-state.range, state.range].map((x) => [x, line.slope * x + line.intercept]);
      small.path(picture, ends, "piece");
    }
    small.function(
      picture,
      (x) => model.largest(lines, x),
      lines.slice(1).map(({ from }) => ({ position: from })),
      "envelope",
    );
    if (Math.abs(state.x) <= state.range)
      small.probe(picture, state.x, model.largest(lines, state.x));
  }
  const [first, second] = [
    model.largest(pair.convex, state.x),
    model.largest(pair.concave, state.x),
  ];
  $("difference").textContent = `${format(first)} − ${format(second)} = ${format(first - second)}`;
}

function showNetwork() {
  const layer = model.network(state.hinges);
  const outputs = layer.map(({ weight, bias }) => model.relu(weight * state.x + bias));
  const cells = layer.map(({ weight, bias, output }, k) => [
    k === 0 ? "max(0, x)" : `hinge ${k}`,
    ...[weight, bias, outputs[k], output, output * outputs[k]].map(format),
  ]);
  fillTable($("network").tBodies[0], cells);
  fillTable($("network").tFoot, [
    ["h(x)", "", "", "", "", format(model.networkValue(layer, state.x))],
  ]);

  const picture = $("network-plot");
  const [width, gap] = [Math.max(240, Math.min(320, picture.clientWidth)), 40];
  const height = gap * layer.length + 12;
  picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
  picture.style.height = `${height}px`;
  picture.replaceChildren();
  const columns = [22, width / 2, width - 22];
  layer.forEach(({ weight, output }, k) => {
    const y = 6 + gap * (k + 0.5);
    const middle = height / 2;
    svg(
      "line",
      { x1: columns[0], y1: middle, x2: columns[1], y2: y, class: "edge", "stroke-width": 1.5 },
      picture,
    );
    svg(
      "line",
      {
        x1: columns[1],
        y1: y,
        x2: columns[2],
        y2: middle,
        class: "edge",
        "stroke-width": Math.min(8, 0.5 + 4 * Math.abs(output)),
      },
      picture,
    );
    svg(
      "circle",
      { cx: columns[1], cy: y, r: 9, class: outputs[k] > 0 ? "node active" : "node" },
      picture,
    );
    for (const [value, x, share] of [
      [weight, columns[0], 0.72],
      [output, columns[2], 0.62],
    ]) {
      const place = {
        x: x + (columns[1] - x) * share,
        y: middle + (y - middle) * share - 3,
        "text-anchor": "middle",
        class: "slope-label",
      };
      svg("text", place, picture, format(Math.round(value * 100) / 100));
    }
  });
  for (const [x, name] of [
    [columns[0], "x"],
    [columns[2], "h"],
  ]) {
    svg("circle", { cx: x, cy: height / 2, r: 14, class: "node" }, picture);
    svg("text", { x, y: height / 2 + 4, "text-anchor": "middle" }, picture, name);
  }
}

function showCode() {
  const list = (key) => `[${state.hinges.map((hinge) => hinge[key].toFixed(4)).join(", ")}]`;
  $("code").textContent = [
    "import torch",
    "from torchapl import apl",
    "",
    `slope = torch.tensor(${list("a")})`,
    `offset = torch.tensor(${list("b")})`,
    `y = apl(torch.tensor([${state.x.toFixed(4)}]), slope, offset)`,
  ].join("\n");
}

function showSettings() {
  for (const button of $("presets").children)
    button.setAttribute("aria-pressed", button.value === state.preset);
  for (const button of $("count").children)
    button.setAttribute("aria-pressed", Number(button.value) === state.hinges.length);
  rows.forEach(({ row, a, b }, s) => {
    row.hidden = !state.hinges[s];
    if (row.hidden) return;
    fill(a, state.hinges[s].a);
    fill(b, state.hinges[s].b);
  });
  $("range").value = state.range;
  fill($("probe"), state.x);
  $("value").textContent = format(model.value(state.hinges, state.x));
  const note = state.preset && PRESETS[state.preset].note;
  $("note").textContent = note ? `${note} Dashed: the function itself.` : "Dashed: ReLU.";
}

function show() {
  showSettings();
  showPlot();
  showSegments();
  showMaxout();
  showNetwork();
  showCode();
}

function setTheme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  $("theme").setAttribute("aria-pressed", dark);
}

for (const [name, { label }] of Object.entries(PRESETS)) {
  make("button", { type: "button", value: name, text: label }, $("presets")).addEventListener(
    "click",
    () => load(name),
  );
}
make(
  "button",
  { type: "button", value: "random", text: "Authors' random start" },
  $("presets"),
).addEventListener("click", randomStart);
for (let count = 1; count <= MOST; count++) {
  const button = make(
    "button",
    {
      type: "button",
      value: count,
      text: count,
      "aria-label": `${count} hinge${count > 1 ? "s" : ""}`,
    },
    $("count"),
  );
  button.addEventListener("click", () => setCount(count));
}
$("range").addEventListener("change", () => {
  state.range = Number($("range").value);
  show();
});
numberField($("probe"), LIMIT.b, (x) => {
  state.x = x;
  show();
});
$("theme").addEventListener("click", () =>
  setTheme(document.documentElement.dataset.theme !== "dark"),
);
window.addEventListener("resize", () => requestAnimationFrame(show));

setTheme(window.matchMedia("(prefers-color-scheme: dark)").matches);
load("example");
