// Curves of a run: their points, smoothed, thinned, as the path of a drawing.

/**
 * Returns the mean of `count` values around each one; fewer at the ends, as many on
 * each side. Missing values stay missing, and do not count in the means of others.
 */
export function smoothed(values, count) {
  const sums = [0];
  const counts = [0];
  for (const [i, value] of values.entries()) {
    sums.push(sums[i] + (value ?? 0));
    counts.push(counts[i] + (value === null ? 0 : 1));
  }
  return values.map((value, i) => {
    const reach = Math.min(count >> 1, i, values.length - 1 - i);
    if (value === null || reach === 0) return value;
    const [from, to] = [i - reach, i + reach + 1];
    return (sums[to] - sums[from]) / (counts[to] - counts[from]);
  });
}

/** Returns the index of the number nearest to `x` in an increasing list. */
export function nearest(list, x) {
  let [low, high] = [0, list.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle] < x) low = middle + 1;
    else high = middle;
  }
  return low > 0 && x - list[low - 1] <= list[low] - x ? low - 1 : low;
}

/** Returns the path through points; it is interrupted where a value is missing. */
export function pathOf(xs, ys, across, up) {
  const parts = [];
  let pen = "M";
  for (const [x, y] of thinned(xs, ys, across)) {
    const height = y === null ? null : up(y);
    if (height === null) pen = "M";
    else {
      parts.push(`${pen}${across(x).toFixed(1)} ${height.toFixed(1)}`);
      pen = "L";
    }
  }
  // A line of no length with round ends: a point that stands alone is seen, too.
  return parts.map((part, i) => (alone(parts, i) ? `${part}h0` : part)).join("");
}

const alone = (parts, i) =>
  parts[i][0] === "M" && (i + 1 === parts.length || parts[i + 1][0] === "M");

// Of many points in one column of pixels the first, lowest, highest and last draw all.
function thinned(xs, ys, across) {
  const points = xs.map((x, i) => [x, ys[i]]);
  if (points.length < 2000) return points;
  const columns = Map.groupBy(points, ([x]) => Math.round(across(x)));
  return [...columns.values()].flatMap((column) => {
    if (column.length <= 4 || column.some(([, y]) => y === null)) return column;
    const byHeight = [...column].sort((a, b) => a[1] - b[1]);
    const kept = new Set([column[0], byHeight[0], byHeight.at(-1), column.at(-1)]);
    return column.filter((point) => kept.has(point));
  });
}
