// Arithmetic of attention maps. A map is {rows, columns, values}, one row after another.

const LONGEST_BLOCK = 20; // milliseconds that the page may not answer

/**
 * Returns the units that pieces are shown as: {labels, of, sizes}, where piece i belongs
 * to unit `of[i]`, which has `sizes[of[i]]` pieces. Without `words` each is its own unit.
 */
export function unitsOf(pieces, words, wordTexts) {
  const units = { labels: [], of: [], sizes: [] };
  pieces.forEach((piece, i) => {
    const word = words ? words[i] : -1; // -1: a piece outside words, such as </s>
    if (word < 0 || i === 0 || word !== words[i - 1]) {
      units.labels.push(word < 0 ? piece : wordTexts[word]);
      units.sizes.push(0);
    }
    units.of.push(units.labels.length - 1);
    units.sizes[units.labels.length - 1] += 1;
  });
  return units;
}

/** Returns the map of units: the sum over a key's pieces, the mean over a query's. */
export function mapOf(rowAt, queries, keys) {
  const [rows, columns] = [queries.labels.length, keys.labels.length];
  const values = new Float32Array(rows * columns);
  queries.of.forEach((query, i) => {
    const row = rowAt(i);
    const share = 1 / queries.sizes[query];
    keys.of.forEach((key, j) => (values[query * columns + key] += row[j] * share));
  });
  return { rows, columns, values };
}

/** Returns the mean or the maximum of several heads' maps, pausing when it takes long. */
export async function combinedMap(weights, heads, largest, queries, keys) {
  const [rows, columns] = [queries.labels.length, keys.labels.length];
  const values = new Float32Array(rows * columns);
  const pause = pauses();
  for (const [layer, head] of heads) {
    const one = mapOf((i) => weights.row(layer, head, i), queries, keys);
    one.values.forEach((value, k) => {
      if (largest) values[k] = Math.max(values[k], value);
      else values[k] += value / heads.length;
    });
    await pause();
  }
  return { rows, columns, values };
}

/** Returns a map of at most `size` x `size` cells, each the maximum of those it covers. */
export function pooledMap(rowAt, rows, columns, size) {
  const small = { rows: Math.min(rows, size), columns: Math.min(columns, size) };
  small.values = new Float32Array(small.rows * small.columns);
  const columnOf = Array.from({ length: columns }, (_, j) =>
    Math.floor((j * small.columns) / columns),
  );
  for (let i = 0; i < rows; i++) {
    const from = Math.floor((i * small.rows) / rows) * small.columns;
    rowAt(i).forEach((value, j) => {
      const k = from + columnOf[j];
      small.values[k] = Math.max(small.values[k], value);
    });
  }
  return small;
}

/** Returns a map's value in a cell. */
export function cellOfMap(map, i, j) {
  return map.values[i * map.columns + j];
}

/** Returns the largest value, or 1 where all are 0: what a map's colours are scaled by. */
export function largestOf(values) {
  return values.reduce((most, value) => Math.max(most, Math.abs(value)), 0) || 1;
}

/** Returns the `count` largest of `values` as [index, value], the largest first. */
export function strongest(values, count, least = 0) {
  return Array.from(values, (value, index) => [index, value])
    .filter(([, value]) => value > least)
    .sort((a, b) => b[1] - a[1])
    .slice(0, count);
}

/** Returns a function that lets the page answer, if it could not for a while. */
export function pauses() {
  let since = performance.now();
  return async () => {
    if (performance.now() - since < LONGEST_BLOCK) return;
    await new Promise((resolve) => setTimeout(resolve));
    since = performance.now();
  };
}
