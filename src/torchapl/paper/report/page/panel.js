/* One run in the explorer: what is chosen of it, the controls that choose, its charts. */

import { frameOf } from "./curves.js";
import { element, fill } from "./dom.js";
import { text } from "./numbers.js";
import { drawAll, drawCurve, drawMap } from "./unit-charts.js";

const MARKUP = `
  <div class="controls">
    <label>Run <select data-control="run"></select></label>
    <label>Layer <select data-control="layer"></select></label>
    <label data-part="channel">Channel <select data-control="channel"></select></label>
    <label data-part="row">Row <select data-control="row"></select></label>
    <label data-part="column">Column <select data-control="column"></select></label>
    <label data-part="unit">Unit <select data-control="unit"></select></label>
    <span class="pair">
      <button type="button" data-control="previous">← Previous</button>
      <button type="button" data-control="next">Next →</button>
    </span>
  </div>
  <label class="slider"><span>During training: <strong data-part="moment"></strong></span>
    <input type="range" data-control="moment" min="0" step="1"></label>
  <fieldset data-part="classes"><legend>Classes shown, with counts over the layer</legend></fieldset>
  <div class="charts">
    <figure>
      <figcaption data-part="curve-title"></figcaption>
      <div class="chart" data-chart="curve" role="img" aria-label="The chosen unit's curve"></div>
      <label class="small">Window <select data-control="view">
        <option value="inputs">where the inputs fall</option><option value="fixed">−3 to 3</option>
      </select></label>
    </figure>
    <figure>
      <figcaption data-part="map-title"></figcaption>
      <div class="chart" data-chart="map" tabindex="0" role="application"
        aria-label="Map of the layer's units. Arrow keys move to the next one."></div>
      <label class="small">Colour <select data-control="colour">
        <option value="minus-one">h(−1)</option><option value="left">slope far left</option>
      </select></label>
    </figure>
    <figure>
      <figcaption data-part="all-title"></figcaption>
      <div class="chart" data-chart="all" role="img" aria-label="All curves of the classes shown"></div>
    </figure>
  </div>
  <dl class="facts" data-part="facts" aria-live="polite"></dl>`;

const AXES = ["channel", "row", "column"];
const ARROWS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

export class Panel {
  /** `changed` is told when the reader has chosen something here. */
  constructor(page, changed) {
    this.page = page;
    this.changed = changed;
    this.root = element("div", { className: "panel", innerHTML: MARKUP });
    this.root.setAttribute("role", "group");
    this.state = {
      run: 0,
      layer: 0,
      unit: 0,
      moment: 0,
      classes: new Set(page.data.classes.keys()),
      view: "inputs",
      colour: "minus-one",
    };
    this.listen();
  }

  control(name) {
    return this.root.querySelector(`[data-control="${name}"]`);
  }

  part(name) {
    return this.root.querySelector(`[data-part="${name}"]`);
  }

  chart(name) {
    return this.root.querySelector(`[data-chart="${name}"]`);
  }

  get entry() {
    return this.page.data.curves[this.state.run];
  }

  get layer() {
    return this.entry.layers[this.state.layer];
  }

  get frame() {
    return frameOf(this.layer, this.state.moment);
  }

  get isMap() {
    return this.layer.lattice.length === 3;
  }

  listen() {
    const on = (name, event, act) =>
      this.control(name).addEventListener(event, ({ target }) => {
        act(target.value);
        this.update();
      });
    on("run", "change", (value) => this.chooseRun(Number(value)));
    on("layer", "change", (value) => this.chooseLayer(Number(value)));
    on("unit", "change", (value) => {
      this.state.unit = Number(value);
    });
    on("moment", "input", (value) => {
      this.state.moment = Number(value);
      this.keepShown();
    });
    for (const name of ["view", "colour"]) {
      on(name, "change", (value) => {
        this.state[name] = value;
      });
    }
    on("previous", "click", () => this.step(-1));
    on("next", "click", () => this.step(1));
    AXES.forEach((name, axis) =>
      on(name, "change", (value) => {
        const place = this.place();
        place[axis] = Number(value);
        this.state.unit = this.unitAt(place);
      }),
    );
    this.chart("map").addEventListener("keydown", (event) => {
      const move = ARROWS[event.key];
      if (!move) return;
      event.preventDefault();
      this.chooseCell(this.cell().map((at, axis) => at + move[axis]));
    });
  }

  chooseRun(run) {
    const { entry, layer } = this;
    this.state.run = run;
    this.state.moment = this.momentLike(entry, this.state.moment);
    const same = this.entry.layers.findIndex(({ name }) => name === layer.name);
    this.chooseLayer(Math.max(0, same), layer.units[this.state.unit]);
  }

  chooseLayer(layer, unit = 0) {
    this.state.layer = layer;
    this.state.unit = Math.max(0, this.layer.units.indexOf(unit));
    this.keepShown();
  }

  /** The moment of this run with the label of another run's, or as far into training. */
  momentLike({ moments }, index) {
    const same = this.entry.moments.indexOf(moments[index]);
    const part = moments.length > 1 ? index / (moments.length - 1) : 1;
    return same >= 0 ? same : Math.round(part * (this.entry.moments.length - 1));
  }

  shown(unit) {
    return this.state.classes.has(this.frame.classes[unit]);
  }

  /** Move to the nearest unit of a class that is shown, if there is one. */
  keepShown() {
    if (!this.shown(this.state.unit)) this.step(1);
  }

  step(by) {
    const { length } = this.layer.units;
    for (let i = 1; i <= length; i += 1) {
      const unit = (((this.state.unit + by * i) % length) + length) % length;
      if (this.shown(unit)) {
        this.state.unit = unit;
        return;
      }
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
    const channel = Math.floor(flat / (height * width));
    return `channel ${channel}, row ${Math.floor(flat / width) % height}, column ${flat % width}`;
  }

  update() {
    this.draw();
    this.changed(this);
  }

  draw() {
    const { curves } = this.page.data;
    const { entry, state } = this;
    const name = ({ run }) => this.page.runName(run);
    fill(
      this.control("run"),
      curves.map((item, i) => [i, name(item)]),
      state.run,
    );
    fill(
      this.control("layer"),
      entry.layers.map((item, i) => [i, `${item.name} (${item.shape.join(" × ") || "1"} units)`]),
      state.layer,
    );
    this.root.setAttribute("aria-label", `Curves of ${name(entry)}`);
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
    for (const name of AXES) this.part(name).hidden = !this.isMap;
    this.part("unit").hidden = this.isMap;
    const { lattice, shape, units } = this.layer;
    if (!this.isMap) {
      const options = units.map((flat, unit) => [unit, flat]);
      fill(this.control("unit"), options, this.state.unit);
      return;
    }
    // Numbers as in the whole layer; the lattice keeps every so many.
    AXES.forEach((name, axis) => {
      const whole = (i) => Math.floor((i * shape[axis]) / lattice[axis]);
      const options = Array.from({ length: lattice[axis] }, (_, i) => [i, whole(i)]);
      fill(this.control(name), options, this.place()[axis]);
    });
  }

  drawClasses() {
    const part = this.part("classes");
    if (part.querySelectorAll("label").length === 0) {
      this.page.data.classes.forEach((kind, index) => part.append(this.classBox(kind, index)));
    }
    const total = this.frame.counts.reduce((sum, count) => sum + count, 0);
    part.querySelectorAll("label").forEach((label, index) => {
      const count = this.frame.counts[index];
      const percent = ((100 * count) / total).toFixed(0);
      label.querySelector("input").checked = this.state.classes.has(index);
      label.querySelector(".count").textContent = `${count.toLocaleString("en")} (${percent} %)`;
    });
  }

  classBox({ name, meaning }, index) {
    const box = element("input", { type: "checkbox", value: index });
    box.addEventListener("change", () => {
      if (box.checked) this.state.classes.add(index);
      else this.state.classes.delete(index);
      this.keepShown();
      this.update();
    });
    const count = element("span", { className: "count" });
    return element("label", { title: meaning }, box, name, " ", count);
  }

  drawFacts() {
    const { frame } = this;
    const { unit } = this.state;
    const hinges = frame.hingesOf(unit).toSorted((p, q) => p.offset - q.offset);
    const facts = {
      Class: this.page.data.classes[frame.classes[unit]].name,
      "h(−1)": text(frame.value(unit, -1)),
      "h(0)": text(frame.value(unit, 0)),
      "Slope far left": text(frame.leftSlope(unit)),
      "Hinges b (slope a)": hinges
        .map(({ slope, offset }) => `${text(offset)} (${text(slope)})`)
        .join(", "),
    };
    this.part("facts").replaceChildren(
      ...Object.entries(facts).map(([term, value]) => {
        const pair = [element("dt", { textContent: term }), element("dd", { textContent: value })];
        return element("div", {}, ...pair);
      }),
    );
  }

  /** Follow another panel as far as this one's run has the same. */
  follow(other) {
    const { state } = this;
    const { view, colour, classes } = other.state;
    Object.assign(state, { view, colour, classes: new Set(classes) });
    const layer = this.entry.layers.findIndex(({ name }) => name === other.layer.name);
    if (layer >= 0) state.layer = layer;
    const unit = this.layer.units.indexOf(other.layer.units[other.state.unit]);
    state.unit = unit >= 0 ? unit : Math.min(state.unit, this.layer.units.length - 1);
    state.moment = this.momentLike(other.entry, other.state.moment);
    this.draw();
  }

  /** Remember what is chosen; the function returned puts it back, as far as new data have it. */
  keep() {
    const { entry, layer, state } = this;
    const run = this.page.runKey(entry.run);
    const unit = layer.units[state.unit];
    const label = entry.moments[state.moment];
    const atEnd = state.moment === entry.moments.length - 1;
    const find = (list, test) => Math.max(0, list.findIndex(test));
    return () => {
      state.run = find(this.page.data.curves, (item) => this.page.runKey(item.run) === run);
      state.layer = find(this.entry.layers, ({ name }) => name === layer.name);
      state.unit = find(this.layer.units, (flat) => flat === unit);
      // Who looks at the end wants to see the new one.
      const { moments } = this.entry;
      state.moment = atEnd ? moments.length - 1 : find(moments, (moment) => moment === label);
    };
  }
}
