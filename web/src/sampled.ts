/** Samples of guests: what a timer would see, beside what was executed. */
import type { PageSampled } from "./data";
import { h, section } from "./dom";
import { short } from "./number";
import { figureOf, plain } from "./table";

const MOST_ROWS = 15;

/** A table for each arm, under what it comes to. */
export function sampledPart(all: PageSampled[]): HTMLElement | null {
  if (all.length === 0) {
    return null;
  }
  const one = ({ table, blamed }: PageSampled): HTMLElement[] => [
    ...blamed.map((text) => h("p", { class: "sentence" }, short(text, 400))),
    plain(table, {
      sort: -1,
      limit: MOST_ROWS,
      filter: (row) => row[0]?.text ?? "",
      // What a timer sees too much of, by more than it is worth talking about.
      rowClass: (row) => (Math.abs(figureOf(table.columns, row, "off_by")) >= 0.01 ? "off" : ""),
    }),
  ];
  return section("sampled", "Samples and a timer", ...all.flatMap(one));
}
