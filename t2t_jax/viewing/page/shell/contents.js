// The bar of contents, which stays at the top and marks where the reader is.

import { el } from "../common/dom.js";
import { helpButton } from "./keys.js";
import { themeButton } from "./theme.js";

/** Makes the bar of links to the views. */
export function contents(views) {
  const links = views.map(({ id, title }) =>
    el("a", { href: `#${id}`, onclick: (event) => follow(event, id) }, title),
  );
  markCurrent(links);
  return el(
    "div",
    { class: "bar" },
    el("nav", { "aria-label": "Contents" }, links),
    el("div", { class: "tools" }, themeButton(), helpButton()),
  );
}

// In a notebook's frame a link to a place would load the notebook's page into the frame.
function follow(event, id) {
  if (location.protocol !== "about:") return;
  event.preventDefault();
  document.getElementById(id).scrollIntoView();
}

// On a phone the links do not all fit; scrollIntoView would also move the page.
function show(link) {
  link.setAttribute("aria-current", "true");
  const { parentElement: nav, offsetLeft, offsetWidth } = link;
  nav.scrollLeft = offsetLeft - nav.offsetLeft - (nav.clientWidth - offsetWidth) / 2;
}

function markCurrent(links) {
  const observer = new IntersectionObserver(
    (entries) => {
      const entry = entries.find((one) => one.isIntersecting);
      if (!entry) return;
      for (const link of links) {
        if (link.hash === `#${entry.target.id}`) show(link);
        else link.removeAttribute("aria-current");
      }
    },
    { rootMargin: "-20% 0px -79% 0px" }, // a line in the screen's upper fifth
  );
  // The sections enter the page after the bar.
  requestAnimationFrame(() =>
    document.querySelectorAll("section[id]").forEach((section) => observer.observe(section)),
  );
}
