// Light and dark: as the system has it, until the reader presses the button.

import { el } from "../common/dom.js";

const systemIsDark = window.matchMedia("(prefers-color-scheme: dark)");

/** Tells the views, by the event "colours", when the system changes its theme. */
export function followTheme() {
  const { dataset } = document.documentElement;
  systemIsDark.addEventListener("change", tellColours);
  let chosen;
  window.addEventListener("beforeprint", () => {
    chosen = dataset.theme;
    dataset.theme = "light"; // paper is white
    tellColours();
  });
  window.addEventListener("afterprint", () => {
    if (chosen) dataset.theme = chosen;
    else delete dataset.theme;
    tellColours();
  });
}

/** Makes the button that changes between light and dark. */
export function themeButton() {
  const button = el("button", { type: "button", onclick: toggle });
  const name = () => {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Change to ${isDark() ? "light" : "dark"} colours`);
  };
  function toggle() {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    tellColours();
  }
  document.addEventListener("colours", name);
  name();
  return button;
}

function isDark() {
  const { theme } = document.documentElement.dataset;
  return theme ? theme === "dark" : systemIsDark.matches;
}

function tellColours() {
  document.dispatchEvent(new Event("colours"));
}
