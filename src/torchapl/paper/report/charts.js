"use strict";

/* The explorer's three charts. */

/* After Okabe and Ito, which everyone can tell apart; lighter on a dark ground. */
const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6BB1"];
const LIGHTER = ["#56B4E9", "#F58B4C", "#35C79F", "#E3A2C8", "#F5BE41", "#A9D8F5", "#BBA0DC"];
const isDark = () => document.documentElement.dataset.theme === "dark";
const DASHES = ["solid", "dash", "dot"];
const colourOf = (index) => (isDark() ? LIGHTER : COLOURS)[index % COLOURS.length];
const dashOf = (index) => DASHES[Math.floor(index / COLOURS.length) % DASHES.length];
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const faint = (colour, part) => `${colour}${Math.round(255 * part).toString(16).padStart(2, "0")}`;

function layout(extra = {}) {
  const axis = (own) => ({
    gridcolor: style("rule"), zerolinecolor: style("quiet"), linecolor: style("rule"), automargin: true, zerolinewidth: 1, ...own,
  });
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 44, r: 12, t: 10, b: 44 },
    font: { family: getComputedStyle(document.body).fontFamily, color: style("ink"), size: 12 },
    // A finger on a chart scrolls the page.
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
    hoverlabel: { bgcolor: style("card"), bordercolor: style("rule"), font: { color: style("ink") } },
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
    ...extra, xaxis: axis(extra.xaxis), yaxis: axis(extra.yaxis), ...(extra.yaxis2 && { yaxis2: axis(extra.yaxis2) }),
  };
}

/* The library watches the window only, but a second panel narrows the first. */
const sizes = new ResizeObserver((entries) => { for (const { target } of entries) if (target.offsetWidth) Plotly.Plots.resize(target); });

function show(div, traces, extra) {
  Plotly.react(div, traces, layout(extra), { displayModeBar: false });
  sizes.observe(div);
}

function windowOf(panel) {
  if (panel.state.view === "fixed") return [-3, 3];
  const [low, high] = panel.layer.window;
  const margin = 0.25 * (high - low);
  return [Math.min(low, 0) - margin, Math.max(high, 0) + margin];
}

function densityTrace({ density }) {
  if (!density) return [];
  const width = (density.high - density.low) / density.counts.length;
  const total = density.counts.reduce((sum, count) => sum + count, 0) || 1;
  return [{
    type: "bar", name: "inputs", width, marker: { color: faint("#888888", 0.35), line: { width: 0 } }, hoverinfo: "skip",
    x: density.counts.map((_, i) => density.low + (i + 0.5) * width), y: density.counts.map((count) => count / total / width),
  }];
}

function drawCurve(panel) {
  const { layer, frame, state, entry } = panel;
  const range = windowOf(panel);
  const start = frameOf(layer, 0);
  // On the second axis, which is drawn over the density.
  const line = (name, points, look) => ({ type: "scatter", mode: "lines", yaxis: "y2", name, ...points, line: look, hovertemplate: "h(%{x:.3g}) = %{y:.3g}<extra></extra>" });
  const relu = [range[0], 0, range[1]];
  const hinges = Array.from({ length: frame.hinges }, (_, s) => frame.hinge(state.unit, s).offset).filter((x) => x > range[0] && x < range[1]);
  // The same axis at all moments, so that moving the slider shows the curve move.
  const heights = layer.frames.flatMap((_, i) => frameOf(layer, i).points(state.unit, range).y).filter(Number.isFinite).concat(0, range[1]);
  const [bottom, top] = [Math.min(...heights), Math.max(...heights)];
  const pad = 0.06 * (top - bottom || 1);
  const traces = [
    ...densityTrace(layer),
    line("ReLU", { x: relu, y: relu.map((x) => Math.max(0, x)) }, { color: style("quiet"), width: 1, dash: "dot" }),
    line("start", start.points(state.unit, range), { color: style("warm"), width: 2, dash: "dash" }),
    line(entry.moments[state.moment], frame.points(state.unit, range), { color: style("accent"), width: 3 }),
    { type: "scatter", mode: "markers", yaxis: "y2", name: "hinges", x: hinges, y: hinges.map((x) => frame.value(state.unit, x)), marker: { color: style("accent"), size: 8 }, showlegend: false, hovertemplate: "hinge at %{x:.3g}<extra></extra>" },
  ];
  panel.part("curve-title").textContent = `${layer.name}, ${panel.describe(state.unit)}${layer.density ? "" : " (inputs not recorded yet)"}`;
  show(panel.chart("curve"), traces, {
    xaxis: { range, title: { text: "input" } }, yaxis: { visible: false, rangemode: "tozero", fixedrange: true },
    yaxis2: { range: [bottom - pad, top + pad], overlaying: "y", side: "left", tickmode: "auto" }, bargap: 0,
  });
}

function drawMap(panel) {
  const { frame, state, layer } = panel;
  const [rows, columns] = panel.grid();
  const value = state.colour === "left" ? (unit) => frame.leftSlope(unit) : (unit) => frame.value(unit, -1);
  const cells = Array.from({ length: rows }, (_, row) => Array.from({ length: columns }, (__, column) => panel.cellUnit(row, column)));
  const z = cells.map((line) => line.map((unit) => (unit >= 0 && panel.shown(unit) ? value(unit) : null)));
  const limit = Math.max(1e-6, ...layer.units.map((_, unit) => Math.abs(value(unit))).filter(Number.isFinite));
  const text = cells.map((line) => line.map((unit) => (unit >= 0 ? panel.describe(unit) : "")));
  const [row, column] = panel.cell();
  const axis = (count, of, title) => {
    if (!panel.isMap) return { visible: false };
    const tickvals = [...Array(count).keys()].filter((i) => i % Math.ceil(count / 8) === 0);
    return { tickvals, ticktext: tickvals.map((i) => Math.floor((i * of) / count)), tickangle: 0, title: { text: title } };
  };
  const quantity = state.colour === "left" ? "slope far left" : "h(−1)";
  panel.part("map-title").textContent = panel.isMap ? `${quantity} over positions, channel ${panel.control("channel").selectedOptions[0].label}` : `${quantity} of every unit`;
  const scale = [[0, "#2166AC"], [0.25, "#67A9CF"], [0.5, isDark() ? "#30363c" : "#F2F2F2"], [0.75, "#EF8A62"], [1, "#B2182B"]];
  const div = panel.chart("map");
  show(div, [
    { type: "heatmap", z, text, zmin: -limit, zmax: limit, colorscale: scale, xgap: 1, ygap: 1, hoverongaps: false, hovertemplate: "%{text}: %{z:.3g}<extra></extra>", colorbar: { thickness: 10, outlinewidth: 0 } },
  ], {
    dragmode: false,
    shapes: [{ type: "rect", x0: column - 0.5, x1: column + 0.5, y0: row - 0.5, y1: row + 0.5, line: { color: style("ink"), width: 3 } }],
    xaxis: { ...axis(columns, layer.shape[2], "column"), range: [-0.5, columns - 0.5], constrain: "domain", showgrid: false, zeroline: false, fixedrange: true },
    yaxis: { ...axis(rows, layer.shape[1], "row"), range: [rows - 0.5, -0.5], scaleanchor: "x", constrain: "domain", showgrid: false, zeroline: false, fixedrange: true },
  });
  if (!div.dataset.clickable) {
    div.dataset.clickable = "yes";
    div.on("plotly_click", ({ points }) => panel.chooseCell([points[0].y, points[0].x]));
  }
}

function drawAll(panel) {
  const { frame, layer, state } = panel;
  const range = windowOf(panel);
  // Lines of one trace do not darken where they cross; those of several do.
  const bundles = Array.from({ length: 24 }, () => ({ x: [], y: [] }));
  let drawn = 0;
  for (let unit = 0; unit < layer.units.length; unit += 1) {
    if (!panel.shown(unit)) continue;
    const points = frame.points(unit, range);
    const { x, y } = bundles[drawn % bundles.length];
    x.push(...points.x, null);
    y.push(...points.y, null);
    drawn += 1;
  }
  const total = frame.counts.reduce((sum, count) => sum + count, 0);
  panel.part("all-title").textContent = `${drawn} of ${total.toLocaleString("en")} curves of the layer`;
  const opacity = Math.max(0.12, Math.min(0.8, 50 / (drawn || 1)));
  show(panel.chart("all"), [
    ...bundles.map((bundle) => ({ type: "scatter", mode: "lines", ...bundle, line: { color: style("quiet"), width: 1 }, opacity, hoverinfo: "skip" })),
    { type: "scatter", mode: "lines", ...frame.points(state.unit, range), line: { color: style("accent"), width: 3 }, hoverinfo: "skip" },
  ], { showlegend: false, xaxis: { range, title: { text: "input" } } });
}
