// Lines side by side: sorted, filtered, searched, twenty at a time.

import { chooser, el } from "../common/dom.js";
import { written } from "../common/text.js";
import { fixed, letter, signed } from "./names.js";

const PAGE = 20;
const SORTS = [
  ["largest gain", (a, b) => b.difference - a.difference],
  ["largest loss", (a, b) => a.difference - b.difference],
  ["largest difference", (a, b) => Math.abs(b.difference) - Math.abs(a.difference)],
  ["lowest chrF", (a, b) => a.lowest - b.lowest],
  ["order of the test set", (a, b) => a.number - b.number],
];
const FILTERS = [
  ["all lines", () => true],
  ["better", ({ difference }) => difference > 0],
  ["worse", ({ difference }) => difference < 0],
  ["equal score, other words", ({ difference, texts }) => difference === 0 && texts[0] !== texts[1]],
];

/** Makes a button that shows a line by its number, from 0. */
export function numberedLine(number, show) {
  return el("button", { type: "button", class: "line-number", onclick: () => show({ line: number }) }, String(number + 1));
}

/** Shows the lines; returns the keys that move among them, and `show(filter)`. */
export function lines(body, { set, pair, announce }) {
  const all = set.sentences.map((sentence) => described(sentence, pair));
  const filters = [...FILTERS, ...signFilters(set, pair)];
  const view = { sort: 0, filter: 0, search: "", whole: false, line: null, page: 0, at: -1 };
  const list = el("ol", { class: "sentences-list" });
  const count = el("p", { class: "note", role: "status" });
  const search = el("input", { type: "search", placeholder: "words of any text", oninput: () => change({ search: search.value, whole: false, line: null }) });
  const sort = chooser("Sort by", SORTS.map(([name]) => name), 0, (index) => change({ sort: index }));
  const filter = chooser("Show", filters.map(([name]) => name), 0, (index) => change({ filter: index, line: null }));
  const turn = (by) => el("button", { type: "button", onclick: () => move(by) }, by < 0 ? "Previous" : "Next");
  const pages = [turn(-1), turn(1)];
  let chosen = all;

  function change(next) {
    Object.assign(view, { page: 0, at: -1 }, next);
    sort.querySelector("select").selectedIndex = view.sort;
    filter.querySelector("select").selectedIndex = view.filter;
    if (search.value !== view.search) search.value = view.search;
    chosen = all.filter(filters[view.filter][1]).filter(matcher(view)).sort((a, b) => SORTS[view.sort][1](a, b) || a.number - b.number);
    draw();
  }
  function draw() {
    const first = view.page * PAGE;
    const shown = chosen.slice(first, first + PAGE);
    list.replaceChildren(...shown.map((line) => sideBySide(line, set, pair)));
    const last = Math.min(chosen.length, first + PAGE);
    const lines = chosen.length === 1 ? "line" : "lines";
    count.textContent = chosen.length
      ? `${first + 1} to ${last} of ${chosen.length.toLocaleString("en")} ${lines}`
      : "No line is like this.";
    if (set.left_out) count.textContent += `; the page leaves out ${set.left_out.toLocaleString("en")} lines of smaller differences`;
    pages[0].disabled = first === 0;
    pages[1].disabled = last >= chosen.length;
  }
  function move(by) {
    const pages = Math.max(1, Math.ceil(chosen.length / PAGE));
    const next = Math.min(pages - 1, Math.max(0, view.page + by));
    if (next === view.page) return;
    Object.assign(view, { page: next, at: -1 });
    draw();
    body.scrollIntoView();
    announce(count.textContent);
  }
  function step(by) {
    const shown = list.children.length;
    if (!shown) return;
    const focused = [...list.children].indexOf(document.activeElement);
    view.at = Math.min(shown - 1, Math.max(0, (focused < 0 ? view.at : focused) + by));
    list.children[view.at].focus();
  }
  function show(next) {
    const named = next.filter === undefined ? 0 : filters.findIndex(([, , name]) => name === next.filter);
    change({ search: "", whole: false, line: null, ...next, filter: Math.max(0, named) });
    document.getElementById("lines").scrollIntoView();
    list.firstElementChild?.focus({ preventScroll: true });
    announce(count.textContent);
  }
  body.append(
    legend(pair),
    el("div", { class: "controls" }, sort, filter, el("label", { class: "chooser" }, "Search", search)),
    el("div", { class: "controls" }, ...pages, count),
    list,
  );
  change({});
  const said = (next) => () => {
    change(next());
    announce(`${SORTS[view.sort][0]}, ${filters[view.filter][0]}: ${count.textContent}`);
  };
  return {
    show,
    keys: {
      j: () => step(1),
      k: () => step(-1),
      "[": () => move(-1),
      "]": () => move(1),
      s: said(() => ({ sort: (view.sort + 1) % SORTS.length })),
      f: said(() => ({ filter: (view.filter + 1) % filters.length, line: null })),
      "/": () => search.focus(),
    },
  };
}

function described(sentence, pair) {
  const text = (parts) => parts.map(([part]) => part).join("");
  const texts = [text(sentence.outputs[0]), text(sentence.outputs[pair])];
  const scores = [sentence.chrf[0], sentence.chrf[pair]];
  const everything = [sentence.source, text(sentence.reference), ...texts];
  return {
    ...sentence,
    texts,
    difference: scores[1] - scores[0],
    lowest: Math.min(...scores),
    searched: everything.join("\n").toLowerCase(),
    // The words that only one of the two gets: "newly right" and "newly wrong".
    changed: new Set(
      sentence.reference
        .filter(([, mark]) => Boolean(mark & 1) !== Boolean(mark & (1 << pair)))
        .map(([part]) => part.trim()),
    ),
  };
}

function signFilters(set, pair) {
  return Object.entries(set.signs)
    .filter(([, sign]) => !sign.missing)
    .map(([name, sign]) => [
      `${sign.title.toLowerCase()}, ${letter(0)} or ${letter(pair)}`,
      ({ signs }) => signs[0].includes(name) || signs[pair].includes(name),
      name,
    ]);
}

function matcher({ search, whole, line }) {
  if (line !== null) return ({ number }) => number === line;
  if (!search) return () => true;
  if (whole) return ({ changed }) => changed.has(search);
  const wanted = search.toLowerCase();
  return ({ searched }) => searched.includes(wanted);
}

function legend(pair) {
  return el(
    "p",
    { class: "legend" },
    el("span", {}, el("span", { class: "wrong" }, "word"), " not in the reference"),
    el("span", {}, el("span", { class: "only" }, "word"), ` right, and the other system lacks it; in the reference the letter, ${letter(0)} or ${letter(pair)}, says who has it`),
    el("span", {}, el("span", { class: "missed" }, "word"), " of the reference that neither has"),
  );
}

// ------------------------------------------------------------
// One line: its source, its reference, and two translations with their words marked.

/** Makes the list item of a line. */
function sideBySide(line, set, pair) {
  const { number, source, reference, outputs, chrf, difference, signs } = line;
  const title = el(
    "p",
    { class: "line-title" },
    el("b", {}, `Line ${number + 1}`),
    el("span", { class: difference > 0 ? "gained" : difference < 0 ? "lost" : "" }, `chrF ${fixed(chrf[0], 1)} → ${fixed(chrf[pair], 1)} (${signed(difference, 1)})`),
  );
  return el(
    "li",
    { class: "sentence", tabindex: -1 },
    title,
    el(
      "dl",
      {},
      entry("source", el("bdi", written("source"), source)),
      entry("reference", marked(reference, (mark) => ofReference(mark, pair))),
      [0, pair].map((s) =>
        entry(
          [el("b", {}, letter(s)), " ", el("bdi", {}, set.systems[s].name)],
          outputs[s].length ? marked(outputs[s], (mark) => ofOutput(mark, s, s ? 0 : pair)) : el("i", {}, "empty"),
          signs[s].map((name) => el("span", { class: "sign-name" }, set.signs[name].title.toLowerCase())),
        ),
      ),
    ),
  );
}

function entry(name, ...text) {
  return [el("dt", {}, name), el("dd", {}, text)];
}

function marked(parts, look) {
  return el(
    "bdi",
    written("target"),
    parts.map(([part, mark]) => {
      const { kind, note } = look(mark);
      if (!kind) return part;
      const word = part.trimStart();
      return [part.slice(0, part.length - word.length), el("span", { class: kind }, word, note ? el("sup", {}, note) : null)];
    }),
  );
}

// A mark's bit s is set if system s has this word right.
function ofOutput(mark, own, other) {
  if (!(mark & (1 << own))) return { kind: "wrong" };
  return mark & (1 << other) ? {} : { kind: "only" };
}

function ofReference(mark, pair) {
  const [base, other] = [mark & 1, mark & (1 << pair)];
  if (!base && !other) return { kind: "missed" };
  if (base && other) return {};
  return { kind: "only", note: letter(base ? 0 : pair) };
}
