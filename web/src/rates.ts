/** The rates of a bench's arms: bars with their intervals and losses, a table, footnotes. */
import type { PageArm, PageRates } from "./data";
import { h } from "./dom";
import { plural, short } from "./number";
import { amount } from "./plot";
import { columnsOf, table } from "./table";

const NAME_LETTERS = 60;
const MARK_LETTERS = 120;
/** With more arms than this, bars are low, lie in a box that scrolls, and are filtered. */
const MOST_ARMS = 14;

/** Packets sent to an arm per second: handled and lost ones. */
export const sent = (arm: PageArm): number => (arm.pps ?? 0) / Math.max(1 - Math.min(arm.lost, 1), 1e-9);

/** The rate that fills the width. */
export const longest = (arms: PageArm[]): number => Math.max(...arms.map((arm) => Math.max(sent(arm), arm.high ?? 0)), 1e-9);

const kindOf = (arm: PageArm): string => (arm.state === "measured" ? (arm.lost > 0 ? "lost" : "") : arm.state);

/** An arm's bar in words, for screen readers. */
function described(arm: PageArm): string {
  const interval = arm.low !== null && arm.high !== null ? `, ${amount(arm.low)} to ${amount(arm.high)}` : "";
  return `${amount(arm.pps ?? 0)} packets/s${interval}`;
}

/** Bars of all arms. */
export function rateBars(rates: PageRates): HTMLElement {
  const { arms } = rates;
  const most = longest(arms);
  const share = (value: number): string => `${(Math.max(value, 0) * 100) / most}%`;
  const bar = (arm: PageArm): HTMLElement => {
    const pps = arm.pps ?? 0;
    return h(
      "span",
      { class: "track", role: "img", "aria-label": described(arm) },
      h("span", { class: "bar", "--from": "0%", "--wide": share(pps) }),
      arm.lost > 0 ? h("span", { class: "bar gone", "--from": share(pps), "--wide": share(sent(arm) - pps), title: "lost" }) : null,
      arm.low !== null && arm.high !== null ? h("span", { class: "whisker", "--from": share(arm.low), "--wide": share(arm.high - arm.low), title: `${amount(arm.low)} to ${amount(arm.high)}` }) : null,
    );
  };
  const rows = arms.map((arm) => {
    const mark = h("span", { class: "mark-text", title: arm.mark.length > MARK_LETTERS ? short(arm.mark, 600) : null }, short(arm.mark, MARK_LETTERS));
    return h(
      "li",
      { class: kindOf(arm) },
      h("span", { class: "name", title: arm.name.length > NAME_LETTERS ? short(arm.name, 400) : null }, short(arm.name, NAME_LETTERS)),
      h("span", { class: "number" }, arm.pps === null ? "" : amount(arm.pps)),
      arm.pps === null ? mark : bar(arm),
      arm.pps === null ? null : mark,
    );
  });
  const many = arms.length > MOST_ARMS;
  const list = h("ol", {}, ...rows);
  const lossy = arms.some((arm) => arm.lost > 0);
  const figure = h(
    "figure",
    { class: `bars rates${many ? " many" : ""}` },
    h(
      "figcaption",
      {},
      `${short(rates.title, 200)}`,
      lossy ? h("span", { class: "key" }, h("span", { class: "swatch gone", "aria-hidden": "true" }), "sent and lost") : null,
    ),
    many ? filterOf(arms, rows) : null,
    many ? h("div", { class: "rows", tabindex: 0, role: "region", "aria-label": `Bars of ${plural(arms.length, "arm")}` }, list) : list,
  );
  return figure;
}

/** Keeps the rows that contain all of some words, and returns their number. */
function filterOf(arms: PageArm[], rows: HTMLElement[]): HTMLElement {
  const status = h("span", { class: "status", role: "status", "aria-live": "polite" });
  const input = h("input", { type: "search", placeholder: "words of its name or mark", oninput: () => draw() });
  const draw = (): void => {
    const words = input.value.toLowerCase().split(/\s+/);
    const shown = arms.map((arm) => words.every((word) => `${arm.name} ${arm.mark}`.toLowerCase().includes(word)));
    rows.forEach((row, i) => row.toggleAttribute("hidden", !shown[i]));
    const count = shown.filter(Boolean).length;
    status.textContent = count === arms.length ? plural(count, "arm") : `${count} of ${plural(arms.length, "arm")}`;
  };
  draw();
  return h("div", { class: "tools" }, h("label", { class: "field" }, h("span", {}, "Arms"), input), status);
}

/** All arms as a table, with footnotes. */
export function rateTable(rates: PageRates): HTMLElement {
  const columns = columnsOf<PageArm>(rates.columns, (arm) => arm.cells, { arm: { class: "name" }, note: { class: "note" } });
  return h(
    "div",
    {},
    table<PageArm>({
      caption: "Every arm; those without a valid block first, then those that lost packets",
      columns,
      rows: rates.arms,
      sort: -1,
      limit: 200,
      ...(rates.arms.length > MOST_ARMS ? { filter: (arm: PageArm) => `${arm.name} ${arm.mark}` } : {}),
      rowClass: kindOf,
    }),
    rates.notes.length > 0
      ? h(
          "ul",
          { class: "footnotes", "aria-label": "Notes" },
          ...rates.notes.map((note) => h("li", {}, h("strong", {}, note.arms.map((arm) => short(arm, NAME_LETTERS)).join(", ")), ": ", short(note.text, 600))),
        )
      : null,
  );
}
