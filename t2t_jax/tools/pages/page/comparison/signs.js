// Signs of hallucination and omission.

import { el } from "../common/dom.js";
import { table } from "../common/table.js";
import { interval, isClear, reach } from "./intervals.js";
import { fixed, letter, scoreRow, signed, systemName } from "./names.js";

/** Shows how often each system, and the reference, has each sign. */
export function signs(body, { set, pair, show }) {
  const found = Object.entries(set.signs);
  const shown = found.filter(([, sign]) => !sign.missing);
  const inPoints = (sign) => {
    const { difference, low, high } = sign.differences[pair - 1];
    return { difference: 100 * difference, low: 100 * low, high: 100 * high };
  };
  const most = reach(shown.map(([, sign]) => inPoints(sign)));
  const rows = shown.map(([name, sign]) => {
    const points = inPoints(sign);
    return scoreRow(
      [
        el("b", {}, sign.title),
        el("span", { class: "sign-about" }, sign.about),
      ],
      [
        share(sign.reference, sign.of),
        ...sign.systems.map((system) => share(system, sign.of)),
        el("span", { class: isClear(points) ? "clear" : "" }, `${signed(points.difference, 1)} points`),
        interval(points, most),
        el("button", { type: "button", onclick: () => show({ filter: name }) }, "Lines"),
      ],
    );
  });
  const missing = found.filter(([, sign]) => sign.missing);
  body.append(
    table(
      "Signs",
      ["Sign", "Reference", ...set.systems.map((_, s) => systemName(set, s)), `${letter(pair)} − ${letter(0)}`, "", ""],
      rows,
    ),
    missing.map(([, sign]) => el("p", { class: "missing" }, `${sign.title}: ${sign.missing}`)),
  );
}

function share({ found, total, share }, of) {
  const percent = share === null ? "" : ` (${fixed(100 * share, 1)}%)`;
  return el("span", { title: `of ${total.toLocaleString("en")} ${of}` }, `${found.toLocaleString("en")}${percent}`);
}
