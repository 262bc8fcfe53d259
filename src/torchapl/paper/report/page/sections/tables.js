import { table } from "../dom.js";

/** The paper's tables, beside the published numbers. */
export default class Tables {
  static title = "Tables";
  static markup = `
    <p class="quiet">Mean and standard deviation over n seeds. The difference is paired by seed, with its 95 % confidence
      interval; <q>less error</q> is the part of ReLU's error (or of 1 − AUC) that is gone. Published numbers are those of
      the 2015 paper, at its own scale.</p>
    <div id="table-list"></div>`;

  constructor(page, root) {
    this.page = page;
    this.list = root.querySelector("#table-list");
  }

  get isEmpty() {
    return this.page.data.tables.length === 0;
  }

  draw() {
    this.list.replaceChildren(...this.page.data.tables.map(drawn));
  }
}

function drawn({ name, title, scale, header, rows }) {
  // Columns without a single entry say nothing.
  const used = header.map((_, i) => rows.some((row) => row[i] !== ""));
  const pick = (row) => row.filter((_, i) => used[i]).map((text) => text.replace("+-", "±"));
  const label = name.replace(/^table(\d)/, "Table $1");
  const made = table(
    `${label[0].toUpperCase()}${label.slice(1)}: ${title} (${scale} scale)`,
    pick(header),
    rows.map(pick),
  );
  made.dataset.table = `${name}/${scale}`;
  return made;
}
