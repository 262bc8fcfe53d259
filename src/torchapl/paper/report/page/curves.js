/* The curves of a layer, decoded from the payload. */

/** Decode base64 to bytes. */
function bytesOf(text) {
  const raw = atob(text);
  return Uint8Array.from({ length: raw.length }, (_, i) => raw.charCodeAt(i));
}

/** Decode little-endian 16-bit numbers, which stand for so many times the scale. */
function numbersOf({ data, scale }) {
  const bytes = bytesOf(data);
  const view = new DataView(bytes.buffer);
  return Float64Array.from({ length: bytes.length / 2 }, (_, i) => {
    const whole = view.getInt16(2 * i, true);
    return whole === -32768 ? NaN : whole * scale;
  });
}

/** The curves of one layer at one moment: slope and offset of hinge s of kept unit k. */
class Frame {
  constructor(layer, stored) {
    this.units = layer.units.length;
    this.hinges = layer.hinges;
    [this.scale, this.shift, this.skip, this.center] = layer.affine;
    this.classes = bytesOf(stored.classes);
    this.counts = stored.counts;
    this.slope = numbersOf(stored.slope);
    this.offset = numbersOf(stored.offset);
  }

  /** The hinges of a unit, as they are stored. */
  hingesOf(unit) {
    return Array.from({ length: this.hinges }, (_, s) => {
      const at = s * this.units + unit;
      return { slope: this.slope[at], offset: this.offset[at] };
    });
  }

  /** h(x) = max(0, x) + sum over s of a_s max(0, b_s - x); an affine unit has another line. */
  value(unit, x) {
    let y = this.scale * Math.max(0, x - this.center) + this.skip * x + this.shift;
    for (let s = 0; s < this.hinges; s += 1) {
      const at = s * this.units + unit;
      y += this.slope[at] * Math.max(0, this.offset[at] - x);
    }
    return y;
  }

  leftSlope(unit) {
    let sum = this.skip;
    for (let s = 0; s < this.hinges; s += 1) sum -= this.slope[s * this.units + unit];
    return sum;
  }

  /** The bends within a window and its ends: lines between them are the exact curve. */
  points(unit, [low, high]) {
    const bends = [this.center, ...this.hingesOf(unit).map(({ offset }) => offset)];
    const x = [low, ...bends.filter((place) => place > low && place < high), high];
    x.sort((p, q) => p - q);
    return { x, y: x.map((place) => this.value(unit, place)) };
  }
}

const frames = new WeakMap();

/** The curves of a layer at a moment, decoded once. */
export function frameOf(layer, moment) {
  if (!frames.has(layer)) frames.set(layer, []);
  const known = frames.get(layer);
  known[moment] ??= new Frame(layer, layer.frames[moment]);
  return known[moment];
}
