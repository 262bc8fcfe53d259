"use strict";

/* The explorer's three charts. */

const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6BB1"];
const DASHES = ["solid", "dash", "dot"];
const colourOf = (index) => COLOURS[index % COLOURS.length];
const dashOf = (index) => DASHES[Math.floor(index / COLOURS.length) % DASHES.length];
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const faint = (colour, part) => `${colour}${Math.round(255 * part).toString(16).padStart(2, "0")}`;

function layout(extra = {}) {
  const axis = (own) => ({
    gridcolor: style("rule"), zerolinecolor: style("quiet"), linecolor: style("rule"), automargin: true, zerolinewidth: 1, ...own,
  });
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 44, r: 12, t: 10, b: 36 },
    font: { family: getComputedStyle(document.body).fontFamily, color: style("ink"), size: 12 },
    // A finger on a chart scrolls the page.
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
    hoverlabel: { bgcolor: style("card"), bordercolor: style("rule"), font: { color: style("ink") } },
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
    ...extra, xaxis: axis(extra.xaxis), yaxis: axis(extra.yaxis),
  };
}

const show = (div, traces, extra) => Plotly.react(div, traces, layout(extra), { responsive: true, displayModeBar: false, displaylogo: false });

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
    type: "bar", name: "inputs", yaxis: "y2", width, marker: { color: faint("#888888", 0.35), line: { width: 0 } }, hoverinfo: "skip",
    x: density.counts.map((_, i) => density.low + (i + 0.5) * width), y: density.counts.map((count) => count / total / width),
  }];
}

function drawCurve(panel) {
  const { layer, frame, state, entry } = panel;
  const range = windowOf(panel);
  const start = frameOf(layer, 0);
  const line = (name, points, look) => ({ type: "scatter", mode: "lines", name, ...points, line: look, hovertemplate: "h(%{x:.3g}) = %{y:.3g}<extra></extra>" });
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
    { type: "scatter", mode: "markers", name: "hinges", x: hinges, y: hinges.map((x) => frame.value(state.unit, x)), marker: { color: style("accent"), size: 8 }, showlegend: false, hovertemplate: "hinge at %{x:.3g}<extra></extra>" },
  ];
  panel.part("curve-title").textContent = `${layer.name}, ${panel.describe(state.unit)}${layer.density ? "" : " (inputs not recorded yet)"}`;
  show(panel.chart("curve"), traces, {
    xaxis: { range, title: { text: "input" } }, yaxis: { range: [bottom - pad, top + pad] },
    yaxis2: { overlaying: "y", side: "right", visible: false, rangemode: "tozero", fixedrange: true }, bargap: 0,
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
  const ticks = (count, of) => Array.from({ length: count }, (_, i) => Math.floor((i * of) / count));
  const axis = (count, of, title) => (panel.isMap
    ? { tickvals: [...Array(count).keys()], ticktext: ticks(count, of), title: { text: title } }
    : { visible: false });
  const quantity = state.colour === "left" ? "slope far left" : "h(−1)";
  panel.part("map-title").textContent = panel.isMap ? `${quantity} over positions, channel ${panel.control("channel").selectedOptions[0].label}` : `${quantity} of every unit`;
  const scale = [[0, "#2166AC"], [0.25, "#67A9CF"], [0.5, document.documentElement.dataset.theme === "dark" ? "#30363c" : "#F2F2F2"], [0.75, "#EF8A62"], [1, "#B2182B"]];
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
  const x = [];
  const y = [];
  let drawn = 0;
  for (let unit = 0; unit < layer.units.length; unit += 1) {
    if (!panel.shown(unit)) continue;
    const points = frame.points(unit, range);
    x.push(...points.x, null);
    y.push(...points.y, null);
    drawn += 1;
  }
  const total = frame.counts.reduce((sum, count) => sum + count, 0);
  panel.part("all-title").textContent = `${drawn} of ${total.toLocaleString("en")} curves of the layer`;
  const opacity = Math.max(0.15, Math.min(0.8, 40 / (drawn || 1)));
  show(panel.chart("all"), [
    { type: "scatter", mode: "lines", x, y, line: { color: style("quiet"), width: 1 }, opacity, hoverinfo: "skip" },
    { type: "scatter", mode: "lines", ...frame.points(state.unit, range), line: { color: style("accent"), width: 3 }, hoverinfo: "skip" },
  ], { showlegend: false, xaxis: { range, title: { text: "input" } } });
}
