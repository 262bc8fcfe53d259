// Drawing in SVG: frames with axes, curves, and the handles that are dragged or moved by keys.

export function svg(name, attributes = {}, parent = null, text = null) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== null) element.textContent = text;
  parent?.append(element);
  return element;
}

// Four decimals at most, a real minus sign, and no negative zero.
export function format(value) {
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  return String(Math.round(value * 1e4) / 1e4 + 0).replace("-", "−");
}

export function formatLine({ slope, intercept }) {
  const rounded = Math.round(slope * 1e4) / 1e4;
  const factor = { 0: "", 1: "x", "-1": "−x" }[rounded] ?? `${format(slope)} x`;
  if (Math.abs(intercept) < 5e-5) return factor || "0";
  if (!factor) return format(intercept);
  return `${factor} ${intercept > 0 ? "+" : "−"} ${format(Math.abs(intercept))}`;
}

// The part of the plane that a picture shows, and where it shows it.
export class Frame {
  constructor(element, range, { ratio, least, margin }) {
    this.element = element;
    this.range = range;
    this.width = Math.max(260, element.clientWidth);
    this.margin = margin;
    this.right = this.width - margin.right;
    const inner = Math.max(least, (this.right - margin.left) * ratio);
    this.bottom = margin.top + inner;
    this.height = this.bottom + margin.bottom;
    this.low = -range / 2;
    this.high = range;
    element.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    element.style.height = `${this.height}px`;
  }

  x(value) {
    return (
      this.margin.left + ((value + this.range) / (2 * this.range)) * (this.right - this.margin.left)
    );
  }

  y(value) {
    return (
      this.bottom - ((value - this.low) / (this.high - this.low)) * (this.bottom - this.margin.top)
    );
  }

  // Movements on the screen as movements in the plane.
  dx(pixels) {
    return (pixels / (this.right - this.margin.left)) * 2 * this.range;
  }

  dy(pixels) {
    return (-pixels / (this.bottom - this.margin.top)) * (this.high - this.low);
  }

  inside(value, low, high) {
    return Math.min(high, Math.max(low, value));
  }

  axes(layer) {
    const clip = svg("clipPath", { id: `${this.element.id}-clip` }, layer);
    svg(
      "rect",
      {
        x: this.margin.left,
        y: this.margin.top,
        width: this.right - this.margin.left,
        height: this.bottom - this.margin.top,
      },
      clip,
    );
    const step = this.range > 3 ? 2 : 1;
    for (let v = -this.range; v <= this.range; v += step) {
      const at = { x1: this.x(v), x2: this.x(v), y1: this.margin.top, y2: this.bottom };
      svg("line", { ...at, class: v === 0 ? "axis" : "grid" }, layer);
      svg("text", { x: this.x(v), y: this.bottom + 16, "text-anchor": "middle" }, layer, format(v));
    }
    for (let v = Math.ceil(this.low / step) * step; v <= this.high; v += step) {
      const at = { y1: this.y(v), y2: this.y(v), x1: this.margin.left, x2: this.right };
      svg("line", { ...at, class: v === 0 ? "axis" : "grid" }, layer);
      svg(
        "text",
        { x: this.margin.left - 7, y: this.y(v) + 4, "text-anchor": "end" },
        layer,
        format(v),
      );
    }
  }

  // A polyline through the given points; what leaves the frame is cut off.
  path(layer, points, cssClass) {
    const text = points
      .map(([x, y]) => `${this.x(x).toFixed(2)},${this.y(y).toFixed(2)}`)
      .join(" ");
    svg(
      "polyline",
      { points: text, class: cssClass, "clip-path": `url(#${this.element.id}-clip)` },
      layer,
    );
  }

  // A piecewise-linear function is its values at the kinks and at the ends.
  function(layer, f, kinks, cssClass) {
    const inner = kinks.map(({ position }) => position).filter((x) => Math.abs(x) < this.range);
    this.path(
      layer,
      [-this.range, ...inner, this.range].map((x) => [x, f(x)]),
      cssClass,
    );
  }

  probe(layer, x, y) {
    svg(
      "line",
      { x1: this.x(x), x2: this.x(x), y1: this.margin.top, y2: this.bottom, class: "probe-line" },
      layer,
    );
    if (y >= this.low && y <= this.high) {
      svg("circle", { cx: this.x(x), cy: this.y(y), r: 5, class: "probe-dot" }, layer);
    }
  }
}

const MARKS = {
  circle: (r) => ({ tag: "circle", attributes: { r } }),
  square: (r) => ({
    tag: "rect",
    attributes: { x: -r, y: -r, width: 2 * r, height: 2 * r, rx: 2 },
  }),
  triangle: (r) => ({
    tag: "path",
    attributes: { d: `M0 ${-r} L${r} ${r * 0.8} L${-r} ${r * 0.8} Z` },
  }),
};

// A slider in the picture. change(value) is called with the new value; drag(dx, dy) turns a movement
// on the screen since the start into a change of the value.
export class Handle {
  constructor(
    layer,
    { mark, radius, colour, text, label, low, high, vertical, drag, change, value },
  ) {
    Object.assign(this, { low, high, drag, change, value });
    this.element = svg(
      "g",
      {
        class: "handle",
        tabindex: 0,
        role: "slider",
        "aria-label": label,
        "aria-valuemin": low,
        "aria-valuemax": high,
        "aria-orientation": vertical ? "vertical" : "horizontal",
      },
      layer,
    );
    svg("circle", { r: 17, class: "hit" }, this.element);
    svg("circle", { r: radius + 6, class: "ring" }, this.element);
    const { tag, attributes } = MARKS[mark](radius);
    svg(tag, { ...attributes, class: "mark", style: `fill: var(${colour})` }, this.element);
    if (text) svg("text", {}, this.element, text);
    this.element.addEventListener("pointerdown", (event) => this.start(event));
    this.element.addEventListener("keydown", (event) => this.key(event));
  }

  place(x, y) {
    this.element.setAttribute("transform", `translate(${x.toFixed(2)} ${y.toFixed(2)})`);
    this.element.setAttribute("aria-valuenow", this.value());
  }

  set(value) {
    this.change(Math.round(Math.min(this.high, Math.max(this.low, value)) * 1e4) / 1e4 + 0);
  }

  start(event) {
    if (event.button !== 0) return;
    event.preventDefault();
    this.element.focus({ preventScroll: true });
    this.element.setPointerCapture(event.pointerId);
    this.element.classList.add("dragging");
    const from = { x: event.clientX, y: event.clientY, value: this.value() };
    const move = (moved) => {
      const change = this.drag(moved.clientX - from.x, moved.clientY - from.y);
      this.set(Math.round((from.value + change) * 100) / 100);
    };
    const stop = () => {
      this.element.classList.remove("dragging");
      this.element.removeEventListener("pointermove", move);
    };
    this.element.addEventListener("pointermove", move);
    for (const end of ["pointerup", "pointercancel"])
      this.element.addEventListener(end, stop, { once: true });
  }

  key(event) {
    const steps = {
      ArrowRight: 0.05,
      ArrowUp: 0.05,
      ArrowLeft: -0.05,
      ArrowDown: -0.05,
      PageUp: 0.5,
      PageDown: -0.5,
    };
    const ends = { Home: this.low, End: this.high };
    if (event.key in steps) this.set(this.value() + steps[event.key]);
    else if (event.key in ends) this.set(ends[event.key]);
    else return;
    event.preventDefault();
  }
}
