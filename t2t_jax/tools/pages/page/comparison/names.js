// What systems and numbers are called.

import { el } from "../common/dom.js";
import { numberCell, row } from "../common/table.js";

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

/** Makes a row of a table whose texts are numbers. */
export function scoreRow(first, cells) {
  return row(first, cells.map((cell) => (typeof cell === "string" ? numberCell(cell) : cell)));
}
