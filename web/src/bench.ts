/** Benches: how fast packets go, and where those went that did not. */
import { chartFigure, looks } from "./chart";
import type { PageBench } from "./data";
import { h, section } from "./dom";
import { flowFigure } from "./flow";
import { costsFigure } from "./why";

/** Ledgers that are drawn at once; the others are folded. */
const FEW = 4;

/** The parts of a page that benches make. */
export function benches(bench: PageBench): HTMLElement[] {
  const parts: HTMLElement[] = [];
  if (bench.charts.length > 0) {
    const all = looks(bench.charts);
    parts.push(section("rates", "Rates", h("div", { class: "charts" }, ...bench.charts.map((chart) => chartFigure(chart, all)))));
  }
  if (bench.costs.length > 0) {
    parts.push(section("why", "Why", ...bench.costs.map(costsFigure)));
  }
  if (bench.flows.length > 0) {
    // Those that don't add up come first: they say why there is no figure.
    const sorted = [...bench.flows].sort((a, b) => Number(b.invalid !== "") - Number(a.invalid !== ""));
    const rest = sorted.slice(FEW);
    const folded = h("details", { class: "more" }, h("summary", {}, `${rest.length} more`));
    folded.addEventListener("toggle", () => {
      if (folded.open && folded.children.length === 1) {
        folded.append(...rest.map(flowFigure));
      }
    });
    parts.push(section("flows", "Where packets went", ...sorted.slice(0, FEW).map(flowFigure), rest.length > 0 ? folded : null));
  }
  return parts;
}
