// A page of HTML that shows translations without a script, and carries their JSON.

import { el } from "../common/dom.js";
import { bandLegend, bandOf, cutNote } from "../common/notes.js";
import { numberCell, row, table } from "../common/table.js";
import { number, percent, written } from "../common/text.js";
import { factsOf } from "./target.js";
import { wordsOf } from "./words.js";

const POLICY = "default-src 'none'; style-src 'unsafe-inline'";

/** Makes the table of a translation's hypotheses, with their scores. */
export function hypothesisTable(name, { hypotheses }) {
  const rows = hypotheses.map(({ text, score, log_prob, ended }) =>
    row(el("bdi", written("target"), text, ended ? "" : " …"), [score, log_prob].map((each) => numberCell(number(each)))),
  );
  return table(name, ["Hypothesis", "Score", "Log-probability"], rows);
}

/** Returns the page of some exchanges, {request, response}, and of the same as JSON. */
export function explanation(exchanges, json) {
  const page = document.implementation.createHTMLDocument("Translation");
  page.documentElement.lang = "en";
  page.head.prepend(el("meta", { charset: "utf-8" }), el("meta", { "http-equiv": "Content-Security-Policy", content: POLICY }));
  page.head.append(
    el("meta", { name: "viewport", content: "width=device-width" }),
    el("meta", { name: "color-scheme", content: "light dark" }),
    el("style", {}, document.querySelector("style").textContent),
  );
  const [{ request }] = exchanges;
  const translations = exchanges.flatMap(({ response }) => response.translations);
  page.body.append(
    el("header", {}, el("h1", {}, `Translation, ${request.direction}`), bandLegend("Probability of a word")),
    el("main", {}, translations.map(sentence), el("section", {}, el("h2", {}, "Depends on"), depended(exchanges))),
    // No text ends this element: it has no "<".
    el("script", { type: "application/json", id: "answer" }, json.replaceAll("<", "\\u003c")),
  );
  return `<!doctype html>\n${page.documentElement.outerHTML}\n`;
}

function sentence(translation, index) {
  const { source, error, confidence, hypotheses } = translation;
  const name = `Sentence ${index + 1}`;
  const head = [el("h2", {}, name), el("p", { class: "source-line", ...written("source") }, source)];
  if (error) return el("section", {}, head, el("p", { class: "warning" }, error));
  const words = wordsOf(hypotheses[0].text);
  const tokens = factsOf(translation, words, source).map(({ p, about }, n) =>
    el(
      "span",
      { class: "token", title: about.join(", "), "data-band": p === null ? null : bandOf(p) },
      el("bdi", written("target"), words[n].text),
      p === null ? null : el("span", { class: "token-value" }, percent(p)),
    ),
  );
  const line = el("div", { class: "token-line", ...written("target") }, tokens);
  const note = el("p", { class: "note" }, `Confidence ${percent(confidence)}`);
  return el("section", {}, head, line, cutNote(translation), note, hypothesisTable(name, translation));
}

// The server may have loaded another checkpoint between two answers.
function depended(exchanges) {
  const each = exchanges.map(({ response }) => JSON.stringify(response.provenance));
  return [...new Set(each)].map((text) => {
    const cells = Object.entries(JSON.parse(text) ?? {}).map(([key, value]) => row(key, [JSON.stringify(value)]));
    return el("div", { class: "passport" }, table("Depends on", null, cells));
  });
}
