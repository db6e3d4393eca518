/** Samples by thread: a table, and when each thread ran, as a heat map of the time. */
import type { PageThreads } from "./data";
import { h, s, section } from "./dom";
import { nsUnit, percent, short, thousands } from "./number";
import { plain } from "./table";

const MOST_ROWS = 15;
const NAME_LETTERS = 32;

/** How dark a piece is: nothing is empty, the largest is full; what is small is still seen. */
export const darkness = (cost: number, most: number): number => (cost > 0 && most > 0 ? Math.max(0.12, Math.sqrt(cost / most)) : 0);

/** Of nanoseconds the part of a CPU that was busy; else the cost. */
export function told(of: PageThreads, cost: number): string {
  return of.unit === "ns" ? `${percent((cost * 100) / of.piece_ns)} of a CPU` : `${thousands(cost)} ${of.unit}`;
}

/** The section; nothing where no single samples were kept. */
export function threadsPart(of: PageThreads | null | undefined): HTMLElement | null {
  if (!of) {
    return null;
  }
  return section(
    "threads",
    "Threads",
    of.lines.some((line) => line.costs.length > 1) ? map(of) : null,
    plain(of.table, { sort: -1, limit: MOST_ROWS, filter: (row) => row.map((cell) => cell.text).join(" ") }),
  );
}

function map(of: PageThreads): HTMLElement {
  const most = Math.max(...of.lines.flatMap((line) => line.costs), 0);
  const count = Math.max(...of.lines.map((line) => line.costs.length), 1);
  const at = (piece: number): string => nsUnit(piece * of.piece_ns);
  const row = (line: PageThreads["lines"][number]): HTMLElement[] => [
    h("span", { class: "name", title: short(line.name, 200) }, short(line.name, NAME_LETTERS)),
    h(
      "div",
      {},
      s(
        "svg",
        { viewBox: `0 0 ${count} 1`, preserveAspectRatio: "none", role: "img", "aria-label": `${short(line.name, 200)}: at most ${told(of, Math.max(...line.costs, 0))}` },
        ...line.costs.map((cost, piece) =>
          cost > 0
            ? s("rect", { x: piece, y: 0, width: 1.02, height: 1, "fill-opacity": darkness(cost, most).toFixed(3) }, s("title", {}, `${at(piece)} to ${at(piece + 1)}: ${told(of, cost)}`))
            : null,
        ),
      ),
    ),
  ];
  return h(
    "figure",
    { class: "heat" },
    h("figcaption", {}, `When each thread ran; the darkest is ${told(of, most)}, in pieces of ${nsUnit(of.piece_ns)}`),
    h("div", { class: "heat-rows" }, ...of.lines.flatMap(row), h("span", {}), h("div", { class: "heat-axis" }, h("span", {}, "0"), h("span", {}, at(count / 2)), h("span", {}, at(count)))),
  );
}
