// Starts the page: the list of its views, and the shell around them.

import { openDocument } from "./common/payload.js";
import { el } from "./common/dom.js";
import { openShell } from "./shell/shell.js";
import { alignmentView } from "./views/alignment.js";
import { attentionView } from "./views/attention.js";
import { attributionView } from "./views/attribution.js";
import { beamView } from "./views/beam.js";
import { layersView } from "./views/layers.js";
import { translationView } from "./views/translation.js";

const VIEWS = [
  {
    id: "translation",
    title: "Translation",
    about: "Each piece of the output is shaded by the probability that the model gave it, after all pieces before it.",
    view: translationView,
  },
  {
    id: "beam",
    title: "Beam search",
    about: "All the beginnings that the search kept, step by step, and why each of the others was given up.",
    view: beamView,
  },
  {
    id: "alignment",
    title: "Alignment",
    about: "Which source word each word of the output comes from, and which source words were left out or said twice.",
    view: alignmentView,
  },
  {
    id: "attention",
    title: "Attention",
    about: "How much each position reads from each other one, for every head of every layer.",
    view: attentionView,
  },
  {
    id: "layers",
    title: "Layer by layer",
    about: "What the decoder would have said had it stopped after each of its layers.",
    view: layersView,
  },
  {
    id: "attribution",
    title: "Attribution",
    about: "Which pieces of the input and of the output so far raised or lowered the score of a chosen piece.",
    view: attributionView,
  },
];

const NEEDS =
  "This browser cannot decompress the page's data (it lacks DecompressionStream). " +
  "Open the file in Chrome or Edge 123, Firefox 120, Safari 17.5, or a later one.";

async function start() {
  const notice = document.getElementById("notice");
  if (typeof DecompressionStream === "undefined") {
    notice.textContent = NEEDS;
    return;
  }
  try {
    openShell(await openDocument(), VIEWS);
  } catch (error) {
    notice.replaceWith(
      el("p", { role: "alert" }, `The page's data cannot be read: ${error.message}`),
    );
    throw error;
  }
}

start();
