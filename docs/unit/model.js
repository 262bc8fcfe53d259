// The mathematics of one unit, h(x) = max(0, x) + sum of a*max(0, b - x); no page, no state.
// A unit is a list of hinges {a, b}.

export const relu = (x) => Math.max(0, x);

// Where the slope rises, and by how much; kinks at one place are one, and none if they cancel.
function gather(terms) {
  const jumps = new Map();
  for (const { a, b } of terms) jumps.set(b, (jumps.get(b) ?? 0) + a);
  return [...jumps]
    .map(([position, jump]) => ({ position, jump }))
    .filter(({ jump }) => Math.abs(jump) > 1e-12)
    .toSorted((first, second) => first.position - second.position);
}

export function value(hinges, x) {
  return hinges.reduce((sum, { a, b }) => sum + a * relu(b - x), relu(x));
}

export function kinks(hinges) {
  return gather([{ a: 1, b: 0 }, ...hinges]);
}

// The lines of a curve that bends at these places and is slope*x right of them, from left to right.
function linesOf(bends, slope) {
  const lines = [{ from: bends.at(-1)?.position ?? -Infinity, to: Infinity, slope, intercept: 0 }];
  for (let k = bends.length - 1; k >= 0; k--) {
    const { position, jump } = bends[k];
    const right = lines[0];
    lines.unshift({
      from: bends[k - 1]?.position ?? -Infinity,
      to: position,
      slope: right.slope - jump,
      intercept: right.intercept + jump * position,
    });
  }
  return lines;
}

export function segments(hinges) {
  return linesOf(kinks(hinges), 1);
}

// h as the difference of two convex curves, each the largest of its lines. As in
// torchapl.curves.to_maxout, the first has the upward kinks and ends in x, the second the others.
export function maxoutPair(hinges) {
  const terms = [{ a: 1, b: 0 }, ...hinges];
  const bends = (sign) =>
    gather(terms.filter(({ a }) => sign * a > 0).map(({ a, b }) => ({ a: sign * a, b })));
  return { convex: linesOf(bends(1), 1), concave: linesOf(bends(-1), 0) };
}

export function largest(lines, x) {
  return Math.max(...lines.map(({ slope, intercept }) => slope * x + intercept));
}

// Hidden units max(0, weight*x + bias), then a sum with the output weights.
export function network(hinges) {
  return [
    { weight: 1, bias: 0, output: 1 },
    ...hinges.map(({ a, b }) => ({ weight: -1, bias: b, output: a })),
  ];
}

export function networkValue(layer, x) {
  return layer.reduce((sum, k) => sum + k.output * relu(k.weight * x + k.bias), 0);
}

export function shape(hinges) {
  const jumps = kinks(hinges).map(({ jump }) => jump);
  if (jumps.length === 0) return "a straight line";
  const convex = jumps.every((jump) => jump > 0);
  const concave = jumps.every((jump) => jump < 0);
  const rises = segments(hinges).every(({ slope }) => slope >= -1e-9);
  const bends = convex ? "convex" : concave ? "concave" : "neither convex nor concave";
  return `${bends}, ${rises ? "never falling" : "falling somewhere"}`;
}
