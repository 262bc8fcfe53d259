/* The page: its head, colours and sections, and news from a server. */

import { byId, element } from "./dom.js";

/**
 * A section is a class with a `title` and `markup` of its own; made with the page and its element, it
 * has `isEmpty`, `draw()` and, if the reader can choose what new data would reset, `keep()`.
 */
export class Page {
  constructor(data, kinds) {
    this.data = data;
    this.sections = {};
    for (const [id, Kind] of Object.entries(kinds)) {
      const title = element("h2", { id: `${id}-title`, textContent: Kind.title });
      const root = element("section", { id, innerHTML: Kind.markup });
      root.setAttribute("aria-labelledby", title.id);
      root.prepend(title);
      document.querySelector("main").append(root);
      this.sections[id] = new Kind(this, root);
    }
  }

  start() {
    const preferred = matchMedia("(prefers-color-scheme: dark)");
    this.theme(preferred.matches);
    preferred.addEventListener("change", ({ matches }) => {
      this.theme(matches);
      this.drawSections();
    });
    byId("theme").addEventListener("click", () => {
      this.theme(document.documentElement.dataset.theme !== "dark");
      this.drawSections();
    });
    this.draw();
    if (this.data.live) this.ask();
  }

  theme(dark) {
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    byId("theme").textContent = dark ? "Light" : "Dark";
    byId("theme").setAttribute("aria-pressed", String(dark));
    byId("theme").setAttribute("aria-label", `Use ${dark ? "light" : "dark"} colours`);
  }

  draw() {
    const { data } = this;
    const count = (status) => data.runs.filter((run) => run.status === status).length;
    const others = ["failed", "unfinished"].filter(count);
    const older = data.runs.filter((run) => run.status !== "unfinished" && !run.has_checksum);
    const counts = [
      `${count("finished")} finished runs`,
      ...others.map((status) => `${count(status)} ${status}`),
      ...(older.length ? [`${older.length} stored without a checksum`] : []),
    ];
    byId("title").textContent = data.title;
    byId("about").textContent =
      `${counts.join(", ")}. Made ${data.made} with torchapl ${data.version}.`;
    const missing = data.left_out.map((reason) => element("li", { textContent: reason }));
    byId("left-out").hidden = missing.length === 0;
    byId("left-out").replaceChildren(
      "Left out, since a file of theirs cannot be trusted:",
      ...missing,
    );
    this.drawSections();
  }

  drawSections() {
    const links = [];
    for (const [id, section] of Object.entries(this.sections)) {
      byId(id).hidden = section.isEmpty;
      if (section.isEmpty) continue;
      links.push(element("a", { href: `#${id}`, textContent: section.constructor.title }));
      section.draw();
    }
    document.querySelector("nav").replaceChildren(...links);
  }

  /** What a reader is shown for the run of this number. */
  runName(index) {
    const run = this.data.runs[index];
    const scales = new Set(this.data.runs.map(({ scale }) => scale));
    const scale = scales.size > 1 ? ` (${run.scale})` : "";
    const status = run.status === "finished" ? "" : `, ${run.status}`;
    return `${run.name}${scale}, seed ${run.seed}${status}`;
  }

  /** What stays the same of a run when others come. */
  runKey(index) {
    const { name, scale, seed } = this.data.runs[index];
    return JSON.stringify([name, scale, seed]);
  }

  /** Ask the server for news every other second. */
  async ask(mark = "") {
    const status = byId("live");
    status.hidden = false;
    let seen = mark;
    try {
      const headers = seen ? { "If-None-Match": seen } : {};
      const answer = await fetch("/payload.json", { headers, cache: "no-store" });
      if (answer.status === 200) {
        seen = answer.headers.get("ETag") ?? "";
        this.replace(await answer.json());
        const now = new Date().toLocaleTimeString();
        status.textContent = `Following the runs; last news at ${now}.`;
      } else if (!answer.ok && answer.status !== 304) {
        status.textContent = `The server cannot read the runs: ${await answer.text()}`;
      }
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;
      status.textContent = "The server is gone; this page shows its last answer.";
    }
    setTimeout(() => this.ask(seen), 2000);
  }

  /** Show new data, keeping every choice that still exists. */
  replace(data) {
    const restore = Object.values(this.sections).map((section) => section.keep?.());
    this.data = data;
    for (const put of restore) put?.();
    this.draw();
  }
}
