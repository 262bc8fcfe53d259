"use strict";

/* The activation explorer: curves of single units, decoded from the payload. */

/** Decode base64 to a typed array of little-endian numbers. */
function decode(text, kind) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i += 1) bytes[i] = raw.charCodeAt(i);
  if (kind === "classes") return bytes;
  const view = new DataView(bytes.buffer);
  return Int16Array.from({ length: bytes.length / 2 }, (_, i) => view.getInt16(2 * i, true));
}

/** The curves of one layer at one moment: slope and offset of hinge s of kept unit k. */
class Frame {
  constructor(layer, stored) {
    this.units = layer.units.length;
    this.hinges = layer.hinges;
    this.classes = decode(stored.classes, "classes");
    this.counts = stored.counts;
    const numbers = ({ data, scale }) =>
      Float64Array.from(decode(data), (whole) => (whole === -32768 ? NaN : whole * scale));
    this.slope = numbers(stored.slope);
    this.offset = numbers(stored.offset);
  }

  /** h(x) = max(0, x) + sum over s of a_s max(0, b_s - x). */
  value(unit, x) {
    let y = Math.max(0, x);
    for (let s = 0; s < this.hinges; s += 1) {
      const at = s * this.units + unit;
      y += this.slope[at] * Math.max(0, this.offset[at] - x);
    }
    return y;
  }

  hinge(unit, s) {
    const at = s * this.units + unit;
    return { slope: this.slope[at], offset: this.offset[at] };
  }

  leftSlope(unit) {
    let sum = 0;
    for (let s = 0; s < this.hinges; s += 1) sum -= this.slope[s * this.units + unit];
    return sum;
  }

  /** The bends within a window and its ends: lines between them are the exact curve. */
  points(unit, [low, high]) {
    const x = [low, high];
    if (low < 0 && high > 0) x.push(0);
    for (let s = 0; s < this.hinges; s += 1) {
      const { offset } = this.hinge(unit, s);
      if (offset > low && offset < high) x.push(offset);
    }
    x.sort((p, q) => p - q);
    return { x, y: x.map((place) => this.value(unit, place)) };
  }
}

const frames = new WeakMap();
function frameOf(layer, index) {
  if (!frames.has(layer)) frames.set(layer, []);
  const known = frames.get(layer);
  known[index] ??= new Frame(layer, layer.frames[index]);
  return known[index];
}

const number = (value) => (Number.isFinite(value) ? String(Number(value.toPrecision(3))) : "not finite").replace("-", "−");

/** Replace the options of a select, keeping its choice where it still exists. */
function fill(select, options, chosen) {
  select.replaceChildren(...options.map(([value, label]) => new Option(label, value, false, String(value) === String(chosen))));
}

class Panel {
  constructor(report, root, changed) {
    this.report = report;
    this.root = root;
    this.changed = changed;
    this.state = { run: 0, layer: 0, unit: 0, moment: 0, classes: new Set(report.data.classes.keys()), view: "inputs", colour: "minus-one" };
    this.listen();
  }

  control(name) { return this.root.querySelector(`[data-control="${name}"]`); }
  part(name) { return this.root.querySelector(`[data-part="${name}"]`); }
  chart(name) { return this.root.querySelector(`[data-chart="${name}"]`); }
  get entry() { return this.report.data.curves[this.state.run]; }
  get layer() { return this.entry.layers[this.state.layer]; }
  get frame() { return frameOf(this.layer, this.state.moment); }
  get isMap() { return this.layer.lattice.length === 3; }

  listen() {
    const on = (name, event, act) => this.control(name).addEventListener(event, (e) => { act(e.target.value); this.update(); });
    on("run", "change", (value) => this.chooseRun(Number(value)));
    on("layer", "change", (value) => this.chooseLayer(Number(value)));
    on("unit", "change", (value) => { this.state.unit = Number(value); });
    on("moment", "input", (value) => { this.state.moment = Number(value); this.keepShown(); });
    on("view", "change", (value) => { this.state.view = value; });
    on("colour", "change", (value) => { this.state.colour = value; });
    on("previous", "click", () => this.step(-1));
    on("next", "click", () => this.step(1));
    ["channel", "row", "column"].forEach((name, axis) => on(name, "change", (value) => {
      const place = this.place();
      place[axis] = Number(value);
      this.state.unit = this.unitAt(place);
    }));
    this.chart("map").addEventListener("keydown", (event) => {
      const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
      if (!move) return;
      event.preventDefault();
      this.chooseCell(this.cell().map((at, axis) => at + move[axis]));
    });
  }

  chooseRun(run) {
    const { name } = this.layer;
    const { moments } = this.entry;
    const unit = this.layer.units[this.state.unit];
    const part = moments.length > 1 ? this.state.moment / (moments.length - 1) : 1;
    this.state.run = run;
    const same = this.entry.layers.findIndex((layer) => layer.name === name);
    const label = this.entry.moments.indexOf(moments[this.state.moment]);
    this.state.moment = label >= 0 ? label : Math.round(part * (this.entry.moments.length - 1));
    this.chooseLayer(Math.max(0, same), unit);
  }

  chooseLayer(layer, unit = 0) {
    this.state.layer = layer;
    this.state.unit = Math.max(0, this.layer.units.indexOf(unit));
    this.keepShown();
  }

  shown(unit) { return this.state.classes.has(this.frame.classes[unit]); }

  /** Move to the nearest unit of a class that is shown, if there is one. */
  keepShown() { if (!this.shown(this.state.unit)) this.step(1); }

  step(by) {
    const { length } = this.layer.units;
    for (let i = 1; i <= length; i += 1) {
      const unit = (((this.state.unit + by * i) % length) + length) % length;
      if (this.shown(unit)) { this.state.unit = unit; return; }
    }
  }

  /** Channel, row and column of the chosen unit in the lattice. */
  place() {
    const [, rows, columns] = this.layer.lattice;
    const { unit } = this.state;
    return [Math.floor(unit / (rows * columns)), Math.floor(unit / columns) % rows, unit % columns];
  }

  unitAt([channel, row, column]) {
    const [, rows, columns] = this.layer.lattice;
    return (channel * rows + row) * columns + column;
  }

  /** Rows and columns of the map: positions of a feature map, or units line by line. */
  grid() {
    if (this.isMap) return this.layer.lattice.slice(1);
    const columns = Math.max(1, Math.ceil(Math.sqrt(1.6 * this.layer.units.length)));
    return [Math.ceil(this.layer.units.length / columns), columns];
  }

  cell() {
    if (this.isMap) return this.place().slice(1);
    const [, columns] = this.grid();
    return [Math.floor(this.state.unit / columns), this.state.unit % columns];
  }

  cellUnit(row, column) {
    const [rows, columns] = this.grid();
    if (row < 0 || column < 0 || row >= rows || column >= columns) return -1;
    const unit = this.isMap ? this.unitAt([this.place()[0], row, column]) : row * columns + column;
    return unit < this.layer.units.length ? unit : -1;
  }

  chooseCell([row, column]) {
    const unit = this.cellUnit(row, column);
    if (unit < 0) return;
    this.state.unit = unit;
    this.update();
  }

  describe(unit) {
    const flat = this.layer.units[unit];
    const { shape } = this.layer;
    if (shape.length !== 3) return `unit ${flat}`;
    const [, height, width] = shape;
    return `channel ${Math.floor(flat / (height * width))}, row ${Math.floor(flat / width) % height}, column ${flat % width}`;
  }

  update() {
    this.draw();
    this.changed(this);
  }

  draw() {
    const { data } = this.report;
    const { entry, layer, state } = this;
    fill(this.control("run"), data.curves.map((item, i) => [i, this.report.runName(data.runs[item.run])]), state.run);
    fill(this.control("layer"), entry.layers.map((item, i) => [i, `${item.name} (${item.shape.join(" × ") || "1"} units)`]), state.layer);
    this.root.setAttribute("aria-label", `Curves of ${this.report.runName(data.runs[entry.run])}`);
    this.drawPosition();
    const slider = this.control("moment");
    slider.max = entry.moments.length - 1;
    slider.value = state.moment;
    slider.setAttribute("aria-valuetext", entry.moments[state.moment]);
    this.part("moment").textContent = entry.moments[state.moment];
    this.control("view").value = state.view;
    this.control("colour").value = state.colour;
    this.drawClasses();
    this.drawFacts();
    drawCurve(this);
    drawMap(this);
    drawAll(this);
  }

  drawPosition() {
    for (const name of ["channel", "row", "column"]) this.part(name).hidden = !this.isMap;
    this.part("unit").hidden = this.isMap;
    if (!this.isMap) {
      fill(this.control("unit"), this.layer.units.map((flat, unit) => [unit, flat]), this.state.unit);
      return;
    }
    const { lattice, shape } = this.layer;
    // Numbers as in the whole layer; the lattice keeps every so many.
    ["channel", "row", "column"].forEach((name, axis) => {
      const options = Array.from({ length: lattice[axis] }, (_, i) => [i, Math.floor((i * shape[axis]) / lattice[axis])]);
      fill(this.control(name), options, this.place()[axis]);
    });
  }

  drawClasses() {
    const part = this.part("classes");
    const total = this.frame.counts.reduce((sum, count) => sum + count, 0);
    if (part.querySelectorAll("label").length === 0) {
      this.report.data.classes.forEach(({ name, meaning }, index) => {
        const label = document.createElement("label");
        const box = Object.assign(document.createElement("input"), { type: "checkbox", value: index });
        const count = Object.assign(document.createElement("span"), { className: "count" });
        label.title = meaning;
        label.append(box, name, " ", count);
        box.addEventListener("change", () => {
          if (box.checked) this.state.classes.add(index); else this.state.classes.delete(index);
          this.keepShown();
          this.update();
        });
        part.append(label);
      });
    }
    part.querySelectorAll("label").forEach((label, index) => {
      const count = this.frame.counts[index];
      label.querySelector("input").checked = this.state.classes.has(index);
      label.querySelector(".count").textContent = `${count.toLocaleString("en")} (${((100 * count) / total).toFixed(0)} %)`;
    });
  }

  drawFacts() {
    const { frame } = this;
    const { unit } = this.state;
    const facts = [
      ["Class", this.report.data.classes[frame.classes[unit]].name],
      ["h(−1)", number(frame.value(unit, -1))],
      ["h(0)", number(frame.value(unit, 0))],
      ["Slope far left", number(frame.leftSlope(unit))],
      ["Hinges b (slope a)", Array.from({ length: frame.hinges }, (_, s) => frame.hinge(unit, s))
        .sort((p, q) => p.offset - q.offset).map(({ slope, offset }) => `${number(offset)} (${number(slope)})`).join(", ")],
    ];
    this.part("facts").replaceChildren(...facts.map(([term, text]) => {
      const pair = document.createElement("div");
      pair.append(Object.assign(document.createElement("dt"), { textContent: term }), Object.assign(document.createElement("dd"), { textContent: text }));
      return pair;
    }));
  }

  /** Follow another panel as far as this one's run has the same. */
  follow(other) {
    const { state } = this;
    Object.assign(state, { view: other.state.view, colour: other.state.colour, classes: new Set(other.state.classes) });
    const layer = this.entry.layers.findIndex((item) => item.name === other.layer.name);
    if (layer >= 0) state.layer = layer;
    const unit = this.layer.units.indexOf(other.layer.units[other.state.unit]);
    state.unit = unit >= 0 ? unit : Math.min(state.unit, this.layer.units.length - 1);
    const { moments } = other.entry;
    const same = this.entry.moments.indexOf(moments[other.state.moment]);
    const part = moments.length > 1 ? other.state.moment / (moments.length - 1) : 1;
    state.moment = same >= 0 ? same : Math.round(part * (this.entry.moments.length - 1));
    this.draw();
  }
}
