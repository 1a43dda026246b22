// Numbers as text: a table behind a line that opens it.

import { el } from "./dom.js";
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
    const table = tableOf(title, columns, typeof rows === "function" ? rows() : rows);
    details.append(el("div", { class: "scroll", tabindex: 0 }, table));
  });
  return details;
}

function tableOf(title, columns, rows) {
  return el(
    "table",
    {},
    el("caption", { class: "unseen" }, title),
    el("thead", {}, el("tr", {}, columns.map(heading("col")))),
    el("tbody", {}, rows.map(rowOf)),
  );
}

function rowOf([first, ...others]) {
  return el("tr", {}, heading("row")(first), others.map(cellOf));
}

function heading(scope) {
  return (text) => el("th", { scope }, el("bdi", {}, String(text)));
}

function cellOf(value) {
  if (typeof value === "number")
    return el("td", { class: "number" }, Number.isInteger(value) ? String(value) : number(value));
  return el("td", {}, el("bdi", {}, value ?? "–"));
}
