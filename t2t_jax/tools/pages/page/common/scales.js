// Scales: from numbers to pixels, and the numbers written beside an axis.

/** Returns a function from `domain` to `range`; null for what a logarithm lacks. */
export function scale(domain, range, log = false) {
  const place = log ? Math.log : (value) => value;
  const [low, high] = domain.map(place);
  const share = (value) => (place(value) - low) / (high - low);
  return (value) =>
    log && value <= 0 ? null : range[0] + share(value) * (range[1] - range[0]);
}

/** Returns about `count` round numbers in a domain. */
export function ticks([low, high], count, log = false) {
  if (log && high / low > 10) return decades(low, high, count);
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((m) => m * power >= raw);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, i) => (first + i) * step);
}

function decades(low, high, count) {
  const span = Math.log10(high / low);
  const factors = span * 3 <= count + 2 ? [1, 2, 5] : [1];
  const every = Math.ceil(span / count);
  const found = [];
  for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power++)
    if (power % every === 0)
      found.push(...factors.map((f) => f * 10 ** power).filter((v) => v >= low && v <= high));
  return found;
}

/** Returns a number of an axis in few characters: 2.5k, 12M, 0.004. */
export function short(value) {
  for (const [size, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]])
    if (Math.abs(value) >= size) return `${Number((value / size).toPrecision(4))}${letter}`;
  return String(Number(value.toPrecision(4))).replace("-", "−");
}

/** Returns a place on an axis in full: 12,500, or 1.234 of hours. */
export function place(axis, x) {
  return x.toLocaleString("en", { maximumFractionDigits: axis === "hours" ? 4 : 0 });
}
