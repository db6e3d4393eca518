/** Tables that sort, filter, and copy as CSV. */
import type { PageCell, PageColumn, PageTable } from "./data";
import { plural, short, thousands } from "./number";
import { copy, cued, field, h, type Child } from "./dom";

export interface Column<Row> {
  title: string;
  /** An explanation, shown at the heading. */
  hint?: string;
  /** To sort by, and for CSV. */
  value: (row: Row) => number | string;
  /** The shown text; the value, if this is missing. */
  show?: (row: Row) => Child;
  class?: string;
}

export interface Options<Row> {
  caption: string;
  columns: Column<Row>[];
  rows: Row[];
  /** The column that it is sorted by first, the largest first; -1 to keep the rows' order. */
  sort: number;
  /** By size, whatever the sign. */
  bySize?: boolean;
  /** The text that the filter searches. */
  filter?: (row: Row) => string;
  /** Rows shown before "show all". */
  limit?: number;
  rowClass?: (row: Row) => string;
  current?: (row: Row) => boolean;
}

const TITLE_LETTERS = 40;
const HINT_LETTERS = 200;
const CELL_LETTERS = 60;
const WORDS_LETTERS = 400;
const CAPTION_LETTERS = 200;

/** The cell of a row in the column of a key. */
export function cellOf(columns: PageColumn[], cells: PageCell[], key: string): PageCell {
  const at = columns.filter((column) => !column.own).findIndex((column) => column.key === key);
  return cells[at] ?? { text: "", value: null };
}

/** The figure there; 0 where there is none. */
export const figureOf = (columns: PageColumn[], cells: PageCell[], key: string): number => cellOf(columns, cells, key).value ?? 0;

/** The part of a column that is drawn here: without title and hint, which are the report's. */
export type Drawn<Row> = Omit<Column<Row>, "title" | "hint">;

/**
 * The columns that the report declares, for rows that have its cells. An entry in `drawn`, by a column's key,
 * replaces its cells, or a part of how they are shown. A column that is only drawn here, without such an entry, is
 * left out.
 */
export function columnsOf<Row>(columns: PageColumn[], cells: (row: Row) => PageCell[], drawn: Record<string, Partial<Drawn<Row>> | undefined> = {}): Keyed<Row>[] {
  let next = 0;
  return columns.flatMap((column): Keyed<Row>[] => {
    const key = column.key ?? "";
    const own = drawn[key];
    const said = { key, title: short(column.title, TITLE_LETTERS), hint: short(column.hint, HINT_LETTERS) };
    if (column.own) {
      return own?.value ? [{ ...said, ...own, value: own.value }] : [];
    }
    const at = next++;
    const text = (row: Row): string => cells(row)[at]?.text ?? "";
    const shown = (row: Row): string => short(text(row), column.words ? WORDS_LETTERS : CELL_LETTERS);
    return [{
      ...said,
      value: (row) => (column.words ? text(row) : (cells(row)[at]?.value ?? Number.NaN)),
      show: (row) => {
        const off = cells(row)[at]?.off ?? false;
        return column.code || off ? h("span", { class: column.code ? "code" : "off" }, shown(row)) : shown(row);
      },
      ...(column.code ? { class: "name" } : {}),
      ...own,
    }];
  });
}

/** A column that is known by a key. */
export type Keyed<Row> = Column<Row> & { key: string };

/** All words of a row. */
export const wordsOf = (row: PageCell[]): string => row.map((cell) => cell.text).join(" ");

/** A table that the report declares, drawn as it is. */
export function plain(of: PageTable, options: Partial<Options<PageCell[]>> = {}): HTMLElement {
  return table<PageCell[]>({
    caption: short(of.caption, CAPTION_LETTERS),
    columns: columnsOf<PageCell[]>(of.columns, (row) => row),
    rows: of.rows,
    sort: -1,
    ...options,
  });
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

/** Order of two values; values that are not numbers are last. */
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
    cued(h(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
      h("table", {}, h("caption", {}, caption), h("thead", {}, h("tr", {}, ...heads)), body),
    )),
    more,
  );
}
