// Opens the page's style and program. They are compressed as the data is: readable, they
// would be most of a page of one sentence.

import { unpackedText } from "./common/unpack.js";

const NEEDS =
  "This browser cannot decompress the page (it lacks DecompressionStream). " +
  "Open the file in Chrome or Edge 123, Firefox 120, Safari 17.5, or a later one.";

/** Adds an element with a text to the head. */
function add(tag, text, attributes) {
  const element = Object.assign(document.createElement(tag), attributes);
  element.textContent = text;
  document.head.append(element);
}

async function open() {
  if (typeof DecompressionStream === "undefined") {
    document.getElementById("notice").textContent = NEEDS;
    return;
  }
  add("style", await unpackedText("packed-style"), {});
  add("script", await unpackedText("packed-program"), { type: "module", id: "program" });
}

open();
