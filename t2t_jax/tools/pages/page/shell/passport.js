// The foot of the page: where each model comes from.

import { el } from "../common/dom.js";

/** Makes the table of the models' passports, a column for each. */
export function passport(models) {
  const of = models.map(({ passport: pairs }) => new Map(pairs));
  const names = [...new Set(of.flatMap((pairs) => [...pairs.keys()]))];
  return el(
    "div",
    { class: "passport" },
    el("h2", {}, "Passport"),
    el(
      "div",
      { class: "scroll" },
      el(
        "table",
        {},
        el("caption", { class: "unseen" }, "Where the model comes from"),
        models.length > 1 ? el("thead", {}, headOf(models)) : null,
        el("tbody", {}, names.map((name) => rowFor(name, of))),
      ),
    ),
  );
}

function headOf(models) {
  return el(
    "tr",
    {},
    el("td"),
    models.map(({ name }) => el("th", { scope: "col" }, name)),
  );
}

function rowFor(name, of) {
  const cells = of.map((pairs) => el("td", {}, el("bdi", {}, pairs.get(name) ?? "–")));
  return el("tr", {}, el("th", { scope: "row" }, name), cells);
}
