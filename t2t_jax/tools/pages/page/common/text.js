// Numbers and pieces as text.

import { el } from "./dom.js";

/** Returns a number with three significant digits, and a true minus sign. */
export function number(x, digits = 3) {
  if (x === null || x === undefined || Number.isNaN(x)) return "–";
  if (x === 0) return "0";
  const size = Math.abs(x);
  const text =
    size >= 1e5 || size < 1e-4
      ? x.toExponential(digits - 1)
      : x.toFixed(Math.max(0, digits - 1 - Math.floor(Math.log10(size))));
  return text.replace("-", "−");
}

/** Returns a probability as a percentage: "63%", "4.0%", "<0.1%". */
export function percent(p) {
  if (p === null || p === undefined || Number.isNaN(p)) return "–";
  const hundredths = 100 * p;
  if (p === 0) return "0%";
  if (hundredths > 0 && hundredths < 0.1) return "<0.1%";
  if (hundredths < 9.95) return `${hundredths.toFixed(1)}%`;
  // A probability just below 1 is not certainty.
  return p < 1 && hundredths >= 99.5
    ? `${Math.min(99.9, Number(hundredths.toFixed(1)))}%`
    : `${Math.round(hundredths)}%`;
}

const SHOWN = { " ": "␣", "\u00a0": "⍽", "\n": "⏎", "\r": "␍", "\t": "⇥" };
const UNSEEN =
  /[\u0000-\u0020\u007f-\u00a0\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/gu;

/** Returns a piece with its spaces and control characters made visible. */
export function visible(piece) {
  if (piece === "") return "∅";
  return piece.replace(UNSEEN, (character) => {
    if (character in SHOWN) return SHOWN[character];
    const code = character.codePointAt(0);
    if (code < 32) return String.fromCodePoint(0x2400 + code);
    return `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
  });
}

const languages = { source: "", target: "" };

/** Returns the BCP 47 tag of a code such as zh_CN or deu_Latn; of another name, the name. */
export function languageTag(code) {
  const tag = code.split(/[.@]/)[0].replaceAll("_", "-");
  try {
    const { language, script, region } = new Intl.Locale(tag);
    const usual = new Intl.Locale(language).maximize().script;
    return [language, script !== usual && script, region].filter(Boolean).join("-");
  } catch {
    return tag;
  }
}

/** Names the languages of the page's text. */
export function setLanguages([source = "", target = ""] = []) {
  Object.assign(languages, { source: languageTag(source), target: languageTag(target) });
}

/**
 * Returns the attributes of an element with text of a side, "source" or "target": its
 * direction, and its language, since Chinese and Japanese draw one character differently.
 */
export function written(side) {
  return { dir: "auto", lang: languages[side] };
}

/** Makes the element of a piece; its direction does not disturb its neighbours'. */
export function pieceText(piece) {
  return el("bdi", { class: "piece-text", ...written("target") }, visible(piece));
}

/**
 * Returns the visible text of each of a sentence's pieces, where pieces of one byte
 * that make up a character show it on the last of them, and their byte before that.
 */
export function shownPieces(pieces) {
  const shown = pieces.map(visible);
  let bytes = [];
  for (let t = 0; t < pieces.length; t++) {
    const value = byteOf(pieces[t]);
    if (value === null) {
      bytes = [];
      continue;
    }
    if ((value & 0xc0) !== 0x80) bytes = []; // the first byte of another character
    bytes.push(value);
    shown[t] = pieces[t].slice(3, 5);
    const character = decoded(bytes);
    if (character === null) continue;
    shown[t] = visible(character);
    bytes = [];
  }
  return shown;
}

/** Returns the byte that a piece such as <0xF0> stands for, or null. */
export function byteOf(piece) {
  const match = /^<0x([0-9A-Fa-f]{2})>$/.exec(piece);
  return match ? parseInt(match[1], 16) : null;
}

function decoded(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(new Uint8Array(bytes));
  } catch {
    return null; // not complete yet
  }
}
