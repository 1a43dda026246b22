// Starts the page: the list of its views, and the shell around them.

import { openShell } from "./shell/shell.js";
import { start } from "./shell/start.js";
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
    about: "The model writes token by token: a word or a part of one. Each is shaded by the probability that the model gave it, after all tokens before it. Choose a token, and all views follow. ▁ is a space, </s> the end.",
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
    about: "Which tokens of the input and of the output so far raised or lowered the score of a chosen token.",
    view: attributionView,
  },
];

start((page) => openShell(page, VIEWS));
