// What systems and numbers are called.

import { el } from "../common/dom.js";

/** Returns the letter of a system: A is the baseline. */
export function letter(index) {
  return String.fromCodePoint(65 + index);
}

/** Makes the name of a system, its letter first. */
export function systemName(set, index) {
  return el("span", { class: `system system-${index ? "other" : "base"}` }, el("b", {}, letter(index)), " ", el("bdi", {}, set.systems[index].name));
}

/** Returns a number with fixed digits and a true minus sign; a dash for none. */
export function fixed(value, digits) {
  if (value === null || value === undefined) return "–";
  const text = value.toFixed(digits);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−");
}

/** Returns a difference, which has a sign. */
export function signed(value, digits) {
  if (value === null || value === undefined) return "–";
  const text = fixed(value, digits);
  return value > 0 && /[1-9]/.test(text) ? `+${text}` : text;
}

/** Makes a table: headings, and rows whose first cell is a heading. */
export function table(caption, headings, rows) {
  // A heading stands where the numbers below it do.
  const numeric = [...(rows[0]?.cells ?? [])].map((cell) => cell.className || null);
  return el(
    "div",
    { class: "scroll", tabindex: 0, role: "group", "aria-label": caption },
    el(
      "table",
      {},
      el("caption", { class: "unseen" }, caption),
      el("thead", {}, el("tr", {}, headings.map((text, i) => el("th", { scope: "col", class: numeric[i] }, text)))),
      el("tbody", {}, rows),
    ),
  );
}

/** Makes a row of a table; numbers' cells are aligned at their end. */
export function row(first, cells) {
  return el(
    "tr",
    {},
    el("th", { scope: "row" }, first),
    cells.map((cell) =>
      typeof cell === "string" ? el("td", { class: "number" }, cell) : el("td", {}, cell),
    ),
  );
}
