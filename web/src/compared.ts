/** Times of two sides, compared: a verdict for each quantity, with its interval drawn. */
import type { PageBoth, PageClass, PageCompared, PageTimes } from "./data";
import { h, s, section, type Child } from "./dom";
import { cost, ns, percent, ratioPercent, short } from "./number";
import { table, type Column } from "./table";
import { titleOf, type Glance } from "./tree";

const NAME_LETTERS = 60;

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

function columns(what: string, of: string, rows: PageCompared[]): Column<PageCompared>[] {
  const most = reach(rows);
  const pair = (row: PageCompared, at: number): string =>
    row.quantiles_ns[at] === null && row.quantiles_ns[at + 1] === null ? "-" : `${ns(row.quantiles_ns[at])} \u2192 ${ns(row.quantiles_ns[at + 1])}`;
  const name = what === "function" ? "code" : "";
  return [
    { title: what, value: (r) => r.name, show: (r) => h("span", { class: name, title: r.name.length > NAME_LETTERS ? short(r.name, 400) : null }, short(r.name, NAME_LETTERS)), class: "name" },
    ...(of === "" ? [] : [{ title: of, value: (r: PageCompared) => r.of, show: (r: PageCompared): Child => (r.of === "unaccounted" || r.of === "total" ? "" : short(r.of, 24)) }]),
    { title: "before", value: (r) => r.before_ns, show: (r) => ns(r.before_ns) },
    { title: "after", value: (r) => r.after_ns, show: (r) => ns(r.after_ns) },
    { title: "change", value: (r) => r.after_ns - r.before_ns, show: (r) => h("span", { class: r.way }, signed(r.after_ns - r.before_ns)) },
    { title: "%", value: (r) => (r.ratio ? r.ratio[0] : Number.NaN), show: (r) => (r.ratio ? ratioPercent(r.ratio[0]) : "-") },
    { title: "verdict", value: (r) => r.verdict, show: (r) => h("strong", { class: r.way || "dim" }, short(r.verdict, 40)) },
    { title: "95% interval", value: (r) => (r.ratio ? `${ratioPercent(r.ratio[1])} to ${ratioPercent(r.ratio[2])}` : ""), class: "number" },
    { title: "", value: () => "", show: (r) => drawn(r, most) },
    { title: "could see", hint: "the smallest change that would be found in four of five such runs", value: (r) => r.smallest ?? Number.NaN, show: (r) => (r.smallest === null ? "-" : percent(r.smallest * 100)) },
    { title: "p50", hint: "of a packet, or of a call with all that it calls, before and after", value: (r) => r.quantiles_ns[1] ?? Number.NaN, show: (r) => pair(r, 0) },
    { title: "p99", hint: "of a packet, or of a call with all that it calls, before and after", value: (r) => r.quantiles_ns[3] ?? Number.NaN, show: (r) => pair(r, 2) },
  ];
}

const signed = (value: number): string => (value > 0 ? `+${ns(value)}` : ns(value));

/** One line for each class: its whole. */
export function verdicts(glances: Glance[], current: () => number, open: (index: number) => void): HTMLElement {
  const rows = glances.flatMap((g) => {
    const whole = g.group.times?.compared.find((row) => row.what === "whole");
    return whole ? [{ ...whole, name: titleOf(g.group), of: "", index: g.index }] : [];
  });
  type Row = PageCompared & { index: number };
  const all = columns("class", "", rows) as Column<Row>[];
  all[0] = { title: "class", value: (r) => r.name, show: (r) => h("button", { type: "button", class: "link", onclick: () => open(r.index) }, short(r.name, 80)) };
  // On the first screen there is no room for all of it.
  const body = table<Row>({ caption: "Every class, ns; the whole way, or all functions that both sides timed", columns: all.slice(0, 8), rows, sort: -1, limit: 40, current: (r) => r.index === current() });
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
          columns: columns("stage", "kind", [...stages, ...wholes]), rows: [...stages, ...wholes], sort: -1,
          rowClass: (row) => (row.what === "whole" ? "whole" : ""),
        })
      : null,
    functions.length > 0
      ? table({
          caption: `Functions of ${group.class}, own ns per ${group.per}: means of blocks; ${differ.length} of ${functions.length} differ`,
          columns: columns("function", "layer", functions), rows: [...ordered, ...(stages.length > 0 ? [] : wholes)], sort: -1, limit: 40,
          filter: (row) => `${row.name} ${row.of} ${row.verdict}`,
          rowClass: (row) => (row.what === "whole" ? "whole" : ""),
        })
      : null,
    stages.length + functions.length === 0 ? h("p", {}, "Nothing of it is on both sides.") : null,
    ...times.notes.map((note) => h("p", { class: "dim" }, short(note, 2000))),
  );
}

/** Functions on two clocks. */
export function bothPart(group: PageClass, rows: PageBoth[]): HTMLElement {
  return table<PageBoth>({
    caption: `Functions of ${group.class} that both clocks saw, per ${group.per}; own time includes functions below that were not timed`,
    columns: [
      { title: "function", value: (r) => r.name, show: (r) => h("span", { class: "code" }, short(r.name, NAME_LETTERS)), class: "name" },
      { title: "calls", value: (r) => r.calls[0], show: (r) => cost(r.calls[0]) },
      { title: "own insns", value: (r) => r.insns[0], show: (r) => cost(r.insns[0]) },
      { title: "all insns", value: (r) => r.insns[1], show: (r) => cost(r.insns[1]) },
      { title: "calls timed", value: (r) => r.calls[1], show: (r) => cost(r.calls[1]) },
      { title: "own ns", value: (r) => r.ns[0], show: (r) => ns(r.ns[0]) },
      { title: "all ns", value: (r) => r.ns[1], show: (r) => ns(r.ns[1]) },
      { title: "ns/insn", value: (r) => (r.insns[1] > 0 ? r.ns[1] / r.insns[1] : Number.NaN), show: (r) => (r.insns[1] > 0 ? (r.ns[1] / r.insns[1]).toFixed(2) : "-") },
    ],
    rows, sort: 5, limit: 50, filter: (r) => r.name,
  });
}
