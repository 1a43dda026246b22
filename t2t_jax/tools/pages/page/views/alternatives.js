// What else the model considered at a piece, and what the search would then have said.

import { el } from "../common/dom.js";
import { runningText } from "../common/running.js";
import { numberCell, row, table } from "../common/table.js";
import { number, percent, pieceText, shownPieces, written } from "../common/text.js";

const NOT_SEARCHED =
  "The search was not run from here: continuations are computed for the likely alternatives only.";
const CHOOSE = "Choose an alternative to see what the search would have said from there.";
const NONE_LIKELY =
  "No other token was followed here; after a token of a darker shade there is more to choose from.";

/**
 * Makes the panel beside a reading; `leave()` takes the focus back to it.
 *
 * Returns {element, show(t), close(), focus()}.
 */
export function alternativesPanel(context, leave) {
  const { reading, announce } = context;
  const shown = shownPieces(reading.pieces);
  const head = el("div", { class: "piece-head" });
  const list = el("ol", { class: "alternatives" });
  const beside = el("div", { class: "beside" });
  const element = el("div", { class: "piece-panel" }, el("div", {}, head, list), beside);
  let last = null;

  element.addEventListener("keydown", (event) => {
    if (event.key === "Escape") leave();
  });
  function show(t) {
    if (t === last) return;
    last = t;
    head.replaceChildren(...headOf(reading, t, shown[t]));
    list.replaceChildren(...rowsOf(reading, t, open));
    // What the search says stays while other pieces are pointed at.
    if (!beside.querySelector(".continuation")) close();
  }
  function open(t, alternative, button) {
    const [piece, , index] = alternative;
    const continuation = index === null ? null : reading.continuations[index];
    const back = () => {
      close();
      if (button.isConnected) button.focus();
      else leave();
    };
    beside.replaceChildren(
      continuation
        ? continuationCard(context, t, continuation, back)
        : el("p", { class: "note" }, "With ", pieceText(piece), ": ", NOT_SEARCHED),
    );
    announce(continuation ? `From there: ${continuation.text}` : NOT_SEARCHED);
  }
  function close() {
    const followed = reading.alternatives[last].some(([, , index]) => index !== null);
    beside.replaceChildren(el("p", { class: "note" }, followed ? CHOOSE : NONE_LIKELY));
  }
  return { element, show, close, focus: () => list.querySelector("button")?.focus() };
}

function headOf(reading, t, shown) {
  const difference = reading.difference?.position === t ? reading.difference : null;
  return [
    el(
      "h4",
      {},
      `Token ${t + 1} of ${reading.pieces.length}: `,
      el("bdi", { class: "piece-text", ...written("target") }, shown),
    ),
    el(
      "dl",
      { class: "figures" },
      figure("probability", percent(Math.exp(reading.log_probs[t]))),
      figure("rank", reading.rank[t]),
      figure("entropy", `${number(reading.entropy[t])} bits`),
    ),
    difference &&
      el("p", { class: "warning" }, `${reading.name === "target" ? "The translation" : "Your target"} differs from here on: it has “`, pieceText(difference.rival), "”."),
  ].filter(Boolean);
}

function figure(name, value) {
  return el("div", {}, el("dt", {}, name), el("dd", {}, String(value)));
}

function rowsOf(reading, t, open) {
  const chosen = reading.pieces[t];
  const rows = reading.alternatives[t].map((alternative, index) =>
    alternative[0] === chosen
      ? chosenRow(alternative, index + 1)
      : rivalRow(alternative, index + 1, (button) => open(t, alternative, button)),
  );
  if (!reading.alternatives[t].some(([piece]) => piece === chosen))
    rows.push(chosenRow([chosen, reading.log_probs[t]], reading.rank[t]));
  return rows;
}

function chosenRow([piece, logProb], rank) {
  return el(
    "li",
    { class: "alternative chosen" },
    cells(rank, piece, logProb),
    el("span", { class: "onward" }, "chosen"),
  );
}

function rivalRow([piece, logProb, continuation], rank, open) {
  const searched = continuation !== null;
  const button = el(
    "button",
    { type: "button", class: "alternative", onclick: () => open(button) },
    cells(rank, piece, logProb),
    el(
      "span",
      { class: "onward", "aria-hidden": !searched ? "true" : null },
      searched ? "continue" : "",
    ),
  );
  return el("li", {}, button);
}

function cells(rank, piece, logProb) {
  const p = Math.exp(logProb);
  return [
    el("span", { class: "place" }, String(rank)),
    pieceText(piece),
    el("span", { class: "bar-track", "aria-hidden": "true" }, el("span", { style: { width: `${100 * p}%` } })),
    el("span", { class: "share" }, percent(p)),
  ];
}

// ------------------------------------------------------------
// What the search says when it is forced to begin with other pieces.

/** Makes the card of a continuation from piece `t` on; `back()` closes it. */
function continuationCard({ reading }, t, continuation, back) {
  return el(
    "div",
    { class: "continuation" },
    el("h4", {}, "With ", pieceText(continuation.piece), ", the search says"),
    textOf(t, continuation),
    scores(reading, continuation),
    el(
      "p",
      {},
      verdict(reading, continuation),
      continuation.ended ? null : " It did not end within the longest length.",
    ),
    el("button", { type: "button", onclick: back }, "Back"),
  );
}

function verdict(reading, { score }) {
  const gap = number(Math.abs(score - reading.score));
  if (score <= reading.score) return `Its score is worse by ${gap}.`;
  return reading.name === "target"
    ? `Its score is better by ${gap}.`
    : `Its score is better by ${gap}: the search did not find it.`;
}

// The common beginning is set back, the piece that was forced is marked.
function textOf(t, continuation) {
  const { pieces, text, position } = continuation;
  const runs = runningText(pieces, text);
  const piece = ({ before, shown, sign }, tag, name) => [
    before,
    el(tag, { class: sign ? `${name} sign` : name }, shown),
  ];
  return el(
    "p",
    { class: "pieces", ...written("target") },
    el("span", { class: "common" }, runs.slice(0, position).map((run) => piece(run, "span", ""))),
    piece(runs[position], "mark", "forced"),
    runs.slice(position + 1).map((run) => piece(run, "span", "")),
  );
}

function scores(reading, continuation) {
  const scoresOf = (name, { log_prob: logProb, score, pieces }) =>
    row(name, [number(logProb, 4), number(score, 4), String(pieces.length)].map((text) => numberCell(text)));
  return table("Scores", [null, "Log-probability", "With length penalty", "Tokens"], [
    scoresOf(reading.name === "target" ? "Your target" : "Translation", reading),
    scoresOf(["With ", pieceText(continuation.piece)], continuation),
  ]);
}
