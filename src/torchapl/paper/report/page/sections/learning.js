import { DISTINCT, band, colourOf, lineOf, show } from "../chart.js";
import { byId, element, fill } from "../dom.js";
import { nameOf } from "../numbers.js";

/** Learning curves of every setting, over its seeds. */
export default class Learning {
  static title = "Learning curves";
  static markup = `
    <div class="controls">
      <label>Data <select id="data"></select></label>
      <label>Number <select id="metric"></select></label>
      <label class="check"><input type="checkbox" id="logarithmic"> Logarithmic</label>
    </div>
    <div id="learning-chart" class="chart tall" role="img" aria-label="Learning curves"></div>
    <fieldset id="settings-list"><legend>Settings</legend></fieldset>
    <p class="quiet">Lines are means over the seeds that reached an epoch, bands one standard deviation.</p>`;

  constructor(page) {
    this.page = page;
    // More lines than colours at first would be a tangle.
    const early = new Map();
    this.hidden = new Set();
    for (const { name, data } of page.data.learning) {
      early.set(data, (early.get(data) ?? 0) + 1);
      if (early.get(data) > DISTINCT) this.hidden.add(name);
    }
    for (const id of ["data", "metric", "logarithmic"]) {
      byId(id).addEventListener("change", () => this.draw());
    }
  }

  get isEmpty() {
    return !this.page.data.learning.some(({ metrics }) => Object.keys(metrics).length);
  }

  draw() {
    const { learning } = this.page.data;
    const sets = [...new Set(learning.map(({ data }) => data))];
    const set = this.choose("data", sets, (name) => name || "not named");
    // A loop of one's own need not name its data.
    byId("data").parentElement.hidden = sets.length === 1 && sets[0] === "";
    const lines = learning.filter(({ data }) => data === set);
    const metrics = [...new Set(lines.flatMap((line) => Object.keys(line.metrics)))];
    const metric = this.choose("metric", metrics, nameOf);
    this.drawSettings(lines, metric);
    show(
      byId("learning-chart"),
      lines.flatMap((line, index) => this.traces(line, metric, index)),
      {
        showlegend: false,
        hovermode: "closest",
        xaxis: { title: { text: "epoch" }, rangemode: "tozero" },
        yaxis: {
          title: { text: nameOf(metric) },
          type: byId("logarithmic").checked ? "log" : "linear",
        },
      },
    );
  }

  /** Offer these in a select and return the chosen one, which stays while it is there. */
  choose(id, options, label) {
    const chosen = options.includes(byId(id).value) ? byId(id).value : options[0];
    fill(
      byId(id),
      options.map((option) => [option, label(option)]),
      chosen,
    );
    return chosen;
  }

  traces({ name, metrics }, metric, index) {
    const points = metrics[metric];
    if (!points || this.hidden.has(name)) return [];
    const line = lineOf(index);
    const [x, mean, deviation] = [0, 1, 2].map((column) => points.map((point) => point[column]));
    const edges = deviation.some((value) => value > 0) ? band(x, mean, deviation, line.color) : [];
    const means = {
      type: "scatter",
      mode: points.length > 1 ? "lines" : "markers",
      name,
      x,
      y: mean,
      line,
      marker: { color: line.color },
      text: points.map(
        ([, value, std, n]) => `${value.toPrecision(4)} ± ${std.toPrecision(2)}, n = ${n}`,
      ),
      hovertemplate: "epoch %{x}: %{text}",
    };
    return [...edges, means];
  }

  drawSettings(lines, metric) {
    const list = byId("settings-list");
    const had = document.activeElement?.dataset?.setting;
    for (const label of list.querySelectorAll("label")) label.remove();
    lines.forEach(({ name, n, metrics }, index) => {
      if (!(metric in metrics)) return;
      const box = element("input", { type: "checkbox", checked: !this.hidden.has(name) });
      box.dataset.setting = name;
      box.addEventListener("change", () => {
        if (box.checked) this.hidden.delete(name);
        else this.hidden.add(name);
        this.draw();
      });
      const swatch = element("span", { className: "swatch" });
      swatch.style.background = colourOf(index);
      const count = element("span", { className: "count", textContent: `n = ${n}` });
      list.append(element("label", {}, box, swatch, name, count));
      if (had === name) box.focus();
    });
  }
}
