// Gradient times input of one piece: what raised its log probability, and what lowered it.

import { css, diverging, whenColoursChange } from "../common/colours.js";
import { choice, chooser, el } from "../common/dom.js";
import { numbersAsText } from "../common/numbers.js";
import { number, shownPieces } from "../common/text.js";
import { largestOf } from "./attention_maps.js";
import { isolated, tokenLine } from "./token_lines.js";
import { shadeTokens } from "./token_marks.js";

const ABOUT_ATTRIBUTION =
  "Gradient times input is a first guess at each token's share: the slope of the log " +
  "probability along the token's embedding, times the embedding. It holds for small " +
  "changes; it is not what would happen without the token, and where the model is sure it " +
  "can be near 0 for a token that matters. With a rival, the slope is that of the token's log " +
  "probability less the rival's. The start of the output, which is read first, is left out.";

const contrastShown = new WeakSet(); // the models of which the contrast is shown

/** Draws the attribution of the selected piece. */
export async function attributionView(root, context) {
  const { attribution } = context.reading;
  if (attribution.missing) {
    root.append(el("p", { class: "missing", "data-missing": "attribution" }, attribution.missing));
    return;
  }
  const arrays = await Promise.all(
    ["source", "target", "source_contrast", "target_contrast"].map((name) =>
      context.array(attribution[name]),
    ),
  );
  const view = {
    context,
    arrays,
    texts: {
      source: shownPieces(context.entry.source),
      target: shownPieces(context.reading.pieces),
    },
    title: el("h3"),
    totals: el("p"),
    legend: el("p", { class: "legend" }),
    table: el("div"),
  };
  view.tokens = { source: pieceLine(view, "source"), target: pieceLine(view, "target") };
  const controls = attributionControls(view);
  root.append(
    el("p", { class: "about" }, ABOUT_ATTRIBUTION),
    controls.element,
    view.title,
    view.totals,
    el("p", { class: "line-name" }, "Source"),
    view.tokens.source[0].parentNode,
    el("p", { class: "line-name" }, "Output: what was read before the token"),
    view.tokens.target[0].parentNode,
    view.legend,
    view.table,
  );
  whenColoursChange(root, () => showPosition(view));
  context.selection.listen(() => {
    controls.follow();
    showPosition(view);
  });
}

// A line of pieces with room for their values; the output's choose the position.
function pieceLine({ context, texts }, part) {
  const { element, tokens } = tokenLine({
    name: part === "source" ? "Source" : "Output",
    side: part,
    texts: texts[part],
    below: () => el("span", { class: "token-value" }),
    pick: part === "target" ? (t) => context.selection.set(t) : null,
  });
  element.dataset.line = part;
  return tokens;
}

function attributionControls(view) {
  const { model, reading, selection } = view.context;
  const computed = new Set(reading.attribution.positions);
  const names = view.texts.target.map(
    (piece, t) => `${t + 1}: ${isolated(piece)}${computed.has(t) ? "" : " (not computed)"}`,
  );
  const positions = chooser("Token", names, selection.position, (t) => selection.set(t));
  positions.dataset.choice = "position";
  const contrast = choice(
    "Question",
    ["Why this token", "Why this and not its rival"],
    Number(contrastShown.has(model)),
    (index) => {
      if (index) contrastShown.add(model);
      else contrastShown.delete(model);
      showPosition(view);
    },
  );
  contrast.dataset.choice = "contrast";
  const follow = () => (positions.querySelector("select").selectedIndex = selection.position);
  return { element: el("div", { class: "controls" }, positions, contrast), follow };
}

function showPosition(view) {
  const { context, arrays, texts, tokens, title, totals } = view;
  const { position } = context.selection;
  const { positions, rivals } = context.reading.attribution;
  const row = positions.indexOf(position);
  const contrast = contrastShown.has(context.model);
  const [ofSource, ofTarget] = contrast ? arrays.slice(2) : arrays;
  const values = { source: [], target: [] };
  if (row >= 0)
    Object.assign(values, {
      source: ofSource.row(row),
      target: ofTarget.row(row).slice(0, position), // later pieces were not read
    });
  title.textContent = attributionTitle(texts.target[position], contrast ? rivals[row] : null);
  title.dataset.attribution = position;
  totals.className = row < 0 ? "missing" : "attribution-totals";
  totals.textContent = row < 0 ? notComputed(positions) : totalsOf(values);
  const most = largestOf([...values.source, ...values.target]);
  for (const part of ["source", "target"]) shadeByValue(tokens[part], values[part], most);
  tokens.target.forEach((token, t) => {
    token.classList.toggle("at", t === position);
    token.classList.toggle("unread", t > position);
    token.setAttribute("aria-current", String(t === position));
  });
  view.legend.replaceChildren(...(row < 0 ? [] : attributionLegend(most)));
  const table = tableOfValues(title.textContent, values, texts);
  const wasOpen = view.table.querySelector("details")?.open;
  view.table.replaceChildren(...(row < 0 ? [] : [table]));
  table.open = wasOpen;
}

function attributionTitle(piece, rival) {
  const why = `Why ${isolated(piece)}`;
  return rival ? `${why} and not ${isolated(shownPieces([rival])[0])}?` : `${why}?`;
}

function notComputed(positions) {
  const known = positions.map((t) => t + 1).join(", ");
  return `the attribution of this token was not computed. It was for the tokens ${known}.`;
}

function totalsOf({ source, target }) {
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const [ofSource, ofTarget] = [signed(sum(source)), signed(sum(target))];
  return `The source adds ${ofSource}, the tokens read before it ${ofTarget}.`;
}

function signed(value) {
  return (value > 0 ? "+" : "") + number(value, 2);
}

function shadeByValue(tokens, values, most) {
  const scale = diverging();
  shadeTokens(tokens, (i) => (i < values.length ? scale(values[i] / most) : null));
  tokens.forEach((token, i) => {
    token.lastChild.textContent = i < values.length ? signed(values[i]) : "";
  });
}

function attributionLegend(most) {
  const scale = diverging();
  const ramp = [-1, 0, 1].map((share) => css(scale(share)));
  return [
    `lowers it, ${signed(-most)} `,
    el("span", { class: "ramp", style: { background: `linear-gradient(90deg, ${ramp.join()})` } }),
    ` ${signed(most)}, raises it`,
  ];
}

function tableOfValues(title, { source, target }, texts) {
  const rows = (name, values, pieces) =>
    Array.from(values, (value, i) => [pieces[i], name, i + 1, value]);
  return numbersAsText(title, ["piece", "of", "position", "gradient times input"], () => [
    ...rows("source", source, texts.source),
    ...rows("output", target, texts.target),
  ]);
}
