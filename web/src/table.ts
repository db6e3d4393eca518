/** Tables that sort, filter, and copy as CSV. */
import type { PageCell, PageColumn } from "./data";
import { plural, short, thousands } from "./number";
import { copy, field, h, type Child } from "./dom";

export interface Column<Row> {
  title: string;
  /** What it is, for who points at the heading. */
  hint?: string;
  /** To sort by, and for CSV. */
  value: (row: Row) => number | string;
  /** As it is shown; the value, if this is missing. */
  show?: (row: Row) => Child;
  class?: string;
}

export interface Options<Row> {
  caption: string;
  columns: Column<Row>[];
  rows: Row[];
  /** The column that it is sorted by first, the largest first; -1 for as the rows come. */
  sort: number;
  /** By size, whatever the sign. */
  bySize?: boolean;
  /** What the filter looks at. */
  filter?: (row: Row) => string;
  /** Rows shown before "show all". */
  limit?: number;
  rowClass?: (row: Row) => string;
  current?: (row: Row) => boolean;
}

const TITLE_LETTERS = 40;
const HINT_LETTERS = 200;
const CELL_LETTERS = 60;

/** What the report says of a column. */
export function declared(column: PageColumn): { title: string; hint: string } {
  return { title: short(column.title, TITLE_LETTERS), hint: short(column.hint, HINT_LETTERS) };
}

/** Columns that the report declares, of rows that have its cells. */
export function columnsOf<Row>(columns: PageColumn[], cells: (row: Row) => PageCell[]): Column<Row>[] {
  return columns.map((column, at): Column<Row> => ({
    ...declared(column),
    value: (row) => (column.words ? (cells(row)[at]?.text ?? "") : (cells(row)[at]?.value ?? Number.NaN)),
    show: (row) => short(cells(row)[at]?.text ?? "", CELL_LETTERS),
  }));
}

/** One cell for a spreadsheet: never a formula. */
function cell(value: number | string): string {
  if (typeof value === "number") {
    return Number.isFinite(value) ? String(value) : "";
  }
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\n\r]|^'|^\s|\s$/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Rows as CSV (RFC 4180). */
export function csv<Row>(columns: Column<Row>[], rows: Row[]): string {
  const named = columns.filter((c) => c.title !== "");
  const lines = [named.map((c) => cell(c.title)), ...rows.map((row) => named.map((c) => cell(c.value(row))))];
  return lines.map((line) => line.join(",")).join("\r\n") + "\r\n";
}

/** Order of two values; what is no number is last. */
export function compare(a: number | string, b: number | string, bySize: boolean): number {
  if (typeof a === "number" && typeof b === "number") {
    if (Number.isNaN(a) || Number.isNaN(b)) {
      return Number(Number.isNaN(b)) - Number(Number.isNaN(a));
    }
    return bySize ? Math.abs(a) - Math.abs(b) : a - b;
  }
  return String(a).localeCompare(String(b), "en", { numeric: true });
}

/** A table, with its controls. */
export function table<Row>(options: Options<Row>): HTMLElement {
  const { columns, rows, caption } = options;
  let sorted = options.sort;
  let down = true;
  let needle = "";
  let limit = options.limit ?? 100;
  const isNumber = columns.map((c) => rows.length > 0 && typeof c.value(rows[0]) === "number");
  const body = h("tbody");
  const status = h("span", { class: "status", role: "status", "aria-live": "polite" });
  const more = h("button", { type: "button", class: "more", onclick: () => showAll() });
  const heads = columns.map((column, index) =>
    h(
      "th",
      { scope: "col", class: `${isNumber[index] ? "number " : ""}${column.class ?? ""}`, title: column.hint },
      column.title === ""
        ? null
        : h("button", { type: "button", class: "sort", onclick: () => sortBy(index) }, column.title),
    ),
  );

  function chosen(): Row[] {
    const kept = needle === "" || !options.filter
      ? rows.slice()
      : rows.filter((row) => (options.filter as (row: Row) => string)(row).toLowerCase().includes(needle));
    if (sorted < 0) {
      return kept;
    }
    const value = columns[sorted].value;
    const keys = new Map(kept.map((row) => [row, value(row)]));
    const sign = down ? -1 : 1;
    const bySize = options.bySize ?? false;
    return kept.sort((a, b) => sign * compare(keys.get(a) as number, keys.get(b) as number, bySize));
  }

  function draw(): void {
    const all = chosen();
    const shown = all.slice(0, limit);
    body.replaceChildren(
      ...shown.map((row) =>
        h(
          "tr",
          { class: options.rowClass?.(row) ?? "", "aria-current": options.current?.(row) ? "true" : null },
          ...columns.map((column, index) => {
            const content = column.show ? column.show(row) : String(column.value(row));
            const className = `${isNumber[index] ? "number " : ""}${column.class ?? ""}`;
            return index === 0
              ? h("th", { scope: "row", class: className }, content)
              : h("td", { class: className }, content);
          }),
        ),
      ),
    );
    heads.forEach((head, index) => {
      if (index === sorted) {
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
      } else {
        head.removeAttribute("aria-sort");
      }
    });
    status.textContent = all.length === rows.length ? plural(rows.length, "row") : `${thousands(all.length)} of ${plural(rows.length, "row")}`;
    more.hidden = all.length <= limit;
    more.textContent = `Show all ${thousands(all.length)}`;
  }

  function sortBy(index: number): void {
    down = index === sorted ? !down : isNumber[index];
    sorted = index;
    draw();
  }

  function showAll(): void {
    limit = Number.POSITIVE_INFINITY;
    draw();
  }

  const filter = options.filter
    ? h("input", {
        type: "search",
        placeholder: "name, layer, module, source",
        oninput: () => {
          needle = (filter as HTMLInputElement).value.trim().toLowerCase();
          draw();
        },
      })
    : null;
  const copied = h("button", {
    type: "button",
    onclick: async () => {
      const done = await copy(csv(columns, chosen()));
      copied.textContent = done ? "Copied" : "Could not copy";
      setTimeout(() => (copied.textContent = "Copy as CSV"), 1500);
    },
  }, "Copy as CSV");
  draw();
  return h(
    "div",
    { class: "table" },
    h("div", { class: "tools" }, filter && field("Filter", filter), status, h("span", { class: "spring" }), copied),
    h(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
      h("table", {}, h("caption", {}, caption), h("thead", {}, h("tr", {}, ...heads)), body),
    ),
    more,
  );
}
