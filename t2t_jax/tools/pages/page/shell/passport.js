// The foot of the page: where each model comes from.

import { el } from "../common/dom.js";
import { row, table } from "../common/table.js";

/** Makes the table of the models' passports, a column for each. */
export function passport(models) {
  const of = models.map(({ passport: pairs }) => new Map(pairs));
  const names = [...new Set(of.flatMap((pairs) => [...pairs.keys()]))];
  const rows = names.map((name) => row(name, of.map((pairs) => pairs.get(name))));
  const headings = models.length > 1 ? ["", ...models.map(({ name }) => name)] : null;
  return el(
    "div",
    { class: "passport" },
    el("h2", {}, "Passport"),
    table("Where the model comes from", headings, rows),
  );
}
