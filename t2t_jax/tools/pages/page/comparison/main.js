// The page of the compare command: several systems' translations of the same lines.

import { announce, choice, chooser, el, section } from "../common/dom.js";
import { setLanguages } from "../common/text.js";
import { contents } from "../shell/contents.js";
import { helpButton, isShortcut, openHelp } from "../shell/keys.js";
import { start } from "../shell/start.js";
import { followTheme, themeButton } from "../shell/theme.js";
import { lines } from "./lines.js";
import { gains, scores } from "./scores.js";
import { signs } from "./signs.js";
import { systemName } from "./names.js";
import { where } from "./where.js";
import { words } from "./words.js";

const KEYS = [
  ["Tab", "next control"],
  ["1 to 6", "go to a part of the page"],
  ["j and k", "next and previous line"],
  ["[ and ]", "previous and next twenty lines"],
  ["s", "sort the lines in the next way"],
  ["f", "choose lines by the next filter"],
  ["/", "search the lines"],
  ["c", "compare the next system with the baseline"],
  ["?", "show this list"],
];

// A part is a function (body, context) and a line here; it may return functions by key.
const PARTS = [
  ["scores", "Scores", "Each system, and its difference to the first, the baseline. Intervals hold 95% of a bootstrap's samples; p is how often chance alone makes a difference as large.", scores],
  ["histogram", "Line by line", "Differences of sentence chrF: how many lines gained or lost how much.", gains],
  ["where", "Where", "The same comparison in parts of the test set. An interval that does not reach 0 is unlikely to be chance; of twenty such intervals, one is expected to miss 0 by chance.", where],
  ["words", "Words", "Words of the references that only one of the two systems gets. Choose a word to see its lines.", words],
  ["signs", "Signs of hallucination and omission", "Indications from the text alone, not proofs. The references show some of them, too, so their column stands beside those of the systems. A line is listed if it shows a sign more often than its reference does.", signs],
  ["lines", "Side by side", "Each line with its source, its reference and both translations.", lines],
];

const state = { set: 0, pair: 1 };
let page; // the document
let keys = {}; // those of the parts that are shown
let jump; // shows the lines of a filter

start(open);

function open(found) {
  page = found;
  const parts = PARTS.map(([id, title, about, part]) => {
    const body = el("div", { class: "part" });
    return { id, title, part, body, element: section({ id, title, about }, body) };
  });
  const main = document.getElementById("main");
  main.before(contents(parts, [themeButton(), helpButton(KEYS)]));
  main.replaceChildren(...parts.map(({ element }) => element));
  followTheme();
  document.addEventListener("keydown", pressed);

  function render() {
    const set = page.sets[state.set];
    setLanguages(set.languages);
    if (state.pair >= set.systems.length) state.pair = 1;
    const context = { set, pair: state.pair, show: (filter) => jump(filter), announce };
    document.getElementById("header").replaceChildren(
      document.querySelector("h1"),
      ...controls(set, change),
    );
    keys = {};
    for (const { body, part } of parts) {
      body.replaceChildren();
      const own = part(body, context) ?? {};
      if (own.show) jump = own.show;
      keys = { ...keys, ...own.keys };
    }
  }
  function change(next) {
    Object.assign(state, next);
    render();
    const set = page.sets[state.set];
    announce(`${set.name}: ${set.systems[state.pair].name} against ${set.systems[0].name}`);
  }
  keys = {};
  render();

  function pressed(event) {
    if (!isShortcut(event)) return;
    const { key } = event;
    const count = page.sets[state.set].systems.length - 1;
    if (key === "?") openHelp(KEYS);
    else if (key === "c" && count > 1) change({ pair: (state.pair % count) + 1 });
    else if (/^[1-9]$/.test(key)) document.querySelectorAll("nav a")[Number(key) - 1]?.click();
    else if (key in keys) {
      event.preventDefault();
      keys[key]();
    }
  }
}

// Which test set, and which system is compared with the baseline.
function controls(set, change) {
  const training = set.training.missing
    ? `no training text: ${set.training.missing}`
    : `training text: ${set.training.pairs.toLocaleString("en")} pairs${
        set.training.counted < set.training.pairs
          ? `, of which ${set.training.counted.toLocaleString("en")} are counted`
          : ""
      }`;
  const others = set.systems.slice(1).map((_, index) => systemName(set, index + 1));
  return [
    el("p", { class: "models" }, `${set.name}${set.domain && ` (${set.domain} domain)`}, ${set.direction}, ${set.lines.toLocaleString("en")} lines · ${training}`),
    el(
      "div",
      { class: "controls" },
      page.sets.length > 1
        ? chooser("Test set", page.sets.map(({ name }) => name), state.set, (index) => change({ set: index }))
        : null,
      el("span", {}, systemName(set, 0), " is compared with"),
      others.length > 1
        ? choice("Compared with the baseline", others, state.pair - 1, (index) => change({ pair: index + 1 }))
        : others[0],
    ),
  ];
}
