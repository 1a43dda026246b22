// The scores of whole systems, the tests of their differences, and those of lines.

import { el } from "../common/dom.js";
import { histogram } from "../common/histogram.js";
import { table } from "../common/table.js";
import { interval, reach } from "./intervals.js";
import { fixed, scoreRow, signed, systemName } from "./names.js";

/** Shows all systems in one table, and all differences to the baseline in another. */
export function scores(body, { set }) {
  const heads = set.totals.map(({ title, higher_is_better: higher }) => `${title}${higher ? "" : ", less is better"}`);
  const systems = set.systems.map((system, s) =>
    scoreRow(systemName(set, s), [
      ...set.totals.map(({ systems, digits }) => `${fixed(systems[s].score, digits)} ± ${fixed(systems[s].interval.half_width, digits)}`),
      `${fixed(100 * set.length_ratio[s], 1)}%`,
      el("bdi", { class: "origin" }, system.origin),
    ]),
  );
  body.append(
    table("Scores of each system", ["System", ...heads, "Length, of the reference's", "From"], systems),
    el("h3", {}, "Differences to the baseline"),
    table(
      "Differences to the baseline",
      ["System", "Score", "Difference", "", "95% interval", "p, bootstrap", "p, randomisation", ""],
      set.totals.flatMap((total) => differences(set, total)),
    ),
    el("p", { class: "note" }, set.totals.filter(({ signature }) => signature).map(({ title, signature }) => el("span", { class: "signature" }, `${title}: ${signature}`))),
  );
}

function differences(set, { title, digits, differences: found }) {
  const most = reach(found);
  return found.map((each, index) =>
    scoreRow(systemName(set, index + 1), [
      el("span", {}, title),
      signed(each.difference, digits),
      interval(each, most),
      `${signed(each.low, digits)} to ${signed(each.high, digits)}`,
      fixed(each.bootstrap, 3),
      fixed(each.randomisation, 3),
      el("span", { class: `verdict ${each.verdict.split(" ")[0]}` }, each.verdict),
    ]),
  );
}

/** Draws how many lines gained or lost how much. */
export function gains(body, { set, pair }) {
  const found = set.histograms[pair - 1];
  const { edges, counts, equal, better, worse } = found;
  const say = (count) => count.toLocaleString("en");
  // Only as far as there are lines, and as far on both sides.
  const most = Math.max(20, ...counts.flatMap((n, i) => (n ? [Math.abs(edges[i]), Math.abs(edges[i + 1])] : [])));
  const middle = (counts.length - 1) / 2;
  body.append(
    el(
      "p",
      { class: "legend" },
      el("span", { class: "gained" }, `${say(better)} lines better`),
      el("span", { class: "lost" }, `${say(worse)} worse`),
      el("span", {}, `${say(equal)} equal, not drawn`),
      el("span", {}, "by ", systemName(set, pair), " than by ", systemName(set, 0)),
    ),
    histogram(
      { ...found, title: "Differences of sentence chrF" },
      {
        unit: "lines",
        domain: [-most, most],
        side: (i) => (i === middle ? "near" : i > middle ? "gained" : "lost"),
        axisTitle: "worse  ←  difference of sentence chrF  →  better",
        width: 800,
        height: 220,
      },
    ),
  );
}
