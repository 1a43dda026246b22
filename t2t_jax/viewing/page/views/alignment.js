// The word alignment: two lines of words with links, and how much of the source is covered.

import { el } from "../common/dom.js";
import { numbersAsText } from "../common/numbers.js";
import { number } from "../common/text.js";
import { strongest } from "./attention_maps.js";
import { isolated, linkLayer, tokenLine } from "./token_lines.js";

const FULL_BAR = 2; // words of the output that fill a coverage bar
const WIDEST_LINK = 7; // pixels of a link of weight 1
const LEAST_LINK = 0.1; // weaker links are drawn only for the word pointed at
const LEAST_POINTED = 0.02;
const MOST_POINTED = 8;
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
  const sources = context.entry.source_word_texts;
  const targets = context.reading.word_texts;
  const weights = rowsOfTensor(await context.array(alignment.weights));
  const columnOf = (s) => weights.map((row) => row[s]);
  const linked = new Set(alignment.links.map(([s, t]) => `${s} ${t}`));
  const holder = el("div", { class: "linked-lines alignment" });
  const note = el("p", { class: "arcs-note" });
  const visit = (isSource) => (index, focused) => {
    point(isSource, index);
    if (focused) context.announce(note.textContent);
  };
  const lineOf = (name, isSource, texts, more) => {
    const line = tokenLine({ name, texts, visit: visit(isSource), leave: rest, ...more });
    line.element.dataset.line = isSource ? "source" : "target";
    return line;
  };
  const source = lineOf("Source words", true, sources, {
    below: (s) => coverageOf(alignment, s),
    pick: (s) => visit(true)(s, true),
  });
  const target = lineOf("Words of the output", false, targets, {
    pick: (t) => context.selection.set(context.reading.words.indexOf(t)),
  });
  markWords(source.tokens, alignment);
  holder.append(source.element, target.element);
  const layer = linkLayer(holder, () => holder.classList.contains("as-columns"));

  function linksOf(pairs) {
    return pairs.map(([s, t]) => ({
      from: source.tokens[s],
      to: target.tokens[t],
      width: Math.max(1, WIDEST_LINK * weights[t][s]),
      className: linked.has(`${s} ${t}`) ? "aligned" : "other",
    }));
  }
  const strong = linksOf([
    ...alignment.links,
    ...weights.flatMap((row, t) =>
      strongest(row, row.length, LEAST_LINK)
        .map(([s]) => [s, t])
        .filter(([s]) => !linked.has(`${s} ${t}`)),
    ),
  ]);
  function point(isSource, index) {
    mark(isSource ? source : target, index);
    const [texts, values] = isSource ? [targets, columnOf(index)] : [sources, weights[index]];
    const top = strongest(values, MOST_POINTED, LEAST_POINTED);
    const here = isolated((isSource ? sources : targets)[index]);
    const list = weightsAsText(top, texts) || "no word";
    note.textContent = isSource
      ? `${here} is read for ${list}; ${coverageText(alignment, index)}`
      : `${here} reads ${list}`;
    layer.draw(linksOf(top.map(([other]) => (isSource ? [index, other] : [other, index]))));
  }
  function rest() {
    markSelected();
    note.textContent = coverageSummary(alignment, sources);
    layer.draw(strong);
  }
  function markSelected() {
    mark(target, context.reading.words[context.selection.position]);
  }
  function mark(line, index) {
    for (const token of [...source.tokens, ...target.tokens]) token.classList.remove("at");
    line.tokens[index]?.classList.add("at");
  }
  root.append(
    el("p", { class: "about" }, ABOUT_ALIGNMENT, ` The attention is that of layer ${alignment.layer + 1}.`),
    el("div", { class: "scroll" }, holder),
    note,
    tableOfSources(alignment, sources, targets, columnOf),
    tableOfTargets(sources, targets, weights),
  );
  linesOrColumns(holder, [source, target]);
  rest();
  context.selection.listen(markSelected);
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
    marksOf(alignment, s).map((name) => el("span", { class: "coverage-mark" }, COVERAGE_MARKS[name])),
  ];
}

function marksOf(alignment, s) {
  return Object.keys(COVERAGE_MARKS).filter((name) => alignment[name].includes(s));
}

function markWords(tokens, alignment) {
  tokens.forEach((token, s) => {
    for (const name of marksOf(alignment, s)) token.classList.add(name);
    token.setAttribute("aria-label", `${token.firstChild.textContent}, ${coverageText(alignment, s)}`);
  });
}

function coverageText(alignment, s) {
  return [`coverage ${number(alignment.coverage[s])}`, ...marksOf(alignment, s)].join(", ");
}

function coverageSummary(alignment, sources) {
  return Object.keys(COVERAGE_MARKS)
    .map((name) => {
      const words = alignment[name].map((s) => isolated(sources[s]));
      return `${name[0].toUpperCase()}${name.slice(1)}: ${words.join(", ") || "no word"}.`;
    })
    .join(" ");
}

function tableOfSources(alignment, sources, targets, columnOf) {
  return numbersAsText("Source words", ["source word", "coverage", "mark", "linked to", "read for"], () =>
    sources.map((word, s) => [
      word,
      alignment.coverage[s],
      marksOf(alignment, s).join(", "),
      alignment.links.filter(([from]) => from === s).map(([, t]) => isolated(targets[t])).join(", "),
      strongestWords(columnOf(s), targets),
    ]),
  );
}

function tableOfTargets(sources, targets, weights) {
  return numbersAsText("Words of the output", ["word", "reads"], () =>
    targets.map((word, t) => [word, strongestWords(weights[t], sources)]),
  );
}

function strongestWords(values, texts) {
  return weightsAsText(strongest(values, MOST_POINTED, LEAST_POINTED), texts);
}

function weightsAsText(top, texts) {
  return top.map(([other, weight]) => `${isolated(texts[other])} ${number(weight)}`).join(", ");
}
