// The scores of whole systems, and the tests of their differences.

import { el } from "../common/dom.js";
import { interval, reach } from "./intervals.js";
import { fixed, row, signed, systemName, table } from "./names.js";

/** Shows all systems in one table, and all differences to the baseline in another. */
export function scores(body, { set }) {
  const heads = set.totals.map(({ title, higher_is_better: higher }) => `${title}${higher ? "" : ", less is better"}`);
  const systems = set.systems.map((system, s) =>
    row(systemName(set, s), [
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
    row(systemName(set, index + 1), [
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
