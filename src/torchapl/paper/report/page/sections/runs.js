import { table } from "../dom.js";
import { nameOf } from "../numbers.js";

/** Every setting and every run. */
export default class Runs {
  static title = "Runs";
  static markup = `
    <div id="setting-table"></div>
    <details>
      <summary>Every run</summary>
      <div id="run-table"></div>
    </details>`;
  isEmpty = false;

  constructor(page, root) {
    this.page = page;
    this.root = root;
  }

  draw() {
    const { settings, runs } = this.page.data;
    const metrics = [...new Set(settings.flatMap(({ numbers }) => Object.keys(numbers)))];
    const names = metrics.map(nameOf);
    this.put(
      "#setting-table",
      "Settings: mean (std) of the finished runs",
      ["Setting", "Scale", "n", ...names],
      settings.map((row) => [
        row.name,
        row.scale,
        counted(row),
        ...metrics.map((metric) => row.numbers[metric]),
      ]),
    );
    this.put(
      "#run-table",
      "",
      ["Run", "Scale", "Seed", "Status", "Epochs", "Seconds", ...names, "Commit", "Error"],
      runs.map((run) => [
        run.name,
        run.scale,
        run.seed,
        run.status,
        run.epochs,
        run.seconds,
        ...metrics.map((metric) => shortened(run.numbers[metric])),
        run.commit,
        run.error,
      ]),
    );
  }

  put(place, caption, header, rows) {
    const texts = rows.map((row) => row.map((cell) => String(cell ?? "")));
    this.root.querySelector(place).replaceChildren(table(caption, header, texts));
  }
}

const shortened = (value) => (value === undefined ? "" : Number(value.toPrecision(5)));

function counted({ n, failed, unfinished }) {
  const parts = [n, failed && `${failed} failed`, unfinished && `${unfinished} unfinished`];
  return parts.filter((part, i) => i === 0 || part).join(" + ");
}
