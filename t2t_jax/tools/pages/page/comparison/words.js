// Words that only one of two systems gets.

import { el } from "../common/dom.js";
import { table } from "../common/table.js";
import { numberedLine } from "./lines.js";
import { scoreRow, systemName } from "./names.js";

const FEW = 15; // words of a list before the reader asks for all

/** Shows the words newly right and newly wrong, beside each other. */
export function words(body, { set, pair, show }) {
  const { right, wrong } = set.changes[pair - 1];
  const base = systemName(set, 0);
  body.append(
    el(
      "div",
      { class: "two-lists" },
      list("Newly right", right, show, [systemName(set, pair), " gets them, ", base, " does not"]),
      list("Newly wrong", wrong, show, [systemName(set, 0), " gets them, ", systemName(set, pair), " does not"]),
    ),
  );
}

function list(title, found, show, about) {
  const rows = found.map(({ word, count, reverse, in_references: all, lines }) =>
    scoreRow(
      el("button", { type: "button", class: "word", title: "Show the lines", onclick: () => show({ search: word, whole: true }) }, el("bdi", {}, word)),
      [
        count.toLocaleString("en"),
        reverse.toLocaleString("en"),
        all.toLocaleString("en"),
        el("span", { class: "examples" }, lines.map((line) => numberedLine(line, show))),
      ],
    ),
  );
  rows.slice(FEW).forEach((each) => (each.hidden = true));
  const more = el(
    "button",
    {
      type: "button",
      onclick: () => {
        rows.forEach((each) => (each.hidden = false));
        more.remove();
      },
    },
    `Show all ${rows.length}`,
  );
  return el(
    "div",
    {},
    el("h3", {}, title),
    el("p", { class: "note" }, about),
    found.length
      ? table(title, ["Word", "Times", "Reverse", "In references", "For example line"], rows)
      : el("p", {}, "None."),
    rows.length > FEW ? more : null,
  );
}
