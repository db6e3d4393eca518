/** Benches: rates of packets, and where the others were lost. */
import { chartFigure } from "./chart";
import type { PageBench, PageFlow } from "./data";
import { fold, h, section } from "./dom";
import { flowFigure, lostOf } from "./flow";
import { short, thousands } from "./number";
import { latencyPart, rateBars, rateTable } from "./rates";
import { looks } from "./series";
import { costsFigure } from "./why";

/** The most unfolded ledgers, of those with losses. */
const FEW = 4;

/** A bench's parts of a page. `drawn`: whether the bars are on it already. */
export function benches(bench: PageBench, drawn: boolean): HTMLElement[] {
  const parts: HTMLElement[] = [];
  if (bench.rates.arms.length > 0 || bench.charts.length > 0) {
    const all = looks(bench.charts);
    parts.push(
      section(
        "rates",
        "Rates",
        drawn || bench.rates.arms.length === 0 ? null : rateBars(bench.rates),
        bench.rates.arms.length > 0 ? rateTable(bench.rates) : null,
        h("div", { class: "charts" }, ...bench.charts.map((chart) => chartFigure(chart, all))),
      ),
    );
  }
  if (bench.latency) {
    parts.push(section("latency", "Latency", latencyPart(bench.latency)));
  }
  if (bench.costs.length > 0) {
    parts.push(section("why", "Why", ...bench.costs.map(costsFigure)));
  }
  if (bench.flows.length > 0) {
    parts.push(section("flows", "Where packets went", ...byLoss(bench.flows).map(foldedFlow)));
  }
  return parts;
}

/** Ledgers that don't add up first, as they explain missing figures; then the largest losses. */
export function byLoss(flows: PageFlow[]): PageFlow[] {
  const rank = (flow: PageFlow): number => (flow.invalid === "" ? lostOf(flow) : 2);
  return [...flows].sort((a, b) => rank(b) - rank(a));
}

/** A ledger under its name, with the losses. */
function foldedFlow(flow: PageFlow, at: number): HTMLElement {
  const lost = lostOf(flow);
  const [sent, left] = [flow.hops[0]?.entered ?? 0, flow.hops.at(-1)?.left ?? 0];
  const said = flow.invalid !== "" ? "no measurement" : lost > 0 ? `${thousands(sent - left)} of ${thousands(sent)} lost` : "nothing lost";
  return fold(
    [h("span", { class: "name" }, short(flow.title, 200)), " ", h("span", { class: flow.invalid !== "" || lost > 0 ? "more" : "dim" }, said)],
    () => [flowFigure(flow)],
    { class: "flow-fold", open: at < FEW && (flow.invalid !== "" || lost > 0) },
  );
}
