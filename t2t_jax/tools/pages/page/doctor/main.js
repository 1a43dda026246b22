// The page of the doctor command: what is wrong with a text, and where.

import { el, section } from "../common/dom.js";
import { histogram } from "../common/histogram.js";
import { row, table } from "../common/table.js";
import { setLanguages } from "../common/text.js";
import { start } from "../shell/start.js";
import { followTheme, themeButton } from "../shell/theme.js";
import { ruleEntry } from "./rule.js";

start(open);

function open(content) {
  setLanguages(content.languages);
  document.getElementById("header").append(
    el("p", { class: "models" }, content.places.map(placeLine)),
    el("div", { class: "controls" }, openAll(), themeButton()),
  );
  document.getElementById("main").replaceChildren(
    section({ title: "Verdict" }, el("ul", { class: "verdict" }, content.verdict.map((text) => el("li", {}, text)))),
    section({ title: "Rules" }, about(content), ...groups(content)),
    content.stretches.length ? section({ title: "Misaligned stretches" }, stretches(content)) : "",
    section({ title: "The text" }, el("div", { class: "histograms" }, content.histograms.map((each) => histogram(each, { unit: "pairs" }))), figures(content)),
    content.references.length ? section({ title: "Dev and test" }, coverage(content)) : "",
  );
  followTheme();
}

function placeLine({ place, pairs, weight }) {
  const times = weight === 1 ? "" : `, weight ${weight}`;
  return el("span", {}, el("strong", {}, el("bdi", {}, place)), ` ${count(pairs)} pairs${times}`);
}

// One button for all rules that have examples.
function openAll() {
  const button = el("button", { type: "button", "aria-pressed": "false", onclick: press }, "All examples");
  function press() {
    const opened = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(opened));
    for (const details of document.querySelectorAll("details.rule")) details.open = opened;
  }
  return button;
}

function about(content) {
  return el(
    "p",
    { class: "about" },
    `${count(content.accused)} of ${count(content.pairs)} pairs break a rule; `,
    `${count(content.dropped)} would be removed by --fix (rules marked “removed”). `,
    "What is usual was learnt from ",
    `${count(content.sampled)} pairs. Press a rule to see its worst pairs between their neighbours.`,
  );
}

function groups(content) {
  const names = [...new Set(content.rules.map((rule) => rule.group))];
  const widest = Math.max(1e-9, ...content.rules.map((rule) => rule.share));
  return names.map((name) => {
    const rules = content.rules.filter((rule) => rule.group === name);
    const broken = rules.filter((rule) => rule.count);
    const kept = rules.filter((rule) => !rule.count).map((rule) => rule.name);
    return el(
      "div",
      { class: "group" },
      el("h3", {}, name),
      broken.map((rule) => ruleEntry(rule, widest, content.languages)),
      kept.length ? el("p", { class: "kept" }, `No pair: ${kept.join(", ")}`) : "",
    );
  });
}

function stretches(content) {
  const rows = content.stretches.map((stretch) => [
    stretch.corpus,
    `${count(stretch.first)} – ${count(stretch.last)}`,
    stretch.offset
      ? `${Math.abs(stretch.offset)} lines further ${stretch.offset > 0 ? "down" : "up"}`
      : "fits nowhere near",
    stretch.here.toFixed(1).replace("-", "−"),
    stretch.there.toFixed(1).replace("-", "−"),
  ]);
  return table("Misaligned stretches", ["Text", "Lines", "Its targets", "Log-odds here", "There"], rows.map(rowOf));
}

function figures(content) {
  const rows = content.statistics.map(({ name, value, unit }) => [name, `${value.toFixed(2)}${unit}`]);
  return table("Figures", ["Figure", "Value"], rows.map(rowOf));
}

function coverage(content) {
  const rows = content.references.flatMap((reference) =>
    reference.sides.map((side, index) => [
      `${reference.place}.${content.languages[index]}`,
      count(side.words),
      share(side.unseen),
      `${share(side.distinct_unseen)} of ${count(side.distinct)}`,
      side.examples.join(", "),
    ]),
  );
  return table("Dev and test", ["Set", "Words", "Unseen in training", "Of different ones", "Such as"], rows.map(rowOf));
}

const rowOf = ([first, ...cells]) => row(first, cells);

function count(number) {
  return number.toLocaleString("en");
}

function share(value) {
  return `${(100 * value).toFixed(2)}%`;
}
