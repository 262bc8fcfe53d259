"use strict";

/* Tables, learning curves, classifiers, theme, and news from a server. */

const byId = (id) => document.getElementById(id);
const element = (tag, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
};

const NAMES = {
  test_error: "Test error, %", test_auc: "Test AUC", test_loss: "Test loss", train_loss: "Training loss", train_error: "Training error, %",
  valid_error: "Validation error, %", valid_auc: "Validation AUC", test_significance_histogram: "Significance, sigma",
};

/** Build a table; strings go in as text, never as markup. */
function table(caption, header, rows) {
  const made = element("table");
  if (caption) made.append(element("caption", { textContent: caption }));
  made.append(element("thead", {}, element("tr", {}, ...header.map((name) => element("th", { scope: "col", textContent: name })))));
  made.append(element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((content, i) => {
    const cell = element("td", { textContent: content ?? "" });
    cell.dataset.label = header[i];
    if (/^[-+−]?\d/.test(content ?? "")) cell.className = "number";
    if (/failed/.test(content ?? "")) cell.classList.add("bad");
    return cell;
  })))));
  return element("div", { className: "scroll" }, made);
}

class Report {
  constructor(data) {
    this.data = data;
    // More lines than colours at first would be a tangle.
    const early = new Map();
    this.hidden = new Set(data.learning.filter((item) => {
      early.set(item.data, (early.get(item.data) ?? 0) + 1);
      return early.get(item.data) > COLOURS.length;
    }).map(({ name }) => name));
    this.panels = [];
  }

  runName(run) {
    const scales = new Set(this.data.runs.map(({ scale }) => scale));
    return `${run.name}${scales.size > 1 ? ` (${run.scale})` : ""}, seed ${run.seed}${run.status === "finished" ? "" : `, ${run.status}`}`;
  }

  start() {
    this.listen();
    this.draw();
    if (this.data.live) this.ask();
  }

  listen() {
    for (const id of ["data", "metric", "logarithmic"]) byId(id).addEventListener("change", () => this.drawLearning());
    byId("compare").addEventListener("change", () => this.drawExplorer());
    byId("link").addEventListener("change", () => { if (byId("link").checked) this.follow(this.panels[0]); });
    const preferred = matchMedia("(prefers-color-scheme: dark)");
    this.theme(preferred.matches);
    preferred.addEventListener("change", (event) => { this.theme(event.matches); this.drawCharts(); });
    byId("theme").addEventListener("click", () => {
      this.theme(document.documentElement.dataset.theme !== "dark");
      this.drawCharts();
    });
  }

  theme(dark) {
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    byId("theme").textContent = dark ? "Light" : "Dark";
    byId("theme").setAttribute("aria-pressed", String(dark));
    byId("theme").setAttribute("aria-label", `Use ${dark ? "light" : "dark"} colours`);
  }

  draw() {
    const { data } = this;
    byId("title").textContent = data.title;
    const count = (status) => data.runs.filter((run) => run.status === status).length;
    const others = ["failed", "unfinished"].filter(count).map((status) => `, ${count(status)} ${status}`).join("");
    byId("about").textContent = `${count("finished")} finished runs${others}. Made ${data.made} with torchapl ${data.version}.`;
    byId("kept").textContent = data.kept;
    byId("definitions").replaceChildren(...data.classes.flatMap(({ name, meaning }) => [element("dt", { textContent: name }), element("dd", { textContent: meaning })]));
    this.drawTables();
    byId("tables").hidden = data.tables.length === 0;
    byId("explorer").hidden = data.curves.length === 0;
    byId("classifiers").hidden = data.classifiers.length === 0;
    byId("learning").hidden = !data.learning.some(({ metrics }) => Object.keys(metrics).length);
    document.querySelector("nav").replaceChildren(...[...document.querySelectorAll("main > section:not([hidden])")]
      .map((section) => element("a", { href: `#${section.id}`, textContent: section.querySelector("h2").textContent })));
    this.drawCharts();
  }

  drawCharts() {
    if (!byId("learning").hidden) this.drawLearning();
    if (!byId("explorer").hidden) this.drawExplorer();
    if (!byId("classifiers").hidden) this.drawClassifiers();
  }

  drawTables() {
    const { data } = this;
    byId("table-list").replaceChildren(...data.tables.map((item) => {
      // Columns without a single entry say nothing.
      const used = item.header.map((_, i) => item.rows.some((row) => row[i] !== ""));
      const pick = (row) => row.filter((_, i) => used[i]).map((text) => text.replace("+-", "±"));
      const title = item.name.replace(/^table(\d)/, "Table $1").replace(/^ablation/, "Ablation");
      const made = table(`${title}: ${item.title} (${item.scale} scale)`, pick(item.header), item.rows.map(pick));
      made.dataset.table = `${item.name}/${item.scale}`;
      return made;
    }));
    const metrics = [...new Set(data.settings.flatMap(({ numbers }) => Object.keys(numbers)))];
    byId("setting-table").replaceChildren(table("Settings: mean (std) of the finished runs", ["Setting", "Scale", "n", ...metrics.map((name) => NAMES[name])],
      data.settings.map((row) => [row.name, row.scale, [`${row.n}`, row.failed && `${row.failed} failed`, row.unfinished && `${row.unfinished} unfinished`].filter(Boolean).join(" + "),
        ...metrics.map((name) => row.numbers[name] ?? "")])));
    byId("run-table").replaceChildren(table("", ["Run", "Scale", "Seed", "Status", "Epochs", "Seconds", ...metrics.map((name) => NAMES[name]), "Commit", "Error"],
      data.runs.map((run) => [run.name, run.scale, run.seed, run.status, run.epochs, run.seconds, ...metrics.map((name) => (name in run.numbers ? Number(run.numbers[name].toPrecision(5)) : "")), run.commit, run.error])
        .map((row) => row.map((cell) => (cell === null || cell === undefined ? "" : String(cell))))));
  }

  drawLearning() {
    const sets = [...new Set(this.data.learning.map(({ data }) => data))];
    const set = sets.includes(byId("data").value) ? byId("data").value : sets[0];
    fill(byId("data"), sets.map((name) => [name, name]), set);
    const learning = this.data.learning.filter(({ data }) => data === set);
    const metrics = Object.keys(NAMES).filter((name) => learning.some((item) => name in item.metrics));
    const chosen = metrics.includes(byId("metric").value) ? byId("metric").value : metrics[0];
    fill(byId("metric"), metrics.map((name) => [name, NAMES[name]]), chosen);
    this.drawSettings(learning, chosen);
    const traces = [];
    learning.forEach(({ name, metrics: all }, index) => {
      const points = all[chosen];
      if (!points || this.hidden.has(name)) return;
      const colour = colourOf(index);
      const x = points.map(([epoch]) => epoch);
      const at = (sign) => points.map(([, mean, std]) => mean + sign * std);
      if (points.some(([, , std]) => std > 0)) {
        const edge = { type: "scatter", mode: "lines", x, line: { width: 0 }, hoverinfo: "skip", showlegend: false };
        traces.push({ ...edge, y: at(-1) }, { ...edge, y: at(1), fill: "tonexty", fillcolor: faint(colour, 0.18) });
      }
      traces.push({
        type: "scatter", mode: points.length > 1 ? "lines" : "markers", name, x, y: at(0), line: { color: colour, dash: dashOf(index), width: 2 }, marker: { color: colour },
        text: points.map(([, mean, std, n]) => `${mean.toPrecision(4)} ± ${std.toPrecision(2)}, n = ${n}`), hovertemplate: "epoch %{x}: %{text}",
      });
    });
    show(byId("learning-chart"), traces, {
      showlegend: false, hovermode: "closest", xaxis: { title: { text: "epoch" }, rangemode: "tozero" },
      yaxis: { title: { text: NAMES[chosen] }, type: byId("logarithmic").checked ? "log" : "linear" },
    });
  }

  drawSettings(learning, metric) {
    const list = byId("settings-list");
    const had = document.activeElement?.dataset?.setting;
    list.querySelectorAll("label").forEach((label) => label.remove());
    learning.forEach(({ name, n, metrics }, index) => {
      if (!(metric in metrics)) return;
      const box = element("input", { type: "checkbox", checked: !this.hidden.has(name) });
      box.dataset.setting = name;
      const swatch = element("span", { className: "swatch" });
      swatch.style.background = colourOf(index);
      list.append(element("label", {}, box, swatch, name, element("span", { className: "count", textContent: `n = ${n}` })));
      box.addEventListener("change", () => {
        if (box.checked) this.hidden.delete(name); else this.hidden.add(name);
        this.drawLearning();
      });
      if (had === name) box.focus();
    });
  }

  drawExplorer() {
    const wanted = byId("compare").checked ? 2 : 1;
    byId("link").disabled = wanted === 1;
    while (this.panels.length > wanted) this.panels.pop().root.remove();
    while (this.panels.length < wanted) this.addPanel();
    for (const panel of this.panels) panel.draw();
  }

  addPanel() {
    const root = byId("panel").content.firstElementChild.cloneNode(true);
    byId("panels").append(root);
    const panel = new Panel(this, root, (changed) => { if (byId("link").checked) this.follow(changed); });
    const [first] = this.panels;
    if (first) {
      panel.state.run = (first.state.run + 1) % this.data.curves.length;
      panel.follow(first);
    } else {
      panel.state.moment = panel.entry.moments.length - 1;
    }
    this.panels.push(panel);
  }

  follow(changed) {
    for (const panel of this.panels) if (panel !== changed) panel.follow(changed);
  }

  drawClassifiers() {
    const roc = [];
    const cuts = [];
    this.data.classifiers.forEach((item, index) => {
      const line = { color: colourOf(index), dash: dashOf(index), width: 2 };
      const name = `${item.name}: AUC ${item.auc.toFixed(4)}, n = ${item.n}`;
      roc.push({ type: "scatter", mode: "lines", name, x: item.rates, y: item.roc, line, hovertemplate: "%{y:.3f} at %{x:.3f}" });
      const kept = item.significance.map((value, i) => [item.thresholds[i], value, item.significance_std[i]]).filter(([, value]) => value !== null);
      const x = kept.map(([threshold]) => threshold);
      const edge = { type: "scatter", mode: "lines", x, line: { width: 0 }, hoverinfo: "skip", showlegend: false };
      cuts.push({ ...edge, y: kept.map(([, mean, std]) => mean - std) }, { ...edge, y: kept.map(([, mean, std]) => mean + std), fill: "tonexty", fillcolor: faint(line.color, 0.18) });
      cuts.push({ type: "scatter", mode: "lines", name: item.name, x, y: kept.map(([, mean]) => mean), line, hovertemplate: "%{y:.2f} above %{x:.2f}" });
    });
    const chance = { type: "scatter", mode: "lines", x: [0, 1], y: [0, 1], line: { color: style("quiet"), dash: "dot", width: 1 }, hoverinfo: "skip", showlegend: false };
    const legend = { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" };
    show(byId("roc"), [chance, ...roc], { legend, xaxis: { title: { text: "background accepted" }, range: [0, 1] }, yaxis: { title: { text: "signal accepted" }, range: [0, 1.01] } });
    show(byId("cuts"), cuts, { showlegend: false, xaxis: { title: { text: "threshold" }, range: [0, 1] }, yaxis: { rangemode: "tozero" } });
  }

  /** Ask the server for news every other second. */
  async ask(mark = "") {
    const status = byId("live");
    status.hidden = false;
    let seen = mark;
    try {
      const answer = await fetch("/payload.json", { headers: seen ? { "If-None-Match": seen } : {}, cache: "no-store" });
      if (answer.status === 200) {
        seen = answer.headers.get("ETag") ?? "";
        this.replace(await answer.json());
        status.textContent = `Following the runs; last news at ${new Date().toLocaleTimeString()}.`;
      } else if (!answer.ok && answer.status !== 304) {
        status.textContent = `The server cannot read the runs: ${await answer.text()}`;
      }
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;
      status.textContent = "The server is gone; this page shows its last answer.";
    }
    setTimeout(() => this.ask(seen), 2000);
  }

  /** Show new data, keeping every choice that still exists; at the last moment, stay at the last. */
  replace(data) {
    const places = this.panels.map(({ entry, layer, state }) => ({
      run: this.runKey(entry), layer: layer.name, unit: layer.units[state.unit], label: entry.moments[state.moment], last: state.moment === entry.moments.length - 1,
    }));
    this.data = data;
    this.panels.forEach((panel, i) => {
      const { state } = panel;
      const find = (list, test) => Math.max(0, list.findIndex(test));
      state.run = find(data.curves, (entry) => this.runKey(entry) === places[i].run);
      state.layer = find(panel.entry.layers, ({ name }) => name === places[i].layer);
      state.unit = find(panel.layer.units, (unit) => unit === places[i].unit);
      state.moment = places[i].last ? panel.entry.moments.length - 1 : find(panel.entry.moments, (label) => label === places[i].label);
    });
    this.draw();
  }

  runKey({ run }) {
    const { name, scale, seed } = this.data.runs[run];
    return JSON.stringify([name, scale, seed]);
  }
}

window.report = new Report(JSON.parse(byId("payload").textContent));
window.report.start();
