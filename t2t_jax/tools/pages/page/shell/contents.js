// The bar of contents, which stays at the top and marks where the reader is.

import { el } from "../common/dom.js";
import { helpButton } from "./keys.js";
import { themeButton } from "./theme.js";

const READ_AT = 0.2; // of the screen's height: where the reader is taken to be

/** Makes the bar of links to the views; `tools` are the buttons beside them. */
export function contents(views, tools = [themeButton(), helpButton()]) {
  const links = views.map(({ id, title }) =>
    el("a", { href: `#${id}`, onclick: (event) => follow(event, id) }, title),
  );
  markCurrent(links);
  return el(
    "div",
    { class: "bar" },
    el("nav", { "aria-label": "Contents" }, links),
    el("div", { class: "tools" }, tools),
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
    () => {
      // The last that begins above the line; above all of them, the first.
      const line = READ_AT * window.innerHeight;
      const above = sections().filter((each) => each.getBoundingClientRect().top < line);
      const { id } = above.at(-1) ?? sections()[0];
      for (const link of links) {
        if (link.hash === `#${id}`) show(link);
        else link.removeAttribute("aria-current");
      }
    },
    // The line alone, so that each section that reaches or leaves it is noted.
    { rootMargin: `-${100 * READ_AT}% 0px -${99 - 100 * READ_AT}% 0px` },
  );
  const sections = () => [...document.querySelectorAll("section[id]")];
  // The sections enter the page after the bar.
  requestAnimationFrame(() => sections().forEach((section) => observer.observe(section)));
}
