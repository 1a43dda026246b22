// A histogram: bars on a linear or logarithmic axis, and its numbers as text.

import { el, svg } from "./dom.js";
import { numbersAsText } from "./numbers.js";
import { scale, short, ticks } from "./scales.js";

const WIDTH = 380;
const HEIGHT = 180;
const MARGIN = { left: 44, right: 8, top: 10, bottom: 24 };

/** Makes the figure of `{title, log, edges, counts}`. */
export function histogram({ title, log, edges, counts }) {
  const total = counts.reduce((a, b) => a + b, 0);
  // The axis ends where the last bars are.
  const first = Math.max(0, counts.findIndex((n) => n > 0));
  const end = counts.findLastIndex((n) => n > 0) + 1 || counts.length;
  const domain = [edges[first], edges[end]];
  const across = scale(domain, [MARGIN.left, WIDTH - MARGIN.right], log);
  const most = Math.max(1, ...counts);
  const up = scale([0, most], [HEIGHT - MARGIN.bottom, MARGIN.top]);
  const bars = counts.slice(first, end).map((n, index) => {
    const [left, right] = [across(edges[first + index]), across(edges[first + index + 1])];
    // A few pairs are what one looks for: a bar of them is never invisible.
    const top = n ? Math.min(up(n), up(0) - 1.5) : up(0);
    return svg(
      "rect",
      { x: left, y: top, width: Math.max(0.5, right - left - 0.5), height: up(0) - top },
      svg("title", {}, `${rangeOf(edges, first + index)}: ${n.toLocaleString("en")} pairs`),
    );
  });
  return el(
    "figure",
    { class: "histogram" },
    el("figcaption", {}, title),
    svg(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}, ${total.toLocaleString("en")} pairs` },
      axis(across, up, domain, most, log),
      svg("g", { class: "bars" }, bars),
    ),
    numbersAsText(title, ["From, to", "Pairs"], () =>
      counts.map((n, index) => [rangeOf(edges, index), n]).filter((row) => row[1]),
    ),
  );
}

function axis(across, up, domain, most, log) {
  const bottom = HEIGHT - MARGIN.bottom;
  return svg(
    "g",
    { class: "axes", "aria-hidden": "true" },
    ticks(domain, 5, log).map((x) => svg("text", { x: across(x), y: bottom + 16, "text-anchor": "middle" }, short(x))),
    ticks([0, most], 4).map((y) => [
      svg("line", { x1: MARGIN.left, x2: WIDTH - MARGIN.right, y1: up(y), y2: up(y) }),
      svg("text", { x: MARGIN.left - 5, y: up(y) + 4, "text-anchor": "end" }, short(y)),
    ]),
  );
}

function rangeOf(edges, index) {
  return `${short(edges[index])} to ${short(edges[index + 1])}`;
}
