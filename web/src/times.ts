/** A recording of times: stages, percentiles, histograms, and what was counted beside them. */
import type { Page, PageClass, PageCount, PageStage, PageTimed, PageTimedFunction, PageTimes } from "./data";
import { h, section, type Child } from "./dom";
import { histogram, sparkline, span } from "./histogram";
import { cost, ns, nsUnit, plural, short, thousands } from "./number";
import { columnsOf, table, type Column } from "./table";
import { titleOf, type Glance } from "./tree";

const NAME_LETTERS = 60;

const marks = (of: (number | null)[]): [string, number | null][] => [["p50", of[0]], ["p99", of[2]], ["p99.9", of[3]]];

/** What the whole way takes: as it was told, or what its stages come to. */
export function wholeOf(times: PageTimes): number {
  const total = times.stages.find((stage) => stage.kind === "total");
  return total ? total.mean_ns : times.stages.reduce((sum, stage) => sum + stage.mean_ns, 0);
}

/** The stages that the way is made of, in their order. */
export function parts(times: PageTimes): PageStage[] {
  return times.stages.filter((stage) => stage.kind !== "total");
}

/** What a stage is drawn with: work in one colour, waiting hatched in another. */
export function look(stage: PageStage, index: number): string {
  return `${["work", "wait", "unaccounted"].includes(stage.kind) ? stage.kind : "unaccounted"}${index % 2 ? " second" : ""}`;
}

/** The way of a class as one bar, as long as it takes. */
function wayBar(times: PageTimes, most: number, named: boolean): HTMLElement {
  const all = parts(times);
  const wide = (stage: PageStage): number => (Math.max(stage.mean_ns, 0) * 100) / (most || 1);
  return h(
    "span",
    { class: named ? "way named" : "way", role: "img", "aria-label": all.map((stage) => `${short(stage.name, 40)} ${nsUnit(stage.mean_ns)}`).join(", ") },
    ...all.map((stage, i) =>
      h(
        "span",
        { class: look(stage, i), "--wide": `${wide(stage)}%`, title: `${short(stage.name, 40)}: ${nsUnit(stage.mean_ns)}` },
        named && wide(stage) > 9 ? h("span", { class: "label" }, short(stage.name, 24)) : null,
      ),
    ),
  );
}

/** One line for each class of stages. */
export function ways(page: Page, glances: Glance[], current: () => number, open: (index: number) => void): HTMLElement {
  const times = (g: Glance): PageTimes => g.group.times as PageTimes;
  const total = (g: Glance): PageStage | undefined => times(g).stages.find((stage) => stage.kind === "total");
  const most = Math.max(...glances.map((g) => wholeOf(times(g))), 1e-9);
  const columns: Column<Glance>[] = [
    { title: "class", value: (g) => titleOf(g.group), show: (g) => h("button", { type: "button", class: "link", onclick: () => open(g.index) }, short(titleOf(g.group), 80)) },
    { title: "mean", hint: "of a packet's way", value: (g) => wholeOf(times(g)), show: (g) => ns(wholeOf(times(g))) },
    { title: "", value: () => "", show: (g) => wayBar(times(g), most, false), class: "stack-cell" },
    { title: "p50", value: (g) => total(g)?.percentiles_ns[0] ?? Number.NaN, show: (g) => ns(total(g)?.percentiles_ns[0]) },
    { title: "p99", value: (g) => total(g)?.percentiles_ns[2] ?? Number.NaN, show: (g) => ns(total(g)?.percentiles_ns[2]) },
  ];
  const body = table({
    caption: `A packet's way, class by class; ${page.unit}`,
    columns,
    rows: glances,
    sort: -1,
    limit: 40,
    current: (g) => g.index === current(),
  });
  return section("classes", "Arms and classes", body, key());
}

/** What the bars of stages are drawn with. */
function key(): HTMLElement {
  const one = (look: string, name: string): HTMLElement => h("span", { class: "key" }, h("span", { class: `swatch ${look}`, "aria-hidden": "true" }), name);
  return h("p", { class: "legend" }, one("work", "work: a CPU processes the packet"), one("wait", "wait: the packet is queued"), one("unaccounted", "unaccounted: in no stage"));
}

/** The stages of a class. */
export function stagesPart(group: PageClass, times: PageTimes): HTMLElement {
  const whole = wholeOf(times);
  const of = (kind: string): number => times.stages.filter((s) => s.kind === kind).reduce((sum, s) => sum + s.mean_ns, 0);
  const scale = span(times.stages.map((stage) => stage.buckets));
  const holder = h("div", { class: "chosen", "aria-live": "polite" });
  const show = (stage: PageStage): void => {
    holder.replaceChildren(histogram(`${short(stage.name, NAME_LETTERS)}, ${group.class}: ${plural(stage.packets, "packet")}, as read`, stage.buckets, marks(stage.percentiles_ns)));
  };
  const name: Column<PageStage> = {
    title: "stage",
    value: (r) => r.name,
    show: (r) =>
      h(
        "span",
        { class: "key" },
        h("span", { class: `swatch ${r.kind === "total" ? "none" : look(r, times.stages.indexOf(r))}`, "aria-hidden": "true" }),
        h("button", { type: "button", class: "link", title: "draw its histogram", onclick: () => show(r) }, short(r.name, NAME_LETTERS)),
      ),
    class: "stage",
  };
  const distribution: Column<PageStage> = { title: "distribution", value: () => "", show: (r) => sparkline(r.buckets, scale), class: "spark-cell" };
  const drawn: Record<string, Column<PageStage>> = { stage: name, distribution };
  const declaredOnes = times.stage_columns ?? [];
  const cells = columnsOf<PageStage>(declaredOnes.filter((column) => !column.own), (r) => r.cells);
  const columns = declaredOnes.map((column) => (column.own ? drawn[column.key ?? ""] : (cells.shift() as Column<PageStage>)));
  const total = times.stages.find((stage) => stage.kind === "total") ?? times.stages[0];
  show(total);
  const sums = [
    `${nsUnit(of("work"))} of work`, `${nsUnit(of("wait"))} of waiting`, `${nsUnit(of("unaccounted"))} unaccounted`,
  ].join(" + ");
  return h(
    "div",
    {},
    h("p", { class: "sum" }, `${sums} = ${nsUnit(whole)}, the mean of a packet's way`),
    times.open ? h("p", { class: "warnings", role: "alert" }, short(times.open, 400)) : null,
    wayBar(times, Math.max(whole, parts(times).reduce((sum, stage) => sum + stage.mean_ns, 0)), true),
    key(),
    table({
      caption: `Stages of ${group.class}, in their order; ns, as read; percentiles are of packets that went through`,
      columns, rows: times.stages, sort: -1,
      rowClass: (r) => (r.kind === "total" ? "whole" : r.packets === 0 ? "unmet" : ""),
    }),
    holder,
  );
}

/** Tables of the functions that were timed: those that can be ranked, and apart from them those too small. */
export function timedFunctions(page: Page, group: PageClass, times: PageTimes): HTMLElement {
  type Row = PageTimedFunction;
  const about = (r: Row) => page.functions[r.function];
  const ranked = times.functions.filter((f) => !f.small);
  const small = times.functions.filter((f) => f.small);
  const scale = span(times.functions.map((f) => f.buckets));
  const holder = h("div", { class: "chosen", "aria-live": "polite" });
  const show = (r: Row): void => {
    const of = r.percentiles_ns.map((v) => (v === null ? null : v + r.shift_ns));
    holder.replaceChildren(
      histogram(`${short(about(r).name, NAME_LETTERS)}, ${group.class}: its calls as read; ${nsUnit(r.shift_ns)} of each are the probes'`, r.buckets, marks(of)),
    );
  };
  const name: Column<Row> = {
    title: "function",
    value: (r) => about(r).name,
    show: (r) =>
      h("button", { type: "button", class: "link code", title: short(about(r).name, 400), onclick: () => show(r) }, short(about(r).name, NAME_LETTERS)),
    class: "name",
  };
  const each = group.per;
  const distribution: Column<Row> = { title: "distribution", value: () => "", show: (r) => sparkline(r.buckets, scale), class: "spark-cell" };
  const drawn: Record<string, Column<Row>> = { function: name, distribution };
  const declaredOnes = (group.columns ?? []).filter((column) => !column.own);
  const cells = columnsOf<Row>(declaredOnes, (r) => r.cells);
  const byKey = new Map(declaredOnes.map((column, at) => [column.key ?? "", cells[at]]));
  // Words that are the same everywhere say nothing.
  const tells = (key: string): boolean => !["module", "by"].includes(key) || new Set(times.functions.map((f) => byKey.get(key)?.value(f))).size > 1;
  const shown = (keys: string[]): Column<Row>[] =>
    keys.filter(tells).flatMap((key) => drawn[key] ?? byKey.get(key) ?? []);
  const keys = (group.columns ?? []).map((column) => column.key ?? "");
  const columns = shown(keys);
  const self = byKey.get("self");
  if (ranked.length > 0) {
    show(ranked[0]);
  }
  return h(
    "div",
    {},
    h("p", { class: "sum" }, `${nsUnit(times.total_ns)} per ${each} in the functions that were timed; ${nsUnit(times.raw_ns)} as read. Percentiles and mean are of a call.`),
    table({
      caption: `Functions of ${group.class}; ns, corrected for the probes' own cost; a name draws the histogram below`,
      columns, rows: ranked, sort: columns.findIndex((column) => column === self), limit: 50,
      filter: (r) => `${about(r).name} ${about(r).layer} ${about(r).module ?? ""}`,
    }),
    holder,
    small.length > 0
      ? h(
          "div",
          { class: "small" },
          h("h3", {}, "Too small to rank"),
          h("p", { class: "dim" }, "Their own time is less than what the correction may be off by: which of them takes more can't be told."),
          table({ caption: `Functions of ${group.class} that are too small to rank; ns per ${each}`, columns: shown(["function", "layer", "calls", "self", "uncertainty", "distribution"]), rows: small, sort: 3, limit: 20 }),
        )
      : null,
  );
}

/** Packets seen, a column for each class: `udp tx xmit` is `xmit` of `udp tx`. */
function places(seen: PageCount[]): HTMLElement {
  const rows = new Map<string, Map<string, number>>();
  const classes: string[] = [];
  for (const one of seen) {
    const words = one.what.split(" ");
    const [group, place] = words.length > 2 ? [words.slice(0, 2).join(" "), words.slice(2).join(" ")] : ["", one.what];
    if (!classes.includes(group)) {
      classes.push(group);
    }
    rows.set(place, (rows.get(place) ?? new Map<string, number>()).set(group, one.count));
  }
  type Row = [string, Map<string, number>];
  return table<Row>({
    caption: "Packets seen, place by place, and bytes of payload",
    columns: [
      { title: "place", value: (r) => r[0], show: (r) => short(r[0], 120), class: "stage" },
      ...classes.map((group): Column<Row> => ({
        title: short(group, 40) || "count",
        value: (r) => r[1].get(group) ?? Number.NaN,
        show: (r) => (r[1].has(group) ? cost(r[1].get(group) as number) : ""),
      })),
    ],
    rows: [...rows], sort: -1, limit: 60,
  });
}

/** What was counted beside the times: packets, drops, the probes' cost, what was missed. */
export function beside(timed: PageTimed): HTMLElement[] {
  const out: HTMLElement[] = [];
  const counts = (caption: string, what: string, rows: PageTimed["seen"], means = false): HTMLElement =>
    table({
      caption,
      columns: [
        { title: what, value: (r) => r.what, show: (r) => short(r.what, 120) },
        { title: "count", value: (r) => r.count, show: (r) => cost(r.count) },
        ...(means ? [{ title: "what it means", value: (r: PageTimed["seen"][number]) => r.means, show: (r: PageTimed["seen"][number]): Child => short(r.means, 400) }] : []),
      ],
      rows, sort: -1, limit: 60,
    });
  if (timed.packets.length > 0 || timed.seen.length > 0 || timed.drops.length > 0) {
    out.push(
      section(
        "ledger",
        "Ledger",
        ...timed.packets.map((l) =>
          h(
            "p",
            { class: l.closes ? "" : "warnings" },
            `${short(l.arm, 80)}: ${thousands(l.offered)} offered = ${thousands(l.delivered)} delivered + ${thousands(l.dropped.reduce((sum, d) => sum + d.count, 0))} dropped`,
            l.dropped.length > 0 ? ` (${l.dropped.map((d) => `${short(d.what, 60)} ${thousands(d.count)}`).join(", ")})` : "",
            l.closes ? "" : ". INVALID: some packets are missing without a cause.",
          ),
        ),
        h(
          "div",
          // A column for each class takes all the room that there is.
          { class: new Set(timed.seen.map((one) => one.what.split(" ").slice(0, 2).join(" "))).size > 4 ? "" : "columns bars-columns" },
          timed.seen.length > 0 ? places(timed.seen) : null,
          timed.drops.length > 0 ? counts("Packets dropped, by the kernel's reasons", "reason", timed.drops) : h("p", {}, "The kernel dropped no packet that was seen."),
        ),
      ),
    );
  }
  const probes: Child[] = [];
  if (timed.calibration.length > 0) {
    type Row = PageTimed["calibration"][number];
    probes.push(
      table<Row>({
        caption: "What the probes cost, measured on a function that does nothing; ns",
        columns: [
          { title: "by", value: (r) => r.mechanism, show: (r) => short(r.mechanism, 40) },
          { title: "arguments", value: (r) => r.arguments },
          { title: "CPU", value: (r) => r.cpu, show: (r) => short(r.cpu, 20) },
          { title: "functions", hint: "that were timed so", value: (r) => r.functions },
          { title: "an empty function reads", value: (r) => r.bias_ns, show: (r) => ns(r.bias_ns) },
          { title: "a pair takes", value: (r) => r.pair_ns, show: (r) => ns(r.pair_ns) },
          { title: "\u00b1 (95%)", value: (r) => r.uncertainty_ns, show: (r) => ns(r.uncertainty_ns) },
        ],
        rows: timed.calibration, sort: -1, limit: 30,
      }),
    );
  }
  probes.push(
    timed.losses.length > 0
      ? counts("What was missed", "cause", timed.losses, true)
      : h("p", {}, "Nothing was missed: no call, no packet, no full map."),
  );
  if (timed.refused.length > 0) {
    probes.push(
      table({
        caption: "What was not watched; what it took is in its callers' own time",
        columns: [
          { title: "function or tracepoint", value: (r) => r[0], show: (r) => h("span", { class: "code" }, short(r[0], 80)), class: "name" },
          { title: "why", value: (r) => r[1], show: (r) => short(r[1], 400) },
        ],
        rows: timed.refused, sort: -1, limit: 12,
      }),
    );
  }
  out.push(section("probes", timed.calibration.length > 0 ? "Probes and losses" : "Losses", ...probes));
  return out;
}
