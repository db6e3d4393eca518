/** The first thing on a page: its answer as a picture. */
import { barList, MOST_ROWS, NAME_LETTERS } from "./barlist";
import { cascade, changeSteps, waterfall } from "./bars";
import { chartFigure } from "./chart";
import { order, toneOf } from "./colour";
import { partOf, type Page, type PageCompared, type PageTable } from "./data";
import { h } from "./dom";
import { changePercent, cost, costIn, ns, ratioPercent, short, unitOf } from "./number";
import { rateBars } from "./rates";
import { looks } from "./series";
import { stacked, type Part, type Row } from "./stacked";
import { cellOf, figureOf } from "./table";
import { look, meanOf, parts as stagesOf, wholeOf } from "./times";
import { titleOf, type Glance } from "./tree";

/** The most charts or waterfalls side by side. */
const SIDE_BY_SIDE = 2;
/** Bars that differ by more than this each have their own scale. */
const FAR_APART = 5;
/** The most functions on two clocks that are drawn. */
const MOST_BOTH = 14;

/** The number of charts in the picture; the others come below it. */
export const chartsOf = (page: Page): number => (partOf(page, "rates") ? SIDE_BY_SIDE : 1);

/** The picture of a page; none if nothing was measured. */
export function answer(page: Page, all: Glance[], open: (index: number) => void): HTMLElement | null {
  const pictures = picturesOf(page, all, open);
  if (pictures.length === 0) {
    return null;
  }
  return h("div", { id: "answer", class: pictures.length > 1 ? "columns" : "", role: "group", "aria-label": "The answer as a picture" }, ...pictures);
}

/** Whether the waterfall of every class is in the picture, so that it need not be drawn again. */
export function isWaterfall(page: Page, all: Glance[]): boolean {
  return all.length === 1 && page.figures.length === 0 && !partOf(page, "rates") && !all.some((g) => (g.group.times?.stages ?? []).length > 0);
}

function picturesOf(page: Page, all: Glance[], open: (index: number) => void): HTMLElement[] {
  const marks = looks(page.figures);
  const charts = page.figures.slice(0, chartsOf(page)).map((chart) => chartFigure(chart, marks));
  const rates = partOf(page, "rates");
  if (rates) {
    return charts.length > 0 ? charts : [rateBars(rates)];
  }
  if (all.length === 0) {
    return charts;
  }
  if (page.diff) {
    return changes(page, all, open);
  }
  return [...charts, ...whole(page, all, open, charts.length > 0)];
}

/** The parts of every class: stages, or layers. */
function whole(page: Page, all: Glance[], open: (index: number) => void, beside: boolean): HTMLElement[] {
  if (all.every((g) => (g.group.times?.stages ?? []).length > 0)) {
    return [budget(page, all, open)];
  }
  const drawn = all.filter((g) => g.after > 0);
  const show = costIn(page.unit);
  if (drawn.length === 0) {
    return [];
  }
  if (!beside && drawn.length <= SIDE_BY_SIDE) {
    // On one scale, unless one would be invisible on it.
    const most = Math.max(...drawn.map((g) => g.after));
    const own = most > FAR_APART * Math.min(...drawn.map((g) => g.after));
    return drawn.map((g) => waterfall(g, false, { title: titleOf(g.group), show, most: own ? 0 : most, note: own ? "each on a scale of its own" : "" }));
  }
  const rows = drawn.map((g): Row => {
    const layers = [...g.layers].filter(([, [after]]) => after > 0).sort(([a], [b]) => order(a) - order(b) || a.localeCompare(b));
    return {
      name: titleOf(g.group),
      figures: [show(g.after)],
      open: () => open(g.index),
      parts: layers.map(([layer, [after]]): Part => ({ name: layer, value: after, text: show(after), look: { class: "", style: toneOf(layer) } })),
    };
  });
  return [stacked({ caption: [`Layers of each class, ${unitOf(page.unit || "cost", perOf(all))}`], rows, labels: true })];
}

const perOf = (all: Glance[]): string => [...new Set(all.map((g) => g.group.per))].join(" or ");

/** A packet's time, stage by stage. */
function budget(page: Page, all: Glance[], open: (index: number) => void): HTMLElement {
  const of = all.map((g) => ({ g, times: g.group.times as NonNullable<typeof g.group.times> }));
  const totals = of.map(({ times }) => wholeOf(times)).filter((total) => total > 0);
  const own = Math.max(...totals) > FAR_APART * Math.min(...totals);
  return stacked({
    caption: [`Where ${of.every(({ times }) => times.each) ? "the" : "a packet's"} time goes, ${page.unit || "ns"}: work solid, waiting hatched${own ? "; each bar is the whole of its class, however long" : ""}`],
    own,
    labels: true,
    rows: of.map(({ g, times }): Row => ({
      name: titleOf(g.group),
      figures: [ns(wholeOf(times))],
      open: () => open(g.index),
      parts: stagesOf(times).map((stage, i): Part => ({ name: stage.name, value: meanOf(times, stage), text: ns(meanOf(times, stage)), look: look(stage, i) })),
    })),
  });
}

/** A class of a comparison: its sides, and the parts in which they differ. */
interface Change {
  g: Glance;
  before: number;
  after: number;
  /** Whether it may be chance, for times. */
  sure: boolean;
  picture: () => HTMLElement;
}

function changes(page: Page, all: Glance[], open: (index: number) => void): HTMLElement[] {
  const found = all.flatMap((g) => changeOf(page, g) ?? []);
  const size = (change: Change): number => Math.abs(change.after - change.before) * (change.sure ? 1 : 1e-6);
  const sorted = [...found].sort((a, b) => size(b) - size(a));
  if (found.length > SIDE_BY_SIDE) {
    return [sorted[0].picture(), changeList(page, sorted, open)];
  }
  const both = all.flatMap((g) => (g.group.times?.both ? [bothBars(g, g.group.times.both)] : []));
  return [...sorted.map((change) => change.picture()), ...both].slice(0, SIDE_BY_SIDE);
}

/** Its waterfall: by stages with their verdicts, or by layers. */
function changeOf(page: Page, g: Glance): Change | null {
  const title = titleOf(g.group);
  const rows = g.group.times?.compared ?? [];
  const total = rows.find((row) => row.what === "whole");
  const stages = rows.filter((row) => row.what === "stage");
  const columns = g.group.times?.columns ?? [];
  const figure = (row: PageCompared, key: string): number => figureOf(columns, row.cells, key);
  const text = (row: PageCompared, key: string): string => cellOf(columns, row.cells, key).text;
  const note = total ? verdictOf(total, text(total, "verdict")) : "";
  if (total && stages.length > 0) {
    const parts = stages.map((row) => ({ name: text(row, "name"), before: figure(row, "before"), after: figure(row, "after"), sure: row.way !== "" }));
    const steps = changeSteps(figure(total, "before"), figure(total, "after"), parts, ns);
    return {
      g, before: figure(total, "before"), after: figure(total, "after"), sure: total.way !== "",
      picture: () => cascade(steps, "stages, ns; pale: may be chance", true, { title, note, show: ns }),
    };
  }
  if (g.group.contexts.length > 0) {
    const show = costIn(page.unit);
    return { g, before: g.before, after: g.after, sure: total ? total.way !== "" : true, picture: () => waterfall(g, true, { title, note, show }) };
  }
  if (total) {
    const steps = changeSteps(figure(total, "before"), figure(total, "after"), [], ns);
    return { g, before: figure(total, "before"), after: figure(total, "after"), sure: total.way !== "", picture: () => cascade(steps, "ns", true, { title, note, show: ns }) };
  }
  return null;
}

const verdictOf = (row: PageCompared, verdict: string): string =>
  short(verdict, NAME_LETTERS) + (row.ratio ? `, ${ratioPercent(row.ratio[0])} (${ratioPercent(row.ratio[1])} to ${ratioPercent(row.ratio[2])})` : "");

/** Every class with its change, the largest first. */
function changeList(page: Page, all: Change[], open: (index: number) => void): HTMLElement {
  const deltas = all.map((one) => one.after - one.before);
  const [low, high] = [Math.min(0, ...deltas), Math.max(0, ...deltas)];
  const share = (value: number): number => (value * 100) / Math.max(high - low, 1e-9);
  const show = costIn(page.unit);
  return barList({
    kind: `diverging${all.length > MOST_ROWS ? " many" : ""}`,
    style: { "--zero": `${share(-low)}%` },
    caption: [`Every class, ${page.unit || "cost"} before \u2192 after, the largest change first; its waterfall is beside it`],
    scrolls: `${all.length} classes`,
    rows: all.map(({ g, before, after, sure }, i) => ({
      kind: !sure ? "unsure" : deltas[i] < 0 ? "less" : deltas[i] > 0 ? "more" : "",
      name: titleOf(g.group),
      open: () => open(g.index),
      figures: [`${show(before)} \u2192 ${show(after)}`, changePercent(before, after)],
      bars: deltas[i] === 0 ? [] : [{ from: share(Math.min(deltas[i], 0) - low), wide: share(Math.abs(deltas[i])) }],
    })),
  });
}

/** Functions on two instruments, each as a share of the largest. */
function bothBars(g: Glance, both: PageTable): HTMLElement {
  const all = both.rows.map((cells) => ({
    name: cellOf(both.columns, cells, "name").text,
    insns: figureOf(both.columns, cells, "self_insns"),
    ns: figureOf(both.columns, cells, "self_ns"),
  }));
  const shown = [...all].sort((a, b) => b.ns - a.ns).slice(0, MOST_BOTH);
  const most = [Math.max(...shown.map((row) => row.insns), 1e-9), Math.max(...shown.map((row) => row.ns), 1e-9)];
  return barList({
    kind: "both",
    caption: [
      h("strong", {}, short(titleOf(g.group), NAME_LETTERS)),
      `: own instructions above own ns, per ${g.group.per}; each as long as its share of the largest${all.length > shown.length ? `; ${shown.length} of ${all.length} functions` : ""}`,
    ],
    rows: shown.map((row) => ({
      name: row.name,
      code: true,
      figures: [cost(row.insns), ns(row.ns)],
      bars: [
        { from: 0, wide: (row.insns * 100) / most[0], kind: "insns" },
        { from: 0, wide: (row.ns * 100) / most[1], kind: "ns" },
      ],
    })),
  });
}
