// The histogram of differences of sentence chrF.

import { el, svg } from "../common/dom.js";
import { numbersAsText } from "../common/numbers.js";
import { systemName } from "./names.js";

const WIDTH = 800;
const HEIGHT = 220;
const BELOW = 36; // for the axis and its title

/** Draws how many lines gained or lost how much. */
export function histogram(body, { set, pair }) {
  const { edges, counts, equal, better, worse } = set.histograms[pair - 1];
  const say = (count) => count.toLocaleString("en");
  body.append(
    el(
      "p",
      { class: "legend" },
      el("span", { class: "gained" }, `${say(better)} lines better`),
      el("span", { class: "lost" }, `${say(worse)} worse`),
      el("span", {}, `${say(equal)} equal, not drawn`),
      el("span", {}, "by ", systemName(set, pair), " than by ", systemName(set, 0)),
    ),
    drawing(edges, counts),
    numbersAsText(
      "Histogram",
      ["difference of chrF", "lines"],
      () => counts.map((count, i) => [`${range(edges, i)}`, count]).filter(([, count]) => count),
    ),
  );
}

function range(edges, i) {
  const end = (x) => x.toFixed(1).replace("-", "−");
  return `${end(edges[i])} to ${end(edges[i + 1])}`;
}

function drawing(edges, counts) {
  // Only as far as there are lines, and as far on both sides.
  const held = counts.flatMap((count, i) => (count ? [Math.abs(edges[i]), Math.abs(edges[i + 1])] : []));
  const most = Math.max(20, ...held);
  const top = Math.max(1, ...counts);
  const x = (value) => (WIDTH / 2) * (1 + value / most);
  const y = (count) => HEIGHT - BELOW - (count / top) * (HEIGHT - BELOW - 20);
  const middle = (counts.length - 1) / 2;
  const side = (i) => (i === middle ? "near" : i > middle ? "gained" : "lost");
  const bars = counts.flatMap((count, i) =>
    count
      ? [
          svg(
            "rect",
            { class: side(i), x: x(edges[i]) + 1, width: x(edges[i + 1]) - x(edges[i]) - 2, y: y(count), height: HEIGHT - BELOW - y(count) },
            svg("title", {}, `${range(edges, i)}: ${count} lines`),
          ),
          svg("text", { x: x((edges[i] + edges[i + 1]) / 2), y: y(count) - 4, "text-anchor": "middle" }, String(count)),
        ]
      : [],
  );
  const step = most > 50 ? 25 : 10;
  const marks = [];
  for (let at = -Math.floor(most / step) * step; at <= most; at += step) marks.push(at);
  return svg(
    "svg",
    { class: "histogram", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": "Histogram; its numbers are below" },
    svg("line", { class: "zero", x1: 0, x2: WIDTH, y1: HEIGHT - BELOW, y2: HEIGHT - BELOW }),
    svg("line", { class: "zero", x1: x(0), x2: x(0), y1: 0, y2: HEIGHT - BELOW }),
    bars,
    marks.map((at) =>
      svg("text", { x: x(at), y: HEIGHT - BELOW + 15, "text-anchor": at <= -most ? "start" : at >= most ? "end" : "middle" }, String(at).replace("-", "−")),
    ),
    svg("text", { class: "axis-title", x: WIDTH / 2, y: HEIGHT - 4, "text-anchor": "middle" }, "worse  ←  difference of sentence chrF  →  better"),
  );
}
