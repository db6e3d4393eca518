/** Times of two sides, compared: a verdict for each quantity, with its interval drawn. */
import type { PageClass, PageColumn, PageCompared, PageTable, PageTimes } from "./data";
import { h, s, type Child } from "./dom";
import { ratioPercent, short, unitOf } from "./number";
import { cellOf, columnsOf, plain, table, type Keyed } from "./table";
import type { Glance } from "./tree";

const NAME_LETTERS = 60;

/** The range of drawn ratios: as far from no change as the farthest end, to both sides. */
export function reach(rows: PageCompared[]): number {
  const ends = rows.flatMap((row) => (row.ratio ? [row.ratio[1], row.ratio[2]] : []));
  const most = Math.max(...ends.map((ratio) => Math.abs(Math.log(Math.max(ratio, 1e-3)))), 0.01);
  // Beyond twice and half everything is far.
  return Math.min(most, Math.log(4));
}

/** An interval as a line beside no change. */
function drawn(row: PageCompared, most: number): Child {
  if (!row.ratio) {
    return null;
  }
  const wide = 84;
  const x = (ratio: number): number => {
    const at = Math.log(Math.max(ratio, 1e-3)) / most;
    return wide / 2 + Math.max(-1, Math.min(1, at)) * (wide / 2 - 4);
  };
  const [value, low, high] = row.ratio;
  return s(
    "svg",
    { class: `interval ${row.way}`, viewBox: `0 0 ${wide} 16`, width: wide, height: 16, role: "img", "aria-label": `${ratioPercent(low)} to ${ratioPercent(high)}` },
    s("line", { x1: wide / 2, x2: wide / 2, y1: 0, y2: 16, class: "none" }),
    s("line", { x1: x(low), x2: Math.max(x(high), x(low) + 1), y1: 8, y2: 8, class: "range" }),
    s("circle", { cx: x(value), cy: 8, r: 3.2 }),
  );
}

/** The columns that the report declares, with what the page draws in them. */
function columns(declared: PageColumn[], rows: PageCompared[]): Keyed<PageCompared>[] {
  const most = reach(rows);
  const text = (r: PageCompared, key: string): string => cellOf(declared, r.cells, key).text;
  const named = (r: PageCompared): HTMLElement =>
    h("span", { class: r.what === "function" || r.what === "inclusive" ? "code" : "", title: text(r, "name").length > NAME_LETTERS ? short(text(r, "name"), 400) : null }, short(text(r, "name"), NAME_LETTERS));
  return columnsOf<PageCompared>(declared, (r) => r.cells, {
    name: { show: named, class: "name" },
    difference: { show: (r) => h("span", { class: r.way }, text(r, "difference")) },
    verdict: { show: (r) => h("strong", { class: r.way || "dim" }, short(text(r, "verdict"), 40)) },
    drawn: { value: () => "", show: (r) => drawn(r, most) },
  });
}

/** The whole of a class that has verdicts. */
export const wholeOf = (g: Glance): PageCompared | undefined => g.group.times?.compared.find((row) => row.what === "whole");

/** Its interval in the table of all classes. */
export function interval(all: Glance[]): (g: Glance) => Child {
  const most = reach(all.flatMap((g) => wholeOf(g) ?? []));
  return (g) => {
    const whole = wholeOf(g);
    return whole ? drawn(whole, most) : null;
  };
}

/** The rows of a class, those that differ first. */
export function comparedPart(group: PageClass, times: PageTimes, unit: string): HTMLElement {
  const of = (what: string): PageCompared[] => times.compared.filter((row) => row.what === what);
  const [wholes, stages, functions, inclusive] = [of("whole"), of("stage"), of("function"), of("inclusive")];
  const differs = (row: PageCompared): boolean => row.way !== "";
  const differ = functions.filter(differs);
  const ordered = [...differ, ...functions.filter((row) => row.way === "")];
  return h(
    "div",
    {},
    stages.length > 0
      ? table({
          caption: `Stages of ${group.class}, ns per ${group.per}: means of blocks`,
          columns: columns(times.stage_columns ?? [], [...stages, ...wholes]), rows: [...stages, ...wholes], sort: -1,
          rowClass: (row) => (row.what === "whole" ? "whole" : ""),
        })
      : null,
    functions.length > 0
      ? table({
          caption: `Functions of ${group.class}, own ${unitOf(unit, group.per)}: means of blocks; ${differ.length} of ${functions.length} differ`,
          columns: columns(times.columns ?? [], functions), rows: [...ordered, ...(stages.length > 0 ? [] : wholes)], sort: -1, limit: 40,
          filter: (row) => ["name", "of", "verdict"].map((key) => cellOf(times.columns ?? [], row.cells, key).text).join(" "),
          rowClass: (row) => (row.what === "whole" ? "whole" : ""),
        })
      : null,
    inclusive.length > 0
      ? table({
          caption: `Functions of ${group.class} with all that they call, ${unitOf(unit, group.per)}: means of blocks; ${inclusive.filter(differs).length} of ${inclusive.length} differ`,
          columns: columns(times.columns ?? [], inclusive), rows: [...inclusive.filter(differs), ...inclusive.filter((row) => !differs(row))], sort: -1, limit: 20,
          filter: (row) => ["name", "of", "verdict"].map((key) => cellOf(times.columns ?? [], row.cells, key).text).join(" "),
        })
      : null,
    stages.length + functions.length === 0 ? h("p", {}, "Nothing of it is on both sides.") : null,
    ...times.notes.map((note) => h("p", { class: "dim" }, short(note, 2000))),
  );
}

/** Functions that two instruments saw. */
export function bothPart(both: PageTable): HTMLElement {
  return plain(both, { sort: both.columns.findIndex((column) => column.key === "self_ns"), limit: 50, filter: (row) => row[0]?.text ?? "" });
}
