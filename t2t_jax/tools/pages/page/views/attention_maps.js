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
  const map = emptyMap(queries, keys);
  queries.of.forEach((query, i) => {
    const row = rowAt(i);
    const from = query * map.columns;
    const share = 1 / queries.sizes[query];
    for (let j = 0; j < row.length; j++) map.values[from + keys.of[j]] += row[j] * share;
  });
  return map;
}

/**
 * Returns the mean or the maximum of several heads' maps.
 *
 * It pauses when it takes long, and gives up with null when `wanted()` is false by then.
 */
export async function combinedMap(weights, heads, largest, { queries, keys }, wanted) {
  const map = emptyMap(queries, keys);
  const pause = pauses();
  for (const [layer, head] of heads) {
    const { values } = mapOf((i) => weights.row(layer, head, i), queries, keys);
    for (let k = 0; k < values.length; k++)
      map.values[k] = largest
        ? Math.max(map.values[k], values[k])
        : map.values[k] + values[k] / heads.length;
    await pause();
    if (!wanted()) return null;
  }
  return map;
}

function emptyMap(queries, keys) {
  const [rows, columns] = [queries.labels.length, keys.labels.length];
  return { rows, columns, values: new Float32Array(rows * columns) };
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
    const row = rowAt(i);
    for (let j = 0; j < columns; j++) {
      const k = from + columnOf[j];
      if (row[j] > small.values[k]) small.values[k] = row[j];
    }
  }
  return small;
}

/** Returns a map's value in a cell. */
export function cellOfMap(map, i, j) {
  return map.values[i * map.columns + j];
}

/** Returns a query's weights. */
export function rowOfMap(map, i) {
  return map.values.subarray(i * map.columns, (i + 1) * map.columns);
}

/** Returns the weights on a key. */
export function columnOfMap(map, j) {
  return Float32Array.from({ length: map.rows }, (_, i) => cellOfMap(map, i, j));
}

/** Returns the largest absolute value, or 1 where all are 0. */
export function largestOf(values) {
  let most = 0;
  for (const value of values) most = Math.max(most, Math.abs(value));
  return most || 1;
}

/** Returns the share of the strongest colour that a weight has; weak ones are raised. */
export function colourShare(weight, most) {
  return Math.sqrt(weight / most);
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
