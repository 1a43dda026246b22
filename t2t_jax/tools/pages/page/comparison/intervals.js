// A difference with its interval, drawn on an axis through 0.

import { svg } from "../common/dom.js";

const WIDTH = 160;
const HEIGHT = 18;

/** Returns the largest distance from 0 among intervals, so that rows share an axis. */
export function reach(differences) {
  const ends = differences.flatMap(({ difference, low, high }) => [difference, low, high]);
  return Math.max(...ends.map((end) => Math.abs(end ?? 0)), 1e-9);
}

/** Draws an interval; it is said in the cell beside it, so it is hidden from readers. */
export function interval({ difference, low, high }, most) {
  const x = (value) => WIDTH / 2 + (value / most) * (WIDTH / 2 - 6);
  const middle = HEIGHT / 2;
  const parts = [svg("line", { class: "zero", x1: x(0), x2: x(0), y1: 0, y2: HEIGHT })];
  if (low !== null && difference !== null)
    parts.push(
      svg("line", { class: "span", x1: x(low), x2: x(high), y1: middle, y2: middle }),
      svg("line", { class: "end", x1: x(low), x2: x(low), y1: middle - 4, y2: middle + 4 }),
      svg("line", { class: "end", x1: x(high), x2: x(high), y1: middle - 4, y2: middle + 4 }),
      svg("circle", { cx: x(difference), cy: middle, r: 4 }),
    );
  return svg(
    "svg",
    { class: "interval", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, "aria-hidden": "true" },
    parts,
  );
}

/** True if an interval does not hold 0. */
export function isClear({ low, high }) {
  return low !== null && (low > 0 || high < 0);
}
