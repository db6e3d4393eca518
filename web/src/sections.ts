/** Sections of a page, each drawn by the kinds of its parts. */
import { chartFigure } from "./chart";
import { codeFigure } from "./code";
import type { PageLedger, PagePart, PageSection, PageTable } from "./data";
import { h, section, type Child } from "./dom";
import { byLoss, foldedFlow } from "./flow";
import { heatFigure } from "./heat";
import { short, thousands } from "./number";
import { rateBars, rateTable } from "./rates";
import { looks } from "./series";
import { plain, wordsOf } from "./table";
import { threadsFigure } from "./threads";
import { tracedFigure } from "./traced";
import { costsFigure } from "./why";

const TITLE_LETTERS = 60;
const SENTENCE_LETTERS = 800;
/** Rows shown at first, and how many are filtered. */
const MOST_ROWS = 60;
const FEW_ROWS = 15;

/** A section; `barsDrawn`: whether bars of rates are on the page already. */
export function sectionOf(of: PageSection, barsDrawn: boolean): HTMLElement {
  return section(short(of.id, TITLE_LETTERS), short(of.title, TITLE_LETTERS), ...of.parts.flatMap((part) => drawn(part, barsDrawn)));
}

function drawn(part: PagePart, barsDrawn: boolean): Child[] {
  switch (part.kind) {
    case "sentences":
      return part.sentences.map((text) => h("p", { class: "sentence" }, short(text, SENTENCE_LETTERS)));
    case "table":
      return [declared(part)];
    case "rates":
      return [barsDrawn ? null : rateBars(part), rateTable(part)];
    case "charts": {
      const all = looks(part.charts);
      return [h("div", { class: "charts" }, ...part.charts.map((chart) => chartFigure(chart, all)))];
    }
    case "costs":
      return [costsFigure(part)];
    case "flows":
      return byLoss(part.flows).map(foldedFlow);
    case "ledgers":
      return part.ledgers.map(ledger);
    case "heat":
      return part.cells.length > 0 ? [heatFigure(part)] : [];
    case "threads":
      return threadsFigure(part);
    case "code":
      return codeFigure(part.functions);
    case "traced":
      return tracedFigure(part);
  }
}

/** A table as it is; one with many rows is filtered by their words. */
const declared = (table: PageTable): HTMLElement => plain(table, { limit: MOST_ROWS, ...(table.rows.length > FEW_ROWS ? { filter: wordsOf } : {}) });

/** What a workload sent and received. */
function ledger(of: PageLedger): HTMLElement {
  const lost = of.dropped.reduce((sum, [, count]) => sum + count, 0);
  return h(
    "p",
    { class: of.closes ? "" : "warnings" },
    `${short(of.arm, 80)}: ${thousands(of.offered)} offered = ${thousands(of.delivered)} delivered + ${thousands(lost)} dropped`,
    of.dropped.length > 0 ? ` (${of.dropped.map(([cause, count]) => `${short(cause, 60)} ${thousands(count)}`).join(", ")})` : "",
    of.closes ? "" : ". INVALID: some packets are missing without a cause.",
  );
}
