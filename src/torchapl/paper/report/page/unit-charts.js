/* The explorer's three charts: the chosen unit, a map of all units, all curves of the layer. */

import { faint, isDark, show, style } from "./chart.js";
import { frameOf } from "./curves.js";

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
  return [
    {
      type: "bar",
      name: "inputs",
      width,
      marker: { color: faint("#888888", 0.35), line: { width: 0 } },
      hoverinfo: "skip",
      x: density.counts.map((_, i) => density.low + (i + 0.5) * width),
      y: density.counts.map((count) => count / total / width),
    },
  ];
}

export function drawCurve(panel) {
  const { layer, frame, state, entry } = panel;
  const range = windowOf(panel);
  const start = frameOf(layer, 0);
  // On the second axis, which is drawn over the density.
  const line = (name, points, look) => ({
    type: "scatter",
    mode: "lines",
    yaxis: "y2",
    name,
    ...points,
    line: look,
    hovertemplate: "h(%{x:.3g}) = %{y:.3g}<extra></extra>",
  });
  const relu = [range[0], 0, range[1]];
  const hinges = frame
    .hingesOf(state.unit)
    .map(({ offset }) => offset)
    .filter((x) => x > range[0] && x < range[1]);
  // The same axis at all moments, so that moving the slider shows the curve move.
  const heights = layer.frames
    .flatMap((_, moment) => frameOf(layer, moment).points(state.unit, range).y)
    .filter(Number.isFinite)
    .concat(0, range[1]);
  const [bottom, top] = [Math.min(...heights), Math.max(...heights)];
  const pad = 0.06 * (top - bottom || 1);
  const traces = [
    ...densityTrace(layer),
    line(
      "ReLU",
      { x: relu, y: relu.map((x) => Math.max(0, x)) },
      { color: style("quiet"), width: 1, dash: "dot" },
    ),
    line("start", start.points(state.unit, range), {
      color: style("warm"),
      width: 2,
      dash: "dash",
    }),
    line(entry.moments[state.moment], frame.points(state.unit, range), {
      color: style("accent"),
      width: 3,
    }),
    {
      type: "scatter",
      mode: "markers",
      yaxis: "y2",
      name: "hinges",
      x: hinges,
      y: hinges.map((x) => frame.value(state.unit, x)),
      marker: { color: style("accent"), size: 8 },
      showlegend: false,
      hovertemplate: "hinge at %{x:.3g}<extra></extra>",
    },
  ];
  const note = layer.density ? "" : " (inputs not recorded yet)";
  panel.part("curve-title").textContent = `${layer.name}, ${panel.describe(state.unit)}${note}`;
  show(panel.chart("curve"), traces, {
    xaxis: { range, title: { text: "input" } },
    yaxis: { visible: false, rangemode: "tozero", fixedrange: true },
    yaxis2: { range: [bottom - pad, top + pad], overlaying: "y", side: "left", tickmode: "auto" },
    bargap: 0,
  });
}

/** The map's axis: some of the layer's own row or column numbers. */
function mapAxis(panel, count, of, title) {
  const own = { showgrid: false, zeroline: false, fixedrange: true, constrain: "domain" };
  if (!panel.isMap) return { ...own, visible: false };
  const tickvals = [...Array(count).keys()].filter((i) => i % Math.ceil(count / 8) === 0);
  const ticktext = tickvals.map((i) => Math.floor((i * of) / count));
  return { ...own, tickvals, ticktext, tickangle: 0, title: { text: title } };
}

export function drawMap(panel) {
  const { frame, state, layer } = panel;
  const [rows, columns] = panel.grid();
  const isLeft = state.colour === "left";
  const value = (unit) => (isLeft ? frame.leftSlope(unit) : frame.value(unit, -1));
  const cells = Array.from({ length: rows }, (_, row) =>
    Array.from({ length: columns }, (__, column) => panel.cellUnit(row, column)),
  );
  const isShown = (unit) => unit >= 0 && panel.shown(unit);
  const heights = layer.units.map((_, unit) => Math.abs(value(unit))).filter(Number.isFinite);
  const limit = Math.max(1e-6, ...heights);
  const [row, column] = panel.cell();
  const quantity = isLeft ? "slope far left" : "h(−1)";
  panel.part("map-title").textContent = panel.isMap
    ? `${quantity} over positions, channel ${panel.control("channel").selectedOptions[0].label}`
    : `${quantity} of every unit`;
  const colorscale = [
    [0, "#2166AC"],
    [0.25, "#67A9CF"],
    [0.5, isDark() ? "#30363c" : "#F2F2F2"],
    [0.75, "#EF8A62"],
    [1, "#B2182B"],
  ];
  const heatmap = {
    type: "heatmap",
    z: cells.map((line) => line.map((unit) => (isShown(unit) ? value(unit) : null))),
    text: cells.map((line) => line.map((unit) => (unit >= 0 ? panel.describe(unit) : ""))),
    zmin: -limit,
    zmax: limit,
    colorscale,
    xgap: 1,
    ygap: 1,
    hoverongaps: false,
    hovertemplate: "%{text}: %{z:.3g}<extra></extra>",
    colorbar: { thickness: 10, outlinewidth: 0 },
  };
  const chosen = {
    type: "rect",
    x0: column - 0.5,
    x1: column + 0.5,
    y0: row - 0.5,
    y1: row + 0.5,
    line: { color: style("ink"), width: 3 },
  };
  const div = panel.chart("map");
  show(div, [heatmap], {
    dragmode: false,
    shapes: [chosen],
    xaxis: {
      ...mapAxis(panel, columns, layer.shape[2], "column"),
      range: [-0.5, columns - 0.5],
    },
    yaxis: {
      ...mapAxis(panel, rows, layer.shape[1], "row"),
      range: [rows - 0.5, -0.5],
      scaleanchor: "x",
    },
  });
  if (!div.dataset.clickable) {
    div.dataset.clickable = "yes";
    div.on("plotly_click", ({ points }) => panel.chooseCell([points[0].y, points[0].x]));
  }
}

export function drawAll(panel) {
  const { frame, layer, state } = panel;
  const range = windowOf(panel);
  // Lines of one trace do not darken where they cross; those of several do.
  const bundles = Array.from({ length: 24 }, () => ({ x: [], y: [] }));
  const shown = [...layer.units.keys()].filter((unit) => panel.shown(unit));
  shown.forEach((unit, index) => {
    const points = frame.points(unit, range);
    const { x, y } = bundles[index % bundles.length];
    x.push(...points.x, null);
    y.push(...points.y, null);
  });
  const total = frame.counts.reduce((sum, count) => sum + count, 0);
  panel.part("all-title").textContent =
    `${shown.length} of ${total.toLocaleString("en")} curves of the layer`;
  const opacity = Math.max(0.12, Math.min(0.8, 50 / (shown.length || 1)));
  const quiet = { color: style("quiet"), width: 1 };
  const traces = [
    ...bundles.map((bundle) => ({ ...bundle, line: quiet, opacity })),
    { ...frame.points(state.unit, range), line: { color: style("accent"), width: 3 } },
  ];
  show(
    panel.chart("all"),
    traces.map((trace) => ({ type: "scatter", mode: "lines", hoverinfo: "skip", ...trace })),
    { showlegend: false, xaxis: { range, title: { text: "input" } } },
  );
}
