/** Times of two sides, compared: a verdict for each quantity, with its interval drawn. */
import type { PageBoth, PageClass, PageColumn, PageCompared, PageTimes } from "./data";
import { h, s, section, type Child } from "./dom";
import { ratioPercent, short } from "./number";
import { columnsOf, declared, table, type Column } from "./table";
import { titleOf, type Glance } from "./tree";

const NAME_LETTERS = 60;
/** On the first screen there is no room for all columns. */
const FIRST_SCREEN = ["name", "before", "after", "difference", "change", "interval", "drawn", "verdict"];

type Keyed = Column<PageCompared> & { key: string };

/** Where ratios are drawn: as far from no change as the farthest end, to both sides. */
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
  const wide = 130;
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
function columns(declaredOnes: PageColumn[], rows: PageCompared[]): Keyed[] {
  const most = reach(rows);
  const cells = columnsOf<PageCompared>(declaredOnes.filter((column) => !column.own), (r) => r.cells);
  let at = 0;
  return declaredOnes.map((column): Keyed => {
    const key = column.key ?? "";
    if (column.own) {
      return { key, ...declared(column), value: () => "", show: (r) => drawn(r, most) };
    }
    const plain = cells[at++];
    switch (key) {
      case "name":
        return { key, ...plain, value: (r) => r.name, show: (r) => h("span", { class: r.what === "function" ? "code" : "", title: r.name.length > NAME_LETTERS ? short(r.name, 400) : null }, short(r.name, NAME_LETTERS)), class: "name" };
      case "difference":
        return { key, ...plain, show: (r) => h("span", { class: r.way }, plain.show?.(r)) };
      case "verdict":
        return { key, ...plain, show: (r) => h("strong", { class: r.way || "dim" }, short(r.verdict, 40)) };
      default:
        return { key, ...plain };
    }
  });
}

/** One line for each class: its whole. */
export function verdicts(glances: Glance[], current: () => number, open: (index: number) => void): HTMLElement {
  const rows = glances.flatMap((g) => {
    const whole = g.group.times?.compared.find((row) => row.what === "whole");
    return whole ? [{ ...whole, name: titleOf(g.group), index: g.index }] : [];
  });
  type Row = PageCompared & { index: number };
  const all = columns(glances[0]?.group.times?.columns ?? [], rows).filter((column) => FIRST_SCREEN.includes(column.key)) as Column<Row>[];
  all[0] = { title: "class", value: (r) => r.name, show: (r) => h("button", { type: "button", class: "link", onclick: () => open(r.index) }, short(r.name, 80)) };
  const body = table<Row>({ caption: "Every class, ns; the whole way, or all functions that both sides timed", columns: all, rows, sort: -1, limit: 40, current: (r) => r.index === current() });
  return section("classes", "Arms and classes", body);
}

/** The rows of a class, those that differ first. */
export function comparedPart(group: PageClass, times: PageTimes): HTMLElement {
  const of = (what: string): PageCompared[] => times.compared.filter((row) => row.what === what);
  const [wholes, stages, functions] = [of("whole"), of("stage"), of("function")];
  const differ = functions.filter((row) => row.way !== "");
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
          caption: `Functions of ${group.class}, own ns per ${group.per}: means of blocks; ${differ.length} of ${functions.length} differ`,
          columns: columns(times.columns ?? [], functions), rows: [...ordered, ...(stages.length > 0 ? [] : wholes)], sort: -1, limit: 40,
          filter: (row) => `${row.name} ${row.cells[1]?.text ?? ""} ${row.verdict}`,
          rowClass: (row) => (row.what === "whole" ? "whole" : ""),
        })
      : null,
    stages.length + functions.length === 0 ? h("p", {}, "Nothing of it is on both sides.") : null,
    ...times.notes.map((note) => h("p", { class: "dim" }, short(note, 2000))),
  );
}

/** Functions that two instruments saw. */
export function bothPart(group: PageClass, times: PageTimes): HTMLElement {
  const cells = columnsOf<PageBoth>(times.columns ?? [], (r) => r.cells);
  cells[0] = { ...cells[0], show: (r) => h("span", { class: "code" }, short(r.name, NAME_LETTERS)), class: "name" };
  return table<PageBoth>({
    caption: `Functions of ${group.class} that both instruments saw, per ${group.per}; own time includes functions below that were not timed`,
    columns: cells, rows: times.both, sort: 5, limit: 50, filter: (r) => r.name,
  });
}
