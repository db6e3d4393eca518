/** Samples of guests: a timer's view, compared to executed instructions; and the shares that an experiment asks for. */
import type { PageCell, PageSection } from "./data";
import { h, section } from "./dom";
import { short } from "./number";
import { cellOf, columnsOf, figureOf, table } from "./table";

const MOST_ROWS = 15;
const CAPTION_LETTERS = 200;
/** A larger error is worth showing. */
const MUCH = 0.01;

/** A table for each arm, with its conclusions. */
export function sampledPart(all: PageSection[]): HTMLElement | null {
  return part("sampled", "Samples and a timer", all, "off_by", (of) => Math.abs(of("off_by")) >= MUCH);
}

/** A table for each of the experiment's shares, with its conclusions. */
export function sharesPart(all: PageSection[]): HTMLElement | null {
  const executed = (of: (key: string) => number): number => of("exact") || of("samples");
  return part("shares", "Shares of functions", all, "timer", (of) => of("timer") - executed(of) >= MUCH);
}

/** Tables in which one column is highlighted where a row has a large error. */
function part(id: string, title: string, all: PageSection[], key: string, isOff: (of: (key: string) => number) => boolean): HTMLElement | null {
  if (all.length === 0) {
    return null;
  }
  const one = ({ table: of, sentences }: PageSection): HTMLElement => {
    const shown = (row: PageCell[]): HTMLElement =>
      h("span", { class: isOff((key) => figureOf(of.columns, row, key)) ? "off" : null }, cellOf(of.columns, row, key).text);
    return h(
      "div",
      { class: "sampled" },
      table<PageCell[]>({
        caption: short(of.caption, CAPTION_LETTERS),
        columns: columnsOf<PageCell[]>(of.columns, (row) => row, { [key]: { show: shown } }),
        rows: of.rows,
        sort: -1,
        limit: MOST_ROWS,
        filter: (row) => row.map((cell) => cell.text).join(" "),
      }),
      ...sentences.map((text) => h("p", { class: "sentence" }, short(text, 400))),
    );
  };
  return section(id, title, ...all.map(one));
}
