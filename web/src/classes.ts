/** All arms and classes in one table. */
import type { Page, PageCell, PageTable } from "./data";
import { toneOf, order } from "./colour";
import { interval, wholeOf as comparedWhole } from "./compared";
import { h, section, type Child } from "./dom";
import { change, cost, costIn, short } from "./number";
import { cellOf, columnsOf, table } from "./table";
import { key, wayBar, wholeOf } from "./times";
import type { Glance } from "./tree";

/** A class, and its cells of the summary. */
interface Row {
  glance: Glance;
  cells: PageCell[];
}

/** One line for each arm and class, as the report declares it; the parts of a class are drawn here. */
export function summary(page: Page, of: PageTable, glances: Glance[], current: () => number, open: (index: number) => void): HTMLElement {
  const rows = glances.map((glance): Row => ({ glance, cells: of.rows[glance.index] ?? [] }));
  const text = (row: Row, name: string): string => cellOf(of.columns, row.cells, name).text;
  const staged = glances.every((g) => (g.group.times?.stages ?? []).length > 0);
  const picture = pictureOf(page, glances, staged);
  // As sure as the verdict is, where there is one.
  const way = (row: Row, name: string): string => comparedWhole(row.glance)?.way ?? wayOf(cellOf(of.columns, row.cells, name).value ?? 0);
  const columns = columnsOf<Row>(of.columns, (row) => row.cells, {
    class: { show: (row) => h("button", { type: "button", class: "link", onclick: () => open(row.glance.index) }, short(text(row, "class"), 80)) },
    arm: { class: "arm" },
    per: { class: "per" },
    layer: { class: "wide" },
    function: { show: (row) => h("span", { class: "code" }, short(text(row, "function"), 60)), class: "wide" },
    difference: { show: (row) => h("span", { class: way(row, "difference") }, text(row, "difference")) },
    verdict: { show: (row) => h("strong", { class: way(row, "difference") || "dim" }, short(text(row, "verdict"), 40)) },
    drawn: { value: () => "", show: (row) => picture(row.glance), class: page.diff ? "" : "stack-cell" },
  });
  const body = table<Row>({
    caption: short(of.caption, 200),
    columns,
    rows,
    sort: staged || columns.some((column) => column.key === "verdict") ? -1 : columns.findIndex((column) => column.key === (page.diff ? "difference" : "cost")),
    bySize: page.diff,
    filter: (row) => row.cells.map((cell) => cell.text).join(" "),
    limit: 40,
    current: (row) => row.glance.index === current(),
  });
  return section("classes", "Arms and classes", body, staged ? key(glances.every((g) => g.group.times?.each) ? "span" : "packet") : null);
}

/** The parts of a class: an interval, stages or layers. */
function pictureOf(page: Page, all: Glance[], staged: boolean): (g: Glance) => Child {
  if (page.diff) {
    return interval(all);
  }
  if (staged) {
    const times = (g: Glance) => g.group.times as NonNullable<typeof g.group.times>;
    const most = Math.max(...all.map((g) => wholeOf(times(g))), 1e-9);
    return (g) => wayBar(times(g), most, false);
  }
  const most = Math.max(...all.map((g) => g.after), 1e-9);
  return (g) => stack(g, most, costIn(page.unit));
}

const wayOf = (delta: number): string => (delta < 0 ? "less" : delta > 0 ? "more" : "");

export function changeCell(before: number, after: number, show = cost): HTMLElement {
  const delta = after - before;
  return h("span", { class: wayOf(delta) }, change(delta, show));
}

/** The layers of a class as one bar, as long as its cost. */
function stack(g: Glance, most: number, show: (value: number) => string): HTMLElement {
  const layers = [...g.layers].filter(([, [after]]) => after > 0).sort(([a], [b]) => order(a) - order(b));
  return h(
    "span",
    { class: "stack", "aria-hidden": "true" },
    ...layers.map(([layer, [after]]) =>
      h("span", { title: `${short(layer, 40)} ${show(after)}`, "--wide": `${(after * 100) / most}%`, ...toneOf(layer) }),
    ),
  );
}
