// The attention maps: a grid of all heads, and one map of any of them, enlarged.

import { choice, el } from "../common/dom.js";
import { heatmap } from "../common/heatmap.js";
import { sequential } from "../common/colours.js";
import { numbersAsText } from "../common/numbers.js";
import { number, shownPieces } from "../common/text.js";
import { arcsFigure } from "./attention_arcs.js";
import { headGrid, nameOfHead } from "./attention_grid.js";
import {
  cellOfMap,
  colourShare,
  combinedMap,
  largestOf,
  mapOf,
  rowOfMap,
  strongest,
  unitsOf,
} from "./attention_maps.js";
import { isolated } from "./token_lines.js";

const ATTENTIONS = [
  {
    name: "cross",
    button: "Cross",
    title: "cross attention",
    about: "Each row is a token of the output; its columns are what it reads of the source.",
    lines: ["Source", "Output: what each token reads of the source"],
  },
  {
    name: "encoder",
    button: "Encoder",
    title: "encoder's self-attention",
    about: "Each row is a token of the source; its columns are what it reads of the source.",
    lines: ["Source", "Source: what each token reads of its sentence"],
  },
  {
    name: "decoder",
    button: "Decoder",
    title: "decoder's self-attention",
    about:
      "Each row is a token of the output as it is predicted; its columns are the tokens " +
      "before it, which are all that the decoder has read by then.",
    lines: ["Output as the decoder reads it", "Output as it is predicted"],
  },
];

const MAPS = [
  { name: "head", title: "One head" },
  { name: "mean", title: "Mean of checked" },
  { name: "maximum", title: "Maximum of checked" },
  { name: "rollout", title: "Rollout (approximate)" },
];

const ABOUT_ROLLOUT =
  "Rollout follows attention through all layers: what a layer returns counts as half its " +
  "input, by the residual connection, and half the mean of its heads. It is approximate: " +
  "values, feed-forward layers and normalization are left out, so it says where " +
  "information could have come from, not where it did.";
const ABOUT_HEADS =
  "Entropy is the mean over the rows, in bits: 0 when a head reads one position, more when " +
  "it reads many. Offset is the mean distance from the reading position to the one read; " +
  "peak is the mean place of a row's largest weight, from 0, the first token, to 1, the " +
  "last. Each map's strongest colour is its own " +
  "largest weight; colours follow the square root, so that weak weights can be seen.";
const KEYS_IN_TABLE = 5; // of each row
const LARGE = 40; // rows or columns of a map with smaller cells

// What was chosen for each model stays when another sentence is shown.
const mapChoices = new WeakMap();

/** Draws the attention maps. */
export function attentionView(root, context) {
  if (!mapChoices.has(context.model)) {
    const present = ATTENTIONS.findIndex(({ name }) => !context.reading.attention[name].missing);
    const kind = Math.max(0, present);
    mapChoices.set(context.model, { kind, shown: 1, byWords: false, head: [0, 0], checked: {} });
  }
  const state = mapChoices.get(context.model);
  // `rest` shows the selected piece in the figure that is there now.
  const view = { context, state, body: el("div"), rest: () => {} };
  const kinds = choice("Attention", ATTENTIONS.map((kind) => kind.button), state.kind, (index) => {
    state.kind = index;
    showKind(view);
  });
  kinds.dataset.choice = "attention";
  root.append(el("div", { class: "controls" }, kinds), view.body);
  context.selection.listen(() => view.rest());
  return showKind(view);
}

function showKind(view) {
  const { context, state, body } = view;
  const kind = ATTENTIONS[state.kind];
  view.rest = () => {};
  const attention = context.reading.attention[kind.name];
  if (attention.missing) {
    const why = { class: "missing", "data-missing": kind.name };
    body.replaceChildren(el("p", why, attention.missing));
    return null;
  }
  const names = attention.entropy.flatMap((layer, l) => layer.map((_, h) => nameOfHead(l, h)));
  const checked = (state.checked[kind.name] ??= new Set(names));
  if (!names.includes(nameOfHead(...state.head))) state.head = [0, 0];
  const controls = el("div", { class: "controls" });
  const figure = el("div", { class: "attention-map" });
  const grid = headGrid({
    attention,
    title: kind.title,
    checked,
    enlarge: (layer, head) => update({ shown: 0, head: [layer, head] }),
    check: () => update({ shown: state.shown === 2 ? 2 : 1 }),
  });
  body.replaceChildren(
    el("p", { class: "about" }, kind.about),
    grid.element,
    el("p", { class: "about" }, ABOUT_HEADS),
    controls,
    figure,
  );
  const weights = context.array(attention.weights);
  let latest = 0;
  async function update(change) {
    const mine = (latest += 1);
    const wanted = () => mine === latest; // a change while a map is computed replaces it
    Object.assign(state, change);
    attentionControls(controls, state, update);
    if (state.shown === 0) grid.show(...state.head);
    else grid.show(null, null);
    const units = unitsOfReading(context, kind, state.byWords);
    const shown = await mapShown(view, kind, await weights, units, wanted);
    if (wanted()) figure.replaceChildren(...enlargedMap(view, kind, shown, units));
  }
  const done = update({});
  weights.then((tensor) => body.contains(grid.element) && grid.draw(tensor));
  return done;
}

function attentionControls(controls, state, update) {
  const shown = choice("Map", MAPS.map((each) => each.title), state.shown, (index) =>
    update({ shown: index }),
  );
  const units = choice("Units", ["Tokens", "Words"], Number(state.byWords), (index) =>
    update({ byWords: index === 1 }),
  );
  shown.dataset.choice = "map";
  units.dataset.choice = "units";
  const focused = controls.contains(document.activeElement) && document.activeElement.textContent;
  controls.replaceChildren(shown, units);
  if (focused)
    [...controls.querySelectorAll("button")].find((each) => each.textContent === focused).focus();
}

/** Returns the units of a kind's queries and keys. */
function unitsOfReading({ entry, reading }, kind, byWords) {
  const source = () =>
    unitsOf(shownPieces(entry.source), byWords && entry.source_words, entry.source_word_texts);
  const pieces = shownPieces(reading.pieces);
  const words = byWords && reading.words;
  const target = () => unitsOf(pieces, words, reading.word_texts);
  if (kind.name === "encoder") return { queries: source(), keys: source() };
  if (kind.name === "cross") return { queries: target(), keys: source() };
  // The decoder reads the pieces shifted by one, after the piece that starts a sentence.
  const read = ["<s>", ...pieces.slice(0, -1)];
  const wordsRead = words && [-1, ...words.slice(0, -1)];
  return { queries: target(), keys: unitsOf(read, wordsRead, reading.word_texts) };
}

// The map to be shown: {map, title, note} or {title, missing}.
async function mapShown({ context, state }, kind, weights, units, wanted) {
  const { queries, keys } = units;
  const { name, title } = MAPS[state.shown];
  if (name === "rollout") {
    const { rollout } = context.reading;
    if (rollout.missing) return { title, missing: rollout.missing };
    const tensor = await context.array(rollout[kind.name]);
    const map = mapOf((i) => tensor.row(i), queries, keys);
    return { map, title: `${title} of the ${kind.title}`, note: ABOUT_ROLLOUT };
  }
  if (name === "head") {
    const [layer, head] = state.head;
    const map = mapOf((i) => weights.row(layer, head, i), queries, keys);
    return { map, title: `Layer ${layer + 1}, head ${head + 1} of the ${kind.title}` };
  }
  const heads = [...state.checked[kind.name]].map((each) => each.split(".").map(Number));
  if (!heads.length) return { title, missing: "no head is checked" };
  const map = await combinedMap(weights, heads, name === "maximum", units, wanted);
  const count = heads.length === 1 ? "1 head" : `${heads.length} heads`;
  return {
    map,
    title: `${name === "mean" ? "Mean" : "Maximum"} of ${count} of the ${kind.title}`,
    note: name === "maximum" ? "A row of maxima does not sum to 1." : null,
  };
}

// The arcs, the heat map and the table of one map.
function enlargedMap(view, kind, { map, title, note, missing }, { queries, keys }) {
  const { context } = view;
  const heading = el("h3", { "data-map": title }, title);
  if (missing) return [heading, el("p", { class: "missing" }, missing)];
  const isTarget = kind.name !== "encoder";
  // Of keys and queries.
  const sides = [kind.name === "decoder" ? "target" : "source", isTarget ? "target" : "source"];
  const resting = () => (isTarget ? queries.of[context.selection.position] : null);
  const choose = (query) => isTarget && context.selection.set(queries.of.indexOf(query));
  const arcs = arcsFigure({
    map,
    queries: queries.labels,
    keys: keys.labels,
    names: kind.lines,
    sides,
    within: !isTarget,
    announce: context.announce,
    choose,
    resting,
  });
  const most = largestOf(map.values);
  const cells = heatmap({
    title,
    rows: queries.labels,
    columns: keys.labels,
    sides,
    value: (i, j) => colourShare(cellOfMap(map, i, j), most),
    describe: (i, j) => weightAsText(queries, keys, map, i, j),
    makeScale: sequential,
    announce: context.announce,
    enter: (i) => arcs.show(i),
    leave: arcs.rest,
    choose,
  });
  cells.element.classList.toggle("large", Math.max(map.rows, map.columns) > LARGE);
  view.rest = () => {
    arcs.rest();
    const query = resting();
    if (query !== null) cells.mark(query, strongest(rowOfMap(map, query), 1)[0]?.[0] ?? 0);
  };
  view.rest();
  const table = numbersAsText(title, ["reads", "entropy, bits", "strongest"], () =>
    queries.labels.map((query, i) => rowAsText(query, rowOfMap(map, i), keys)),
  );
  const about = note ? [el("p", { class: "about" }, note)] : [];
  return [heading, ...about, arcs.element, cells.element, table];
}

function weightAsText(queries, keys, map, i, j) {
  const [query, key] = [isolated(queries.labels[i]), isolated(keys.labels[j])];
  return `${query} attends to ${key}: ${number(cellOfMap(map, i, j))}`;
}

function rowAsText(query, row, keys) {
  const total = row.reduce((sum, weight) => sum + weight, 0) || 1;
  const entropy = row.reduce(
    (sum, weight) => (weight > 0 ? sum - (weight / total) * Math.log2(weight / total) : sum),
    0,
  );
  const top = strongest(row, KEYS_IN_TABLE).map(
    ([key, weight]) => `${isolated(keys.labels[key])} ${number(weight)}`,
  );
  return [query, entropy, top.join(", ")];
}
