// Two panes that scroll together: what belongs together is at the same height.

/**
 * Links two panes: {middle(), reveal(side, index)}.
 *
 * `boxes[side]()` returns the elements of all sentences on a side, 0 or 1, in order.
 */
export function linkPanes(panes, boxes) {
  const moved = new Set(); // the panes that scroll because the other one did
  panes.forEach((pane, side) =>
    pane.addEventListener("scroll", () => {
      if (!moved.delete(pane)) follow(side);
    }),
  );

  function scroll(side, distance) {
    const before = panes[side].scrollTop;
    panes[side].scrollTop += distance;
    // Only then there is an event.
    if (panes[side].scrollTop !== before) moved.add(panes[side]);
  }
  // The height that is compared moves from the top of a pane to its bottom as one scrolls
  // through it, so that both panes begin and end together.
  function height(side, share) {
    const { top } = panes[side].getBoundingClientRect();
    return top + share * panes[side].clientHeight;
  }
  function at(side, share) {
    const y = height(side, share);
    const found = boxes[side]().findIndex((box) => box?.getBoundingClientRect().bottom >= y);
    return found < 0 ? boxes[side]().length - 1 : found;
  }
  function follow(side) {
    const { scrollTop, scrollHeight, clientHeight } = panes[side];
    const share = scrollTop / Math.max(1, scrollHeight - clientHeight);
    const index = at(side, share);
    const [own, other] = [side, 1 - side].map((each) => boxes[each]()[index]?.getBoundingClientRect());
    if (!own || !other) return;
    const within = Math.min(1, Math.max(0, (height(side, share) - own.top) / own.height));
    scroll(1 - side, other.top + within * other.height - height(1 - side, share));
  }
  /** Scrolls a pane until a sentence is in sight. */
  function reveal(side, index) {
    const box = boxes[side]()[index]?.getBoundingClientRect();
    if (!box) return;
    const [top, bottom] = [height(side, 0), height(side, 1)];
    if (box.bottom > bottom) scroll(side, Math.min(box.bottom - bottom, box.top - top));
    else if (box.top < top) scroll(side, box.top - top);
  }
  return { middle: () => at(0, 0.5), reveal };
}
