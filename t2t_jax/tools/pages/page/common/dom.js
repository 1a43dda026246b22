// Elements of the page. Text goes only into text nodes, so it is never read as HTML.

const SVG_NAMESPACE = document
  .createRange()
  .createContextualFragment("<svg></svg>").firstChild.namespaceURI;

/** Makes an HTML element: `el("p", {class: "note", onclick: f}, "text", child)`. */
export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** Makes an SVG element. */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG_NAMESPACE, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") setStyle(element, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined),
  );
  return element;
}

// `style: {color: "red", "--depth": 3}`; a text is taken as it is.
function setStyle(element, style) {
  if (typeof style === "string") element.style.cssText = style;
  else
    for (const [name, value] of Object.entries(style))
      element.style.setProperty(name, value);
}

/** Makes a section with its heading; links lead to its `id`, if it has one. */
export function section({ id, title, about }, ...children) {
  const heading = id && `${id}-title`;
  return el(
    "section",
    { id, "aria-labelledby": heading },
    el("h2", { id: heading }, title),
    about && el("p", { class: "about" }, about),
    children,
  );
}

/** Says a sentence to a screen reader. */
export function announce(text) {
  document.getElementById("announcements").textContent = text;
}

/** Makes a label with a <select>; `change` gets the index of the chosen option. */
export function chooser(label, options, chosen, change) {
  const select = el(
    "select",
    { onchange: () => change(select.selectedIndex) },
    options.map((option, index) =>
      el("option", { selected: index === chosen }, option),
    ),
  );
  return el("label", { class: "chooser" }, el("span", {}, label), select);
}

/** Makes a group of buttons of which one is pressed; `change` gets its index. */
export function choice(label, options, chosen, change) {
  const buttons = options.map((option, index) =>
    el("button", { type: "button", onclick: () => press(index) }, option),
  );
  const show = (index) =>
    buttons.forEach((button, other) =>
      button.setAttribute("aria-pressed", String(other === index)),
    );
  function press(index) {
    show(index);
    change(index);
  }
  show(chosen);
  return el("div", { class: "choice", role: "group", "aria-label": label }, buttons);
}

/** Makes a button that hides or shows `key`: it is pressed while `hidden` lacks it. */
export function visibilityButton(hidden, key, attributes, change, ...children) {
  const show = () => button.setAttribute("aria-pressed", String(!hidden.has(key)));
  const onclick = () => {
    if (!hidden.delete(key)) hidden.add(key);
    show();
    change();
  };
  const button = el("button", { type: "button", onclick, ...attributes }, children);
  show();
  return button;
}
