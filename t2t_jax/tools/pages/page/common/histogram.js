// A histogram: bars on a linear or logarithmic axis, and its numbers as text.

import { el, svg } from "./dom.js";
import { numbersAsText } from "./numbers.js";
import { scale, short, ticks } from "./scales.js";

const MARGIN = { left: 44, right: 14, top: 16, bottom: 24 };

/**
 * Makes the figure of `{title, log, edges, counts}`.
 *
 * `unit` is what is counted. `domain` ends where the last bars are by default. A `side`,
 * a function of a bar's index, gives bars a class, and a label of their own.
 */
export function histogram(
  { title, log = false, edges, counts },
  { unit, domain = heldBy(edges, counts), side = null, axisTitle = "", width = 380, height = 180 },
) {
  const said = (n) => `${n.toLocaleString("en")} ${unit}`;
  const bottom = height - MARGIN.bottom - (axisTitle ? 14 : 0);
  const most = Math.max(1, ...counts);
  const across = scale(domain, [MARGIN.left, width - MARGIN.right], log);
  const up = scale([0, most], [bottom, MARGIN.top]);
  const bars = counts.map((n, index) => {
    const [left, right] = [across(edges[index]), across(edges[index + 1])];
    // A few pairs are what one looks for: a bar of them is never invisible.
    const top = Math.min(up(n), bottom - 1.5);
    return n ? [
      svg(
        "rect",
        { class: side?.(index), x: left, y: top, width: Math.max(0.5, right - left - 0.5), height: bottom - top },
        svg("title", {}, `${rangeOf(edges, index)}: ${said(n)}`),
      ),
      side && svg("text", { x: (left + right) / 2, y: top - 4, "text-anchor": "middle" }, String(n)),
    ] : null;
  });
  const total = counts.reduce((a, b) => a + b, 0);
  return el(
    "figure",
    { class: "histogram" },
    el("figcaption", {}, title),
    svg(
      "svg",
      { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title}, ${said(total)}` },
      svg(
        "g",
        { class: "axes", "aria-hidden": "true" },
        ticks(domain, width / 76, log).map((x) => svg("text", { x: across(x), y: bottom + 16, "text-anchor": "middle" }, short(x))),
        ticks([0, most], 4).map((y) => [
          svg("line", { x1: MARGIN.left, x2: width - MARGIN.right, y1: up(y), y2: up(y) }),
          svg("text", { x: MARGIN.left - 5, y: up(y) + 4, "text-anchor": "end" }, short(y)),
        ]),
        domain[0] < 0 ? svg("line", { class: "zero", x1: across(0), x2: across(0), y1: 0, y2: bottom }) : null,
        svg("text", { x: width / 2, y: height - 4, "text-anchor": "middle" }, axisTitle),
      ),
      bars,
    ),
    numbersAsText(title, ["From, to", unit], () =>
      counts.map((n, index) => [rangeOf(edges, index), n]).filter((row) => row[1]),
    ),
  );
}

function heldBy(edges, counts) {
  const first = Math.max(0, counts.findIndex((n) => n > 0));
  return [edges[first], edges[counts.findLastIndex((n) => n > 0) + 1 || counts.length]];
}

function rangeOf(edges, index) {
  return `${short(edges[index])} to ${short(edges[index + 1])}`;
}
