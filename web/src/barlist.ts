/** Lists of bars, as HTML: names that wrap and may be links, figures, and bars on a track. */
import { h, type Child } from "./dom";
import { short } from "./number";

export const NAME_LETTERS = 60;
/** With more rows than this they are low, and lie in a box that scrolls. */
export const MOST_ROWS = 16;

type Style = Record<string, string | number>;

/** A bar, in percent of its track. */
export interface Bar {
  from: number;
  wide: number;
  kind?: string;
  style?: Style;
  title?: string;
  label?: string | null;
}

export interface BarRow {
  kind?: string;
  name: string;
  /** Whether it is a function's name. */
  code?: boolean;
  /** Where a click on its name leads. */
  open?: (() => void) | undefined;
  figures: string[];
  bars: Bar[];
  /** The meaning of its bars, where figures don't give it. */
  said?: string;
}

export interface BarList {
  kind?: string;
  caption: Child[];
  rows: BarRow[];
  style?: Style;
  /** The name of rows in a box that scrolls. */
  scrolls?: string | null;
}

function row({ kind, name, code, open, figures, bars, said }: BarRow): HTMLElement {
  const shown = short(name, NAME_LETTERS);
  return h(
    "li",
    { class: kind || null },
    h("span", { class: code ? "name code" : "name", title: name.length > NAME_LETTERS ? short(name, 400) : null }, open ? h("button", { type: "button", class: "link", onclick: open }, shown) : shown),
    ...figures.map((figure) => h("span", { class: "number" }, figure)),
    h(
      "span",
      said === undefined ? { class: "track", "aria-hidden": "true" } : { class: "track", role: "img", "aria-label": said },
      ...bars.map((bar) =>
        h("span", { class: `bar ${bar.kind ?? ""}`.trim(), title: bar.title, "--from": `${bar.from}%`, "--wide": `${bar.wide}%`, ...bar.style }, bar.label ? h("span", { class: "label" }, bar.label) : null),
      ),
    ),
  );
}

export function barList({ kind, caption, rows, style, scrolls }: BarList): HTMLElement {
  const list = h("ol", {}, ...rows.map(row));
  return h(
    "figure",
    { class: `bars ${kind ?? ""}`.trim(), ...style },
    h("figcaption", {}, ...caption),
    scrolls ? h("div", { class: "rows", tabindex: 0, role: "region", "aria-label": scrolls }, list) : list,
  );
}
