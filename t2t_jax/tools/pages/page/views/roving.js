// Many controls as one stop of the Tab key, with the arrow keys between them.

/**
 * Lets the arrow keys walk over `elements`, which stand in rows of `columns`.
 *
 * With one column, up and down move as left and right do. `backwards` is for text that
 * runs from right to left.
 */
export function rove(elements, columns = 1, backwards = false) {
  let current = 0;
  const side = backwards ? -1 : 1;
  elements.forEach((element, index) => {
    element.tabIndex = index === 0 ? 0 : -1;
    element.addEventListener("focus", () => {
      elements[current].tabIndex = -1;
      element.tabIndex = 0;
      current = index;
    });
    element.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const targets = {
        ArrowRight: index + side,
        ArrowLeft: index - side,
        ArrowDown: index + columns,
        ArrowUp: index - columns,
        Home: 0,
        End: elements.length - 1,
      };
      if (!(event.key in targets)) return;
      event.preventDefault();
      elements[targets[event.key]]?.focus();
    });
  });
}
