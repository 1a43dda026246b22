// What the search says when it is forced to begin with other pieces.

import { el } from "../common/dom.js";
import { runningText } from "../common/running.js";
import { numberCell, row, table } from "../common/table.js";
import { number, pieceText } from "../common/text.js";

/** Makes the card of a continuation from piece `t` on; `back()` closes it. */
export function continuationCard({ reading }, t, continuation, back) {
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
    { class: "pieces", dir: "auto" },
    el("span", { class: "common" }, runs.slice(0, position).map((run) => piece(run, "span", ""))),
    piece(runs[position], "mark", "forced"),
    runs.slice(position + 1).map((run) => piece(run, "span", "")),
  );
}

function scores(reading, continuation) {
  const scoresOf = (name, { log_prob: logProb, score, pieces }) =>
    row(name, [number(logProb, 4), number(score, 4), String(pieces.length)].map((text) => numberCell(text)));
  return table("Scores", [null, "Log-probability", "With length penalty", "Pieces"], [
    scoresOf(reading.name === "target" ? "Your target" : "Translation", reading),
    scoresOf(["With ", pieceText(continuation.piece)], continuation),
  ]);
}
