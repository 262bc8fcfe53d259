import { band, lineOf, show, style } from "../chart.js";
import { byId } from "../dom.js";

/** What classifiers of events can do, from their scores of the test rows. */
export default class Classifiers {
  static title = "Classifiers of events";
  static markup = `
    <div class="charts">
      <figure><figcaption>Signal accepted against background accepted (ROC)</figcaption>
        <div id="roc" class="chart" role="img" aria-label="ROC curves"></div></figure>
      <figure><figcaption>Expected significance of a cut, sigma</figcaption>
        <div id="cuts" class="chart" role="img" aria-label="Significance against threshold"></div></figure>
    </div>
    <p class="quiet">Means over seeds, bands one standard deviation. The paper's case: 100 signal and 5000 background events
      expected, 5 % background uncertainty; cuts that leave fewer than ten simulated background events are not drawn.</p>`;

  constructor(page) {
    this.page = page;
  }

  get isEmpty() {
    return this.page.data.classifiers.length === 0;
  }

  draw() {
    const { classifiers } = this.page.data;
    const chance = {
      type: "scatter",
      mode: "lines",
      x: [0, 1],
      y: [0, 1],
      line: { color: style("quiet"), dash: "dot", width: 1 },
      hoverinfo: "skip",
      showlegend: false,
    };
    show(byId("roc"), [chance, ...classifiers.map(rocTrace)], {
      xaxis: { title: { text: "background accepted" }, range: [0, 1] },
      yaxis: { title: { text: "signal accepted" }, range: [0, 1.01] },
    });
    show(byId("cuts"), classifiers.flatMap(cutTraces), {
      showlegend: false,
      xaxis: { title: { text: "threshold" }, range: [0, 1] },
      yaxis: { rangemode: "tozero" },
    });
  }
}

function rocTrace({ name, auc, n, rates, roc }, index) {
  return {
    type: "scatter",
    mode: "lines",
    name: `${name}: AUC ${auc.toFixed(4)}, n = ${n}`,
    x: rates,
    y: roc,
    line: lineOf(index),
    hovertemplate: "%{y:.3f} at %{x:.3f}",
  };
}

function cutTraces({ name, thresholds, significance, significance_std }, index) {
  const line = lineOf(index);
  const isKept = (_, i) => significance[i] !== null;
  const [x, y, deviation] = [thresholds, significance, significance_std].map((values) =>
    values.filter(isKept),
  );
  return [
    ...band(x, y, deviation, line.color),
    {
      type: "scatter",
      mode: "lines",
      name,
      x,
      y,
      line,
      hovertemplate: "%{y:.2f} above %{x:.2f}",
    },
  ];
}
