// Opens the page's data, or says why it cannot be read.

import { el } from "../common/dom.js";
import { openDocument } from "../common/payload.js";

const NEEDS =
  "This browser cannot decompress the page's data (it lacks DecompressionStream). " +
  "Open the file in Chrome or Edge 123, Firefox 120, Safari 17.5, or a later one.";

/** Calls `open` with the page's document. */
export async function start(open) {
  const notice = document.getElementById("notice");
  if (typeof DecompressionStream === "undefined") {
    notice.textContent = NEEDS;
    return;
  }
  try {
    open(await openDocument());
  } catch (error) {
    notice.replaceWith(
      el("p", { role: "alert" }, `The page's data cannot be read: ${error.message}`),
    );
    throw error;
  }
}
