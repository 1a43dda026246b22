// Tables, in a box that scrolls where the screen is narrow.

import { el } from "./dom.js";

/** Makes a table of rows; `caption` is read out, `headings` may be null. */
export function table(caption, headings, rows) {
  // A heading stands where the numbers below it do.
  const classes = [...(rows[0]?.cells ?? [])].map((cell) => cell.className || null);
  const head = headings?.map((text, i) => el("th", { scope: "col", class: classes[i] }, content(text)));
  return el(
    "div",
    { class: "scroll", tabindex: 0, role: "group", "aria-label": caption },
    el(
      "table",
      {},
      el("caption", { class: "unseen" }, caption),
      head ? el("thead", {}, el("tr", {}, head)) : null,
      el("tbody", {}, rows),
    ),
  );
}

/** Makes a row; `first` is its heading, and a cell is a text, what it holds, or a <td>. */
export function row(first, cells, attributes = {}) {
  const made = cells.map((cell) => (cell?.localName === "td" ? cell : el("td", {}, content(cell ?? "–"))));
  return el("tr", attributes, el("th", { scope: "row" }, content(first)), made);
}

/** Makes the cell of a number's text, which is aligned at its end. */
export function numberCell(text, attributes = {}) {
  return el("td", { class: "number", ...attributes }, text);
}

const content = (cell) => (typeof cell === "object" ? cell : el("bdi", {}, String(cell)));
