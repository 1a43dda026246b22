// The word alignment: two lines of words with links, and how much of the source is covered.

import { el } from "../common/dom.js";
import { numbersAsText } from "../common/numbers.js";
import { number } from "../common/text.js";
import { strongest } from "./attention_maps.js";
import { isolated, tokenLine } from "./token_lines.js";
import { linkLayer } from "./token_marks.js";

const FULL_BAR = 2; // words of the output that fill a coverage bar
const WIDEST_LINK = 7; // pixels of a link of weight 1
const LEAST_LINK = 0.1; // weaker links are drawn only for the word pointed at
const LEAST_POINTED = 0.02;
const MOST_POINTED = 8;
const MOST_LISTED = 8; // words in the note, which stays in sight
const COVERAGE_MARKS = { dropped: "✕ dropped", repeated: "×2 repeated" };

const ABOUT_ALIGNMENT =
  "A link's width is the attention of a word of the output to a word of the source; full " +
  "lines are the alignment, broken ones what else is read. The bar under a source word is " +
  "its coverage: the attention it gets from all words of the output; the mark in the bar's " +
  "middle is that of one word.";

/** Draws the word alignment. */
export async function alignmentView(root, context) {
  const { alignment } = context.reading;
  if (alignment.missing) {
    root.append(el("p", { class: "missing", "data-missing": "alignment" }, alignment.missing));
    return;
  }
  const view = {
    context,
    alignment,
    texts: { source: context.entry.source_word_texts, target: context.reading.word_texts },
    weights: rowsOfTensor(await context.array(alignment.weights)),
    linked: new Set(alignment.links.map(([s, t]) => `${s} ${t}`)),
    note: el("p", { class: "arcs-note" }),
  };
  const holder = el("div", { class: "linked-lines alignment" });
  const about = `${ABOUT_ALIGNMENT} The attention is that of layer ${alignment.layer + 1}.`;
  root.append(
    el("p", { class: "about" }, about),
    el("div", { class: "scroll" }, holder),
    view.note,
    tableOfSources(view),
    tableOfTargets(view),
  );
  linkWords(view, holder);
}

function linkWords(view, holder) {
  const { context, alignment, note } = view;
  const lineOf = (side, name, more) => {
    const visit = (index, focused) => {
      point(side, index);
      if (focused) context.announce(note.textContent);
    };
    const line = tokenLine({ name, side, texts: view.texts[side], visit, leave: rest, ...more });
    line.element.dataset.line = side;
    holder.append(line.element);
    return line;
  };
  const source = lineOf("source", "Source words", {
    below: (s) => coverageOf(alignment, s),
    pick: (s) => point("source", s),
  });
  const target = lineOf("target", "Words of the output", {
    pick: (t) => context.selection.set(context.reading.words.indexOf(t)),
  });
  const lines = { source, target };
  const layer = linkLayer(holder, () => holder.classList.contains("as-columns"));
  const strong = linksOf(view, lines, strongPairs(view));

  function point(side, index) {
    const top = strongest(weightsOfWord(view, side, index), MOST_POINTED, LEAST_POINTED);
    mark(side, index);
    note.textContent = describeWord(view, side, index, top);
    const pairs = top.map(([other]) => (side === "source" ? [index, other] : [other, index]));
    layer.draw(linksOf(view, lines, pairs));
  }
  function rest() {
    markSelected();
    note.textContent = coverageSummary(view);
    layer.draw(strong);
  }
  function markSelected() {
    mark("target", context.reading.words[context.selection.position]);
  }
  function mark(side, index) {
    for (const token of [...source.tokens, ...target.tokens]) token.classList.remove("at");
    lines[side].tokens[index]?.classList.add("at");
  }
  markWords(source.tokens, alignment);
  linesOrColumns(holder, [source, target]);
  rest();
  context.selection.listen(markSelected);
}

// The alignment's links, and what else is read more than a little.
function strongPairs({ alignment, weights, linked }) {
  const others = weights.flatMap((row, t) =>
    strongest(row, row.length, LEAST_LINK)
      .map(([s]) => [s, t])
      .filter(([s]) => !linked.has(`${s} ${t}`)),
  );
  return [...alignment.links, ...others];
}

function linksOf({ weights, linked }, { source, target }, pairs) {
  return pairs.map(([s, t]) => ({
    from: source.tokens[s],
    to: target.tokens[t],
    width: Math.max(1, WIDEST_LINK * weights[t][s]),
    className: linked.has(`${s} ${t}`) ? "aligned" : "other",
  }));
}

function weightsOfWord({ weights }, side, index) {
  return side === "source" ? weights.map((row) => row[index]) : weights[index];
}

function describeWord({ alignment, texts }, side, index, top) {
  const here = isolated(texts[side][index]);
  const list = weightsAsText(top, texts[side === "source" ? "target" : "source"]) || "no word";
  return side === "source"
    ? `${here} is read for ${list}; ${coverageText(alignment, index)}`
    : `${here} reads ${list}`;
}

function rowsOfTensor(tensor) {
  return Array.from({ length: tensor.shape[0] }, (_, t) => tensor.row(t));
}

// Two lines where both fit, and two columns where they do not: on a telephone, or with
// long sentences, where links between lines that wrap would cross the text.
function linesOrColumns(holder, lines) {
  let width = 0;
  const fit = () => {
    const now = holder.parentNode.clientWidth;
    if (now === width) return;
    width = now;
    holder.classList.remove("as-columns");
    const wide = lines.some(({ element }) => element.scrollWidth > width);
    holder.classList.toggle("as-columns", wide);
  };
  fit();
  new ResizeObserver(fit).observe(holder.parentNode);
}

function coverageOf(alignment, s) {
  const share = Math.min(1, alignment.coverage[s] / FULL_BAR);
  return [
    el(
      "span",
      { class: "coverage-bar", "aria-hidden": "true" },
      el("span", { class: "coverage", style: { width: `${100 * share}%` } }),
    ),
    el("span", { class: "coverage-number", "data-coverage": s }, number(alignment.coverage[s], 2)),
    marksOf(alignment, s).map((name) =>
      el("span", { class: "coverage-mark" }, COVERAGE_MARKS[name]),
    ),
  ];
}

function marksOf(alignment, s) {
  return Object.keys(COVERAGE_MARKS).filter((name) => alignment[name].includes(s));
}

function markWords(tokens, alignment) {
  tokens.forEach((token, s) => {
    for (const name of marksOf(alignment, s)) token.classList.add(name);
    const word = token.firstChild.textContent;
    token.setAttribute("aria-label", `${word}, ${coverageText(alignment, s)}`);
  });
}

function coverageText(alignment, s) {
  return [`coverage ${number(alignment.coverage[s])}`, ...marksOf(alignment, s)].join(", ");
}

function coverageSummary({ alignment, texts }) {
  return Object.keys(COVERAGE_MARKS)
    .map((name) => {
      const words = alignment[name].slice(0, MOST_LISTED).map((s) => isolated(texts.source[s]));
      const more = alignment[name].length - words.length;
      const list = words.join(", ") || "no word";
      return `${name[0].toUpperCase()}${name.slice(1)}: ${list}${more ? ` and ${more} more` : ""}.`;
    })
    .join(" ");
}

function tableOfSources(view) {
  const { alignment, texts } = view;
  const columns = ["source word", "coverage", "mark", "linked to", "read for"];
  const linkedTo = (s) => alignment.links.filter(([from]) => from === s).map(([, t]) => t);
  return numbersAsText("Source words", columns, () =>
    texts.source.map((word, s) => [
      word,
      alignment.coverage[s],
      marksOf(alignment, s).join(", "),
      linkedTo(s).map((t) => isolated(texts.target[t])).join(", "),
      strongestWords(weightsOfWord(view, "source", s), texts.target),
    ]),
  );
}

function tableOfTargets({ texts, weights }) {
  return numbersAsText("Words of the output", ["word", "reads"], () =>
    texts.target.map((word, t) => [word, strongestWords(weights[t], texts.source)]),
  );
}

function strongestWords(values, texts) {
  return weightsAsText(strongest(values, MOST_POINTED, LEAST_POINTED), texts);
}

function weightsAsText(top, texts) {
  return top.map(([other, weight]) => `${isolated(texts[other])} ${number(weight)}`).join(", ");
}
