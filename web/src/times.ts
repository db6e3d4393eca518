/** A recording of times: stages, percentiles, histograms. */
import type { Page, PageCell, PageClass, PageColumn, PageStage, PageTimedFunction, PageTimes } from "./data";
import { h } from "./dom";
import { histogram, sparkline, span } from "./histogram";
import { nsUnit, plural, short } from "./number";
import { cellOf, columnsOf, figureOf, table, type Drawn } from "./table";

const NAME_LETTERS = 60;

/** Percentiles of a row as marks of its histogram, shifted by the correction. */
const marks = (columns: PageColumn[], cells: PageCell[], shift: number): [string, number | null][] =>
  ["p50", "p99", "p99.9"].map((key) => {
    const { value } = cellOf(columns, cells, key);
    return [key, value === null ? null : value + shift];
  });

/** The time of a stage per packet. */
export const meanOf = (times: PageTimes, stage: PageStage): number => figureOf(times.stage_columns ?? [], stage.cells, "mean");

/** The time of the whole path: its total, or the sum of its stages. */
export function wholeOf(times: PageTimes): number {
  const total = times.stages.find((stage) => stage.kind === "total");
  return total ? meanOf(times, total) : times.stages.reduce((sum, stage) => sum + meanOf(times, stage), 0);
}

/** The stages that the way is made of, in their order. */
export function parts(times: PageTimes): PageStage[] {
  return times.stages.filter((stage) => stage.kind !== "total");
}

/** Degrees between the hues of two stages: the golden angle, by which no two of them are alike. */
const APART = 137.508;

/** The style of a stage: its own hue; work solid, waiting hatched, unaccounted time grey. */
export function look(stage: PageStage, index: number): { class: string; style: Record<string, string | number> } {
  const kind = ["work", "wait"].includes(stage.kind) ? stage.kind : "unaccounted";
  // Several of a kind that is neither have hues, too.
  const chroma = stage.kind === "unaccounted" ? 0 : 0.11;
  return { class: kind, style: { "--hue": Math.round((250 + index * APART) % 360), "--chroma": chroma } };
}

/** The way of a class as one bar, as long as it takes. */
export function wayBar(times: PageTimes, most: number, named: boolean): HTMLElement {
  const all = parts(times);
  const wide = (stage: PageStage): number => (Math.max(meanOf(times, stage), 0) * 100) / (most || 1);
  return h(
    "span",
    { class: named ? "way named" : "way", role: "img", "aria-label": all.map((stage) => `${short(stage.name, 40)} ${nsUnit(meanOf(times, stage))}`).join(", ") },
    ...all.map((stage, i) =>
      h(
        "span",
        { class: look(stage, i).class, ...look(stage, i).style, "--wide": `${wide(stage)}%`, title: `${short(stage.name, 40)}: ${nsUnit(meanOf(times, stage))}` },
        named && wide(stage) > 9 ? h("span", { class: "label" }, short(stage.name, 24)) : null,
      ),
    ),
  );
}

/** The style of the bars of stages. */
export function key(each = "packet"): HTMLElement {
  const one = (look: string, name: string): HTMLElement => h("span", { class: "key" }, h("span", { class: `swatch ${look}`, "aria-hidden": "true", "--hue": 0, "--chroma": 0 }), name);
  const texts =
    each === "packet"
      ? ["work: a CPU processes the packet", "wait: the packet is queued", "unaccounted: in no stage"]
      : ["work: a CPU is busy with it", "wait: it is queued, or sleeps", "work or wait: not known"];
  return h("p", { class: "legend" }, one("work", texts[0]), one("wait", texts[1]), one("unaccounted", texts[2]));
}

/** The stages of a class. */
export function stagesPart(group: PageClass, times: PageTimes): HTMLElement {
  const whole = wholeOf(times);
  const of = (kind: string): number => times.stages.filter((s) => s.kind === kind).reduce((sum, s) => sum + meanOf(times, s), 0);
  const packets = (stage: PageStage): number => figureOf(times.stage_columns ?? [], stage.cells, "packets");
  const scale = span(times.stages.map((stage) => stage.buckets));
  const holder = h("div", { class: "chosen", "aria-live": "polite" });
  const show = (stage: PageStage): void => {
    holder.replaceChildren(histogram(`${short(stage.name, NAME_LETTERS)}, ${group.class}: ${plural(packets(stage), times.each ?? "packet")}, as read`, stage.buckets, marks(times.stage_columns ?? [], stage.cells, 0)));
  };
  const name: Drawn<PageStage> = {
    value: (r) => r.name,
    show: (r) =>
      h(
        "span",
        { class: "key" },
        h("span", r.kind === "total" ? { class: "swatch none", "aria-hidden": "true" } : { class: `swatch ${look(r, parts(times).indexOf(r)).class}`, "aria-hidden": "true", ...look(r, parts(times).indexOf(r)).style }),
        h("button", { type: "button", class: "link", title: "draw its histogram", onclick: () => show(r) }, short(r.name, NAME_LETTERS)),
      ),
    class: "stage",
  };
  const distribution: Drawn<PageStage> = { value: () => "", show: (r) => sparkline(r.buckets, scale), class: "spark-cell" };
  const columns = columnsOf<PageStage>(times.stage_columns ?? [], (r) => r.cells, { stage: name, distribution });
  const total = times.stages.find((stage) => stage.kind === "total") ?? times.stages[0];
  show(total);
  const each = times.each ?? "packet";
  const sums = (
    each === "packet"
      ? [`${nsUnit(of("work"))} of work`, `${nsUnit(of("wait"))} of waiting`, `${nsUnit(of("unaccounted"))} unaccounted`]
      : [`${nsUnit(of("work"))} of work`, `${nsUnit(of("wait"))} of waiting`, `${nsUnit(of("work or wait"))} of work or waiting`]
  ).join(" + ");
  return h(
    "div",
    {},
    h("p", { class: "sum" }, `${sums} = ${nsUnit(whole)}, the mean of ${each === "packet" ? "a packet's way" : "all that ended"}`),
    times.open ? h("p", { class: "warnings", role: "alert" }, short(times.open, 400)) : null,
    wayBar(times, Math.max(whole, parts(times).reduce((sum, stage) => sum + meanOf(times, stage), 0)), true),
    key(each),
    table({
      caption: `Stages of ${each === "packet" ? group.class : group.arm}, in their order; ns, as read; percentiles are of ${each}s that went through`,
      columns, rows: times.stages, sort: -1,
      rowClass: (r) => (r.kind === "total" ? "whole" : packets(r) === 0 ? "unmet" : ""),
    }),
    holder,
  );
}

/** Tables of timed functions: ones that can be ranked and, separately, ones too small. */
export function timedFunctions(page: Page, group: PageClass, times: PageTimes): HTMLElement {
  type Row = PageTimedFunction;
  const declared = group.columns ?? [];
  const about = (r: Row) => page.functions[r.function];
  const ranked = times.functions.filter((f) => !f.small);
  const small = times.functions.filter((f) => f.small);
  const scale = span(times.functions.map((f) => f.buckets));
  const holder = h("div", { class: "chosen", "aria-live": "polite" });
  const show = (r: Row): void => {
    holder.replaceChildren(
      histogram(`${short(about(r).name, NAME_LETTERS)}, ${group.class}: its calls as read; ${nsUnit(r.shift_ns)} of each are the probes'`, r.buckets, marks(declared, r.cells, r.shift_ns)),
    );
  };
  const name: Drawn<Row> = {
    value: (r) => about(r).name,
    show: (r) =>
      h("button", { type: "button", class: "link code", title: short(about(r).name, 400), onclick: () => show(r) }, short(about(r).name, NAME_LETTERS)),
    class: "name",
  };
  const each = group.per;
  const distribution: Drawn<Row> = { value: () => "", show: (r) => sparkline(r.buckets, scale), class: "spark-cell" };
  const all = columnsOf<Row>(declared, (r) => r.cells, { function: name, distribution });
  // Words that are the same everywhere have no information.
  const columns = all.filter((column) => !["module", "by"].includes(column.key) || new Set(times.functions.map(column.value)).size > 1);
  const few = columns.filter((column) => ["function", "layer", "calls", "self", "uncertainty", "distribution"].includes(column.key));
  const bySelf = (of: { key: string }[]): number => of.findIndex((column) => column.key === "self");
  if (ranked.length > 0) {
    show(ranked[0]);
  }
  return h(
    "div",
    {},
    h("p", { class: "sum" }, `${nsUnit(times.total_ns)} per ${each} in the functions that were timed; ${nsUnit(times.raw_ns)} as read. Percentiles and mean are of a call.`),
    table({
      caption: `Functions of ${group.class}; ns, corrected for the probes' own cost; a name draws the histogram below`,
      columns, rows: ranked, sort: bySelf(columns), limit: 50,
      filter: (r) => `${about(r).name} ${about(r).layer} ${about(r).module ?? ""}`,
    }),
    holder,
    small.length > 0
      ? h(
          "div",
          { class: "small" },
          h("h3", {}, "Too small to rank"),
          h("p", { class: "dim" }, "Their own time is less than what the correction may be off by: which of them takes more can't be told."),
          table({ caption: `Functions of ${group.class} that are too small to rank; ns per ${each}`, columns: few, rows: small, sort: bySelf(few), limit: 20 }),
        )
      : null,
  );
}
