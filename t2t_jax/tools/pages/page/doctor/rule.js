// One rule: how many pairs break it, and its worst pairs between their neighbours.

import { el } from "../common/dom.js";
import { row, table } from "../common/table.js";
import { written } from "../common/text.js";

// As `visible` of common/text.js, but spaces stay spaces: these are whole lines.
const UNSEEN =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ue000-\uf8ff]/u;

/** Makes the entry of a rule; `widest` is the share whose bar fills the width. */
export function ruleEntry(rule, widest, languages) {
  const percent = 100 * rule.share;
  const shown = percent && percent < 0.01 ? "<0.01%" : `${percent.toFixed(2)}%`;
  const limits = Object.entries(rule.limits).map(([name, value]) => `${rule.name}.${name}=${value}`);
  return el(
    "details",
    { class: "rule" },
    el(
      "summary",
      {},
      el("span", { class: "rule-count" }, rule.count.toLocaleString("en")),
      el("span", { class: "rule-share" }, shown),
      el("span", { class: "bar-track", "aria-hidden": "true" },
        el("span", { class: "rule-bar", style: { width: `${(100 * rule.share) / widest}%` } })),
      el("span", {}, el("strong", {}, rule.name), ` pairs ${rule.description}`),
      rule.drops ? el("span", { class: "removed" }, "removed") : "",
    ),
    el(
      "p",
      { class: "kept" },
      `${rule.alone.toLocaleString("en")} of them break no other rule.`,
      limits.length ? ` Thresholds: ${limits.join(", ")}.` : "",
    ),
    rule.examples.map((example) => exampleTable(example, languages)),
  );
}

function exampleTable(example, languages) {
  const rows = example.lines.map(([line, source, target]) =>
    row(
      `${line === example.line ? "▶ " : ""}${line.toLocaleString("en")}`,
      [lineText(source, "source"), lineText(target, "target")],
      { class: line === example.line ? "accused" : null },
    ),
  );
  const place = `${example.corpus}, line ${example.line.toLocaleString("en")}`;
  return el(
    "div",
    { class: "example" },
    el("p", { class: "kept" }, el("bdi", {}, place), ": ", lineText(example.note)),
    table(place, ["Line", ...languages], rows),
  );
}

// Characters that nobody sees are spelled, in a box.
function lineText(text, side) {
  const parts = [];
  let plain = "";
  for (const character of text) {
    if (!UNSEEN.test(character)) {
      plain += character;
      continue;
    }
    const code = character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    parts.push(plain, el("span", { class: "unseen-character" }, `U+${code}`));
    plain = "";
  }
  return el("bdi", written(side), ...parts, plain);
}
