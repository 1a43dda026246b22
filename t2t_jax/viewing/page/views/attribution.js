// Gradient times input of one piece: what raised its log probability, and what lowered it.

import { css, diverging, whenColoursChange } from "../common/colours.js";
import { choice, chooser, el } from "../common/dom.js";
import { numbersAsText } from "../common/numbers.js";
import { number, shownPieces } from "../common/text.js";
import { largestOf } from "./attention_maps.js";
import { isolated, shadeTokens, tokenLine } from "./token_lines.js";

const ABOUT_ATTRIBUTION =
  "Gradient times input is a first guess at each piece's share: the slope of the score along " +
  "the piece's embedding, times the embedding. It holds for small changes; it is not what " +
  "would happen without the piece, and where the model saturates it can be near 0 for a " +
  "piece that matters.";

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
    source: shownPieces(context.entry.source),
    target: shownPieces(context.reading.pieces),
    body: el("div"),
  };
  const controls = attributionControls(view);
  root.append(el("p", { class: "about" }, ABOUT_ATTRIBUTION), controls.element, view.body);
  whenColoursChange(view.body, () => showPosition(view));
  context.selection.listen(() => {
    controls.follow();
    showPosition(view);
  });
}

function attributionControls(view) {
  const { context, target } = view;
  const { model, reading, selection } = context;
  const computed = new Set(reading.attribution.positions);
  const names = target.map(
    (piece, t) => `${t + 1}: ${isolated(piece)}${computed.has(t) ? "" : " (not computed)"}`,
  );
  const positions = chooser("Piece", names, selection.position, (t) => selection.set(t));
  positions.dataset.choice = "position";
  const contrast = choice(
    "Question",
    ["Why this piece", "Why this and not its rival"],
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

function showPosition({ context, arrays, source, target, body }) {
  const { position } = context.selection;
  const { positions, rivals } = context.reading.attribution;
  const row = positions.indexOf(position);
  const contrast = contrastShown.has(context.model);
  const [ofSource, ofTarget] = contrast ? arrays.slice(2) : arrays;
  const title = attributionTitle(target[position], contrast && row >= 0 ? rivals[row] : null);
  const values =
    row < 0 ? null : { source: ofSource.row(row), target: ofTarget.row(row).slice(0, position) };
  const most = values && Math.max(largestIn(values.source), largestIn(values.target));
  const lineOf = (name, part, texts) => shadedLine({ context, name, part, texts, values: values?.[part], most });
  const lines = [
    lineOf("Source", "source", source),
    lineOf("Output: what was read before the piece", "target", target),
  ];
  const focused = body.contains(document.activeElement) && document.activeElement.dataset.token;
  body.replaceChildren(
    el("h3", { "data-attribution": position }, title),
    values ? totalsOf(values) : notComputed(positions),
    ...lines.flatMap((line) => line.parts),
    ...(values ? [attributionLegend(most), tableOfValues(title, values, source, target)] : []),
  );
  if (focused) lines[1].tokens[focused]?.focus();
}

function largestIn(values) {
  return values.length ? largestOf(values) : 0;
}

function attributionTitle(piece, rival) {
  const why = `Why ${isolated(piece)}`;
  return rival === null ? `${why}?` : `${why} and not ${isolated(shownPieces([rival])[0])}?`;
}

function notComputed(positions) {
  const known = positions.map((t) => t + 1).join(", ");
  return el(
    "p",
    { class: "missing", "data-missing": "position" },
    `the attribution of this piece was not computed. It was for ${
      positions.length ? `the pieces ${known}` : "no piece"
    }.`,
  );
}

function totalsOf({ source, target }) {
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  return el(
    "p",
    { class: "attribution-totals" },
    `The source adds ${signed(sum(source))}, the pieces read before it ${signed(sum(target))}.`,
  );
}

function signed(value) {
  return (value > 0 ? "+" : "") + number(value, 2);
}

// A line of pieces with their values below them; the output's choose the position.
function shadedLine({ context, name, part, texts, values, most }) {
  const { selection, announce } = context;
  const { element, tokens } = tokenLine({
    name,
    texts,
    below: (i) =>
      i < (values?.length ?? 0) && el("span", { class: "token-value" }, signed(values[i])),
    pick: (t) =>
      part === "target" ? selection.set(t) : values && announce(`${texts[t]} ${signed(values[t])}`),
  });
  element.dataset.line = part;
  const scale = diverging();
  if (values)
    shadeTokens(tokens, (i) => (i < values.length ? scale(values[i] / (most || 1)) : null));
  if (part === "target") {
    tokens[selection.position].classList.add("at");
    tokens[selection.position].setAttribute("aria-current", "true");
    tokens.slice(selection.position + 1).forEach((token) => token.classList.add("unread"));
  }
  return { tokens, parts: [el("p", { class: "line-name" }, name), element] };
}

function attributionLegend(most) {
  const scale = diverging();
  const ramp = [-1, -0.5, 0, 0.5, 1].map(
    (share) => `${css(scale(share))} ${50 + 50 * share}%`,
  );
  return el(
    "p",
    { class: "legend" },
    `lowers it, ${signed(-most)} `,
    el("span", { class: "ramp", style: { background: `linear-gradient(90deg, ${ramp.join()})` } }),
    ` ${signed(most)}, raises it`,
  );
}

function tableOfValues(title, { source, target }, sourceTexts, targetTexts) {
  const rows = (name, values, texts) =>
    Array.from(values, (value, i) => [texts[i], name, i + 1, value]);
  return numbersAsText(title, ["piece", "of", "position", "gradient times input"], () => [
    ...rows("source", source, sourceTexts),
    ...rows("output", target, targetTexts),
  ]);
}
