import { byId, element } from "../dom.js";
import { Panel } from "../panel.js";

/** The learned curves of single units, of one run or of two side by side. */
export default class Explorer {
  static title = "Activation explorer";
  static markup = `
    <div class="controls">
      <label class="check"><input type="checkbox" id="compare"> Two runs side by side</label>
      <label class="check"><input type="checkbox" id="link" checked disabled> Move both together</label>
    </div>
    <div id="panels"></div>
    <p id="kept" class="quiet"></p>
    <details open>
      <summary>What the classes mean</summary>
      <p class="quiet">A curve is judged by the slopes of its straight pieces within the central 98 % of its layer's inputs
        (−3 to 3 where those are unknown). Each belongs to the first class that fits:</p>
      <dl id="definitions"></dl>
    </details>`;

  constructor(page) {
    this.page = page;
    this.panels = [];
    byId("compare").addEventListener("change", () => this.draw());
    byId("link").addEventListener("change", () => this.link(this.panels[0]));
  }

  get isEmpty() {
    return this.page.data.curves.length === 0;
  }

  draw() {
    const { kept, classes } = this.page.data;
    const definitions = classes.flatMap(({ name, meaning }) => [
      element("dt", { textContent: name }),
      element("dd", { textContent: meaning }),
    ]);
    byId("kept").textContent = kept;
    byId("definitions").replaceChildren(...definitions);
    const wanted = byId("compare").checked ? 2 : 1;
    byId("link").disabled = wanted === 1;
    while (this.panels.length > wanted) this.panels.pop().root.remove();
    while (this.panels.length < wanted) this.add();
    for (const panel of this.panels) panel.draw();
  }

  add() {
    const panel = new Panel(this.page, (changed) => this.link(changed));
    byId("panels").append(panel.root);
    const [first] = this.panels;
    if (first) {
      panel.state.run = (first.state.run + 1) % this.page.data.curves.length;
      panel.follow(first);
    } else {
      panel.state.moment = panel.entry.moments.length - 1;
    }
    this.panels.push(panel);
  }

  /** Let the other panel follow, if both move together. */
  link(changed) {
    if (!byId("link").checked) return;
    for (const panel of this.panels) if (panel !== changed) panel.follow(changed);
  }

  keep() {
    const restore = this.panels.map((panel) => panel.keep());
    return () => {
      if (!this.isEmpty) for (const put of restore) put();
    };
  }
}
