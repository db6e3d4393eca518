/** The cost of a packet along each path: bars of layers, and their functions. */
import type { PageCosts } from "./data";
import { order, toneOf } from "./colour";
import { h } from "./dom";
import { cost, short } from "./number";
import { stacked } from "./stacked";
import { plain } from "./table";

type Part = PageCosts["parts"][number];

/** The parts of a bar in their order: the path's layers, then work outside it. */
export function ordered(parts: Part[]): Part[] {
  const rank = (part: Part): number => (part.layer === "" ? 1000 : order(part.layer));
  return [...parts].sort((a, b) => rank(a) - rank(b));
}

/** The whole of each path: its layers alone, or all parts. */
export function wholes(costs: PageCosts, all: boolean): number[] {
  return costs.paths.map((_, at) =>
    costs.parts.reduce((sum, part) => sum + (all || part.layer !== "" ? (part.each[at] ?? 0) : 0), 0),
  );
}

/** Bars, and tables below. */
export function costsFigure(costs: PageCosts): HTMLElement {
  const parts = ordered(costs.parts);
  const own = wholes(costs, false);
  const least = Math.min(...own.filter((value) => value > 0));
  const figure = stacked({
    caption: [`${short(costs.title, 600)}. The figure is the path's, in ${costs.unit}; what is not the path's is hatched`],
    rows: costs.paths.map((path, at) => ({
      name: path,
      figures: [cost(own[at]), own[at] > 0 && least > 0 ? `${(own[at] / least).toFixed(1)}\u00d7` : ""],
      parts: parts.map((part) => ({
        name: part.name,
        value: part.each[at] ?? 0,
        text: cost(part.each[at] ?? 0),
        look: { class: part.layer === "" ? "not-path" : "", style: toneOf(part.layer) },
      })),
    })),
  });
  figure.append(
    h("details", {}, h("summary", {}, "By layer"), plain(costs.layers)),
    h("details", {}, h("summary", {}, "By function"), plain(costs.functions, { filter: (row) => `${row[0]?.text} ${row[1]?.text}`, limit: 30 })),
  );
  return figure;
}
