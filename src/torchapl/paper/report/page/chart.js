/* What all charts share: colours, axes, size. The library is a global of the page's other script. */

/* After Okabe and Ito, which everyone can tell apart; lighter on a dark ground. */
const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6BB1"];
const LIGHTER = ["#56B4E9", "#F58B4C", "#35C79F", "#E3A2C8", "#F5BE41", "#A9D8F5", "#BBA0DC"];
const DASHES = ["solid", "dash", "dot"];

/** More lines than this share a colour. */
export const DISTINCT = COLOURS.length;

export const isDark = () => document.documentElement.dataset.theme === "dark";
export const colourOf = (index) => (isDark() ? LIGHTER : COLOURS)[index % DISTINCT];
export const faint = (colour, part) =>
  `${colour}${Math.round(255 * part)
    .toString(16)
    .padStart(2, "0")}`;

/** A colour of the style sheet. */
export const style = (name) =>
  getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** The look of the line of this number. */
export function lineOf(index) {
  const dash = DASHES[Math.floor(index / DISTINCT) % DASHES.length];
  return { color: colourOf(index), dash, width: 2 };
}

/** One standard deviation around means, as two traces. */
export function band(x, mean, deviation, colour) {
  const edge = {
    type: "scatter",
    mode: "lines",
    x,
    line: { width: 0 },
    hoverinfo: "skip",
    showlegend: false,
  };
  const at = (sign) => mean.map((value, i) => value + sign * deviation[i]);
  const fill = { fill: "tonexty", fillcolor: faint(colour, 0.18) };
  return [
    { ...edge, y: at(-1) },
    { ...edge, y: at(1), ...fill },
  ];
}

function layout(extra) {
  const axis = (own) => ({
    gridcolor: style("rule"),
    zerolinecolor: style("quiet"),
    linecolor: style("rule"),
    automargin: true,
    zerolinewidth: 1,
    ...own,
  });
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 44, r: 12, t: 10, b: 44 },
    font: { family: getComputedStyle(document.body).fontFamily, color: style("ink"), size: 12 },
    // A finger on a chart scrolls the page.
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
    hoverlabel: {
      bgcolor: style("card"),
      bordercolor: style("rule"),
      font: { color: style("ink") },
    },
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
    ...extra,
    xaxis: axis(extra.xaxis),
    yaxis: axis(extra.yaxis),
    ...(extra.yaxis2 && { yaxis2: axis(extra.yaxis2) }),
  };
}

/* The library watches the window only, but a second panel narrows the first. */
const sizes = new ResizeObserver((entries) => {
  for (const { target } of entries) if (target.offsetWidth) Plotly.Plots.resize(target);
});

/** Draw traces into an element, or draw it anew. */
export function show(div, traces, extra) {
  Plotly.react(div, traces, layout(extra), { displayModeBar: false });
  sizes.observe(div);
}
