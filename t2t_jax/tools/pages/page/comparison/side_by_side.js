// One line: its source, its reference, and two translations with their words marked.

import { el } from "../common/dom.js";
import { fixed, letter, signed } from "./names.js";

/** Makes the list item of a line. */
export function sideBySide(line, set, pair) {
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
      entry("source", el("bdi", { dir: "auto" }, source)),
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
    { dir: "auto" },
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
