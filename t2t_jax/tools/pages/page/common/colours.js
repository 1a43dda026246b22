// Colours of the style sheet, and the scales between them, in the light and the dark.

import { el } from "./dom.js";

const resolved = new Map(); // the colours of now, since views ask for them often
document.addEventListener("colours", () => resolved.clear());

/** Returns the colour of a CSS variable as [red, green, blue], in the colours of now. */
export function colour(name) {
  if (!resolved.has(name)) resolved.set(name, resolve(name));
  return resolved.get(name);
}

function resolve(name) {
  const probe = el("span", { style: { color: `var(${name})` } });
  document.body.append(probe);
  const text = getComputedStyle(probe).color; // "rgb(22, 25, 29)"
  probe.remove();
  return text.match(/[\d.]+/g).slice(0, 3).map(Number);
}

/** Returns a function from 0..1 to a colour: from the paper's to the strongest. */
export function sequential() {
  const [low, high] = [colour("--map-low"), colour("--map-high")];
  return (share) => mixed(low, high, share);
}

/** Returns a function from -1..1 to a colour: two hues with the paper's between. */
export function diverging() {
  const low = colour("--map-low");
  const [negative, positive] = [colour("--map-negative"), colour("--map-positive")];
  return (share) => mixed(low, share < 0 ? negative : positive, Math.abs(share));
}

/** Returns a colour as CSS text. */
export function css([red, green, blue]) {
  return `rgb(${Math.round(red)} ${Math.round(green)} ${Math.round(blue)})`;
}

/** Returns the name of the text colour, "--ink" or "--paper", readable on a colour. */
export function inkOn(background) {
  const luminance = luminanceOf(background);
  const contrast = (name) => {
    const other = luminanceOf(colour(name));
    return (Math.max(luminance, other) + 0.05) / (Math.min(luminance, other) + 0.05);
  };
  return contrast("--ink") >= contrast("--paper") ? "--ink" : "--paper";
}

/** Calls `draw` now and after each change between light and dark while on the page. */
export function whenColoursChange(element, draw) {
  draw();
  const listen = () => {
    if (element.isConnected) draw();
    else document.removeEventListener("colours", listen);
  };
  document.addEventListener("colours", listen);
}

function mixed(from, to, share) {
  const part = Math.min(1, Math.max(0, share));
  return from.map((value, i) => value + (to[i] - value) * part);
}

// Relative luminance as WCAG defines it.
function luminanceOf(rgb) {
  const [red, green, blue] = rgb.map((value) => {
    const x = value / 255;
    return x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
