// Numbers as text: a table behind a line that opens it.

import { el } from "./dom.js";
import { numberCell, row, table } from "./table.js";
import { number } from "./text.js";

/**
 * Makes a <details> with a table.
 *
 * `rows` is a list of rows or a function that returns it, called when the table is first
 * opened; a row's first item is its heading. Numbers are shown with three digits.
 */
export function numbersAsText(title, columns, rows) {
  const details = el(
    "details",
    { class: "numbers" },
    el("summary", {}, `${title}: numbers as text`),
  );
  details.addEventListener("toggle", () => {
    if (!details.open || details.querySelector("table")) return;
    const lists = typeof rows === "function" ? rows() : rows;
    details.append(table(title, columns, lists.map(([first, ...others]) => row(first, others.map(cellOf)))));
  });
  return details;
}

function cellOf(value) {
  if (typeof value !== "number") return value;
  return numberCell(Number.isInteger(value) ? String(value) : number(value));
}
