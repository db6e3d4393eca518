/** Bars that are made of parts, one below the other, with a key. */
import { h, type Child } from "./dom";
import { short } from "./number";

const NAME_LETTERS = 60;
/** A part below this share of the longest bar is not in the key. */
const NAMED_SHARE = 0.01;
/** A part that is narrower than this, in percent, has no line between it and the next. */
const THIN = 1.5;
/** A part that is wider than this share of its bar has its name in it. */
const LABEL_SHARE = 0.09;
/** With more rows than this they are low, and lie in a box that scrolls. */
export const MOST_ROWS = 16;

export interface Part {
  name: string;
  value: number;
  /** As it is told. */
  text: string;
  /** What it is drawn with. */
  look: { class: string; style: Record<string, string | number> };
}

export interface Row {
  name: string;
  figures: string[];
  parts: Part[];
  /** Where a click on its name leads. */
  open?: () => void;
}

export interface Stacked {
  caption: Child[];
  rows: Row[];
  /** Each bar fills the width, however much it comes to. */
  own?: boolean;
  /** Names within the bars, where there is room. */
  labels?: boolean;
}

export function stacked({ caption, rows, own, labels }: Stacked): HTMLElement {
  const whole = (row: Row): number => row.parts.reduce((sum, part) => sum + Math.max(part.value, 0), 0);
  const longest = Math.max(...rows.map(whole), 1e-9);
  const full = (row: Row): number => (own ? Math.max(whole(row), 1e-9) : longest);
  const named = new Map<string, Part>();
  for (const row of rows) {
    for (const part of row.parts) {
      if (part.value > full(row) * NAMED_SHARE && !named.has(part.name)) {
        named.set(part.name, part);
      }
    }
  }
  const many = rows.length > MOST_ROWS;
  const list = h(
    "ol",
    {},
    ...rows.map((row) => {
      let from = 0;
      const name = short(row.name, NAME_LETTERS);
      return h(
        "li",
        {},
        h("span", { class: "name", title: row.name.length > NAME_LETTERS ? short(row.name, 400) : null }, row.open ? h("button", { type: "button", class: "link", onclick: row.open }, name) : name),
        ...row.figures.map((figure) => h("span", { class: "number" }, figure)),
        h(
          "span",
          { class: "track", role: "img", "aria-label": row.parts.filter((part) => part.value > 0).map((part) => `${short(part.name, 40)} ${part.text}`).join(", ") },
          ...row.parts.map((part) => {
            const wide = (Math.max(part.value, 0) * 100) / full(row);
            const at = from;
            from += wide;
            return wide > 0
              ? h(
                  "span",
                  { class: `bar ${part.look.class}${wide < THIN ? " thin" : ""}`, title: `${short(part.name, NAME_LETTERS)}: ${part.text}`, "--from": `${at}%`, "--wide": `${wide}%`, ...part.look.style },
                  labels && wide > LABEL_SHARE * 100 ? h("span", { class: "label" }, short(part.name, 24)) : null,
                )
              : null;
          }),
        ),
      );
    }),
  );
  return h(
    "figure",
    { class: `bars stacked${rows.every((row) => row.figures.length === 1) ? " one" : ""}${many ? " many" : ""}${labels ? " labelled" : ""}` },
    h("figcaption", {}, ...caption),
    many ? h("div", { class: "rows", tabindex: 0, role: "region", "aria-label": `${rows.length} bars` }, list) : list,
    h(
      "ul",
      { class: "key" },
      ...[...named.values()].map((part) => h("li", {}, h("span", { class: `swatch ${part.look.class}`, "aria-hidden": "true", ...part.look.style }), short(part.name, NAME_LETTERS))),
    ),
  );
}
