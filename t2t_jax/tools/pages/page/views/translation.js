// The translation, piece by piece: how sure the model was, and what else it considered.

import { el } from "../common/dom.js";
import { bandLegend, cutNote } from "../common/notes.js";
import { numbersAsText } from "../common/numbers.js";
import { runningText } from "../common/running.js";
import { number, percent, shownPieces, visible, written } from "../common/text.js";
import { alternativesPanel } from "./alternatives.js";
import { pieceLine } from "./piece_line.js";

/** Draws the source, the chosen reading, and the alternatives to a piece of it. */
export function translationView(root, context) {
  const { entry, reading, selection, sentence } = context;
  const panel = alternativesPanel(context, () => line.focus());
  const line = pieceLine(context, {
    preview: (t) => panel.show(t),
    leave: () => panel.show(selection.position),
    enter: () => panel.focus(),
  });
  selection.listen((t) => {
    line.select(t);
    panel.show(t);
    panel.close();
  });
  root.append(
    el("h4", {}, "Source"),
    sourceLine(entry, sentence.source),
    ...cutNote(entry),
    el("h4", {}, reading.name === "target" ? "Your target" : "Translation"),
    line.element,
    scoreLine(reading),
    bandLegend("Probability of a token"),
    panel.element,
    table(reading),
  );
  line.select(selection.position);
  panel.show(selection.position);
}

function sourceLine(entry, text) {
  return el(
    "p",
    { class: "pieces", ...written("source") },
    runningText(entry.source, text).map(({ before, shown, sign }) => [
      before,
      el("span", { class: sign ? "piece sign" : "piece" }, shown),
    ]),
  );
}

function scoreLine(reading) {
  const end = reading.ended ? "" : "; it did not end within the longest length";
  return el(
    "p",
    { class: "score-line" },
    `Log-probability ${number(reading.log_prob, 4)}, with the length penalty ` +
      `${number(reading.score, 4)}; ${reading.pieces.length} tokens${end}.`,
  );
}

function table(reading) {
  const shown = shownPieces(reading.pieces);
  const rows = () =>
    reading.pieces.map((piece, t) => [
      `${t + 1} ${shown[t]}`,
      percent(Math.exp(reading.log_probs[t])),
      reading.log_probs[t],
      reading.rank[t],
      reading.entropy[t],
      reading.alternatives[t]
        .filter(([other]) => other !== piece)
        .slice(0, 3)
        .map(([other, logProb]) => `${visible(other)} ${percent(Math.exp(logProb))}`)
        .join(", "),
    ]);
  const columns = ["Token", "Probability", "Log-probability", "Rank", "Entropy, bits", "Others"];
  return numbersAsText("The tokens", columns, rows);
}
