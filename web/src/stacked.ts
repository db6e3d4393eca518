/** Stacked bars, one below the other, with a key. */
import { cumsum, max, sum } from "d3-array";
import { barList, MOST_ROWS, NAME_LETTERS } from "./barlist";
import { h, type Child } from "./dom";
import { short } from "./number";

/** A part below this share of the longest bar is not in the key. */
const NAMED_SHARE = 0.01;
/** A part that is narrower than this, in percent, has no line between it and the next. */
const THIN = 1.5;
/** A part that is wider than this share of its bar has its name in it. */
const LABEL_SHARE = 0.09;

export interface Part {
  name: string;
  value: number;
  /** The value as text. */
  text: string;
  /** Its style. */
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
  /** Each bar fills the width, whatever its sum. */
  own?: boolean;
  /** Names within the bars, where there is room. */
  labels?: boolean;
}

export function stacked({ caption, rows, own, labels }: Stacked): HTMLElement {
  const whole = (row: Row): number => sum(row.parts, (part) => Math.max(part.value, 0)) || 1e-9;
  const longest = max(rows, whole) ?? 1e-9;
  const full = (row: Row): number => (own ? whole(row) : longest);
  const named = new Map<string, Part>();
  for (const row of rows) {
    for (const part of row.parts) {
      if (part.value > full(row) * NAMED_SHARE && !named.has(part.name)) {
        named.set(part.name, part);
      }
    }
  }
  const many = rows.length > MOST_ROWS;
  const figure = barList({
    kind: `stacked${rows.every((row) => row.figures.length === 1) ? " one" : ""}${many ? " many" : ""}${labels ? " labelled" : ""}`,
    caption,
    scrolls: many ? `${rows.length} bars` : null,
    rows: rows.map((row) => {
      const shown = row.parts.filter((part) => part.value > 0);
      const wide = (part: Part): number => (part.value * 100) / full(row);
      const ends = cumsum(shown, wide);
      return {
        name: row.name,
        open: row.open,
        figures: row.figures,
        said: shown.map((part) => `${short(part.name, 40)} ${part.text}`).join(", "),
        bars: shown.map((part, i) => ({
          from: ends[i] - wide(part),
          wide: wide(part),
          kind: `${part.look.class}${wide(part) < THIN ? " thin" : ""}`,
          style: part.look.style,
          title: `${short(part.name, NAME_LETTERS)}: ${part.text}`,
          label: labels && wide(part) > LABEL_SHARE * 100 ? short(part.name, 24) : null,
        })),
      };
    }),
  });
  figure.append(
    h(
      "ul",
      { class: "key" },
      ...[...named.values()].map((part) => h("li", {}, h("span", { class: `swatch ${part.look.class}`, "aria-hidden": "true", ...part.look.style }), short(part.name, NAME_LETTERS))),
    ),
  );
  return figure;
}
