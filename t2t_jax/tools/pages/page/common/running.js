// Pieces as running text: as the sentence has them, with its own spaces between.

import { byteOf, shownPieces, visible } from "./text.js";

/**
 * Returns, for each piece, {before, shown, sign}: the text between it and the piece
 * before, what to show, and whether that is a sign which the sentence does not contain
 * (an end of sentence, a byte of a character that is not complete, a lone space).
 */
export function runningText(pieces, text) {
  const shown = shownPieces(pieces);
  const cursor = { at: 0, slack: 0 };
  return pieces.map((piece, t) => {
    const isByte = byteOf(piece) !== null;
    if (isByte && shown[t] === piece.slice(3, 5)) // not the last of its character
      return { before: "", shown: shown[t], sign: true };
    const core = isByte ? shown[t] : coreOf(piece);
    if (core.trim() === "") {
      const before = spacesAt(text, cursor);
      return { before, shown: visible(core || piece), sign: true };
    }
    const before = gapBefore(core, text, cursor);
    if (before !== null) return { before, shown: core, sign: false };
    const sign = /^<.*>$/.test(core);
    if (!sign) cursor.slack += core.length + 2; // written otherwise in the sentence
    const spaced = sign || piece.startsWith("▁");
    return { before: spaced && t > 0 ? " " : "", shown: visible(core), sign };
  });
}

// A piece that is only a space stands after that space, not before it.
function spacesAt(text, cursor) {
  const [spaces] = /^\s*/.exec(text.slice(cursor.at));
  cursor.at += spaces.length;
  return spaces;
}

// A piece without the marks of where words begin (SentencePiece) or go on (BPE).
function coreOf(piece) {
  return piece.replace(/^▁+|@@$|<\/w>$/g, "").replaceAll("▁", " ");
}

// Finds a piece in the sentence and returns what is skipped for it, or null.
function gapBefore(core, text, cursor) {
  const found = text.indexOf(core, cursor.at);
  if (found < 0) return null;
  const gap = text.slice(cursor.at, found);
  if (gap.trim() !== "" && gap.length > cursor.slack) return null;
  cursor.at = found + core.length;
  cursor.slack = 0;
  return gap.trim() === "" ? gap : (/\s$/.test(gap) ? " " : "");
}
