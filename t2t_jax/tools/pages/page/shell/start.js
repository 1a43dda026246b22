// Opens the page's data, or says why it cannot be read.

import { el } from "../common/dom.js";
import { openDocument } from "../common/payload.js";

/** Calls `open` with the page's document. */
export async function start(open) {
  const notice = document.getElementById("notice");
  try {
    open(await openDocument());
  } catch (error) {
    notice.replaceWith(
      el("p", { role: "alert" }, `The page's data cannot be read: ${error.message}`),
    );
    throw error;
  }
}
