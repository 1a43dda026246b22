// Scores by bucket: of lines by length, of words by frequency, numbers, names, ...

import { choice, el, svg } from "../common/dom.js";
import { table } from "../common/table.js";
import { interval, isClear, reach } from "./intervals.js";
import { fixed, letter, scoreRow, signed } from "./names.js";

const TITLES = { chrf: "chrF", bleu: "BLEU", f1: "F1", recall: "recall", precision: "precision" };
const chosen = { lines: "chrf", words: "f1" }; // stays when another system is chosen

/** Shows a table of bars for each aspect. */
export function where(body, { set, pair }) {
  const aspects = Object.values(set.aspects);
  const tables = el("div", {});
  const draw = () => tables.replaceChildren(...aspects.map((aspect) => ofAspect(aspect, pair)));
  const choices = ["lines", "words"].flatMap((unit) => {
    const names = aspects.find((aspect) => aspect.unit === unit)?.scores;
    if (!names) return [];
    const press = (index) => {
      chosen[unit] = names[index];
      draw();
    };
    return [el("span", {}, `${unit} by`), choice(`Score of ${unit}`, names.map((name) => TITLES[name]), names.indexOf(chosen[unit]), press)];
  });
  body.append(el("div", { class: "controls" }, choices), tables);
  draw();
}

function ofAspect(aspect, pair) {
  const head = [el("h3", {}, aspect.title)];
  if (aspect.missing) return el("div", { class: "aspect" }, head, el("p", { class: "missing" }, aspect.missing));
  const score = chosen[aspect.unit];
  const differences = aspect.buckets.map(({ differences }) => differences[pair - 1][score]);
  const most = reach(differences);
  const rows = aspect.buckets.map((bucket, i) => {
    const values = [bucket.systems[0][score], bucket.systems[pair][score]];
    const each = differences[i];
    return scoreRow(bucket.name, [
      bucket.count.toLocaleString("en"),
      bars(values),
      ...values.map((value) => fixed(value, 1)),
      el("span", { class: isClear(each) ? "clear" : "" }, signed(each.difference, 1)),
      interval(each, most),
      each.low === null ? "–" : `${signed(each.low, 1)} to ${signed(each.high, 1)}`,
    ]);
  });
  return el(
    "div",
    { class: "aspect" },
    head,
    el("p", { class: "note" }, aspect.about),
    table(
      aspect.title,
      ["", aspect.unit, `${TITLES[score]}, 0 to 100`, letter(0), letter(pair), `${letter(pair)} − ${letter(0)}`, "", "95% interval"],
      rows,
    ),
  );
}

// Two bars, the baseline's above: their order says which is whose, not only colour.
function bars(values) {
  return svg(
    "svg",
    { class: "bars", viewBox: "0 0 200 20", width: 200, height: 20, "aria-hidden": "true" },
    values.map((value, i) => [
      svg("rect", { class: "track", x: 0, y: 1 + 10 * i, width: 200, height: 8 }),
      svg("rect", { class: i ? "other" : "base", x: 0, y: 1 + 10 * i, width: 2 * (value ?? 0), height: 8 }),
    ]),
  );
}
