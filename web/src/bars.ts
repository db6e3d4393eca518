/** Bars: layers one after the other as a waterfall, and functions by their share. */
import { scaleLinear } from "d3-scale";
import { barList, type BarRow } from "./barlist";
import type { PageClass, PageFunction } from "./data";
import { order, toneOf } from "./colour";
import { h } from "./dom";
import { changePercent, cost, percent, share, short, thousands } from "./number";
import type { FunctionSum, Glance, Tree } from "./tree";

/** Functions below this share of the whole are summed up, percent. */
const MIN_SHARE = 1;
const MOST_BARS = 16;

export interface Step {
  name: string;
  from: number;
  to: number;
  /** "unsure": a change that may be chance. */
  kind: "layer" | "whole" | "less" | "more" | "unsure";
  figures: string[];
}

/** The format of a cost: instructions, or a time. */
type Show = (value: number) => string;

/** With its sign. */
const signed = (value: number, show: Show): string => (value > 0 ? `+${show(value)}` : show(value));

/** The steps from before to after, by what each part changes. */
export function changeSteps(before: number, after: number, parts: { name: string; before: number; after: number; sure?: boolean }[], show: Show): Step[] {
  let at = before;
  const out: Step[] = [{ name: "before", from: 0, to: at, kind: "whole", figures: [show(at), ""] }];
  for (const part of parts) {
    const delta = part.after - part.before;
    if (Math.abs(delta) > 1e-9) {
      out.push({
        name: part.name, from: at, to: at + delta, kind: part.sure === false ? "unsure" : delta < 0 ? "less" : "more",
        figures: [signed(delta, show), changePercent(part.before, part.after)],
      });
      at += delta;
    }
  }
  out.push({ name: "after", from: 0, to: after, kind: "whole", figures: [show(after), changePercent(before, after)] });
  return out;
}

/** The steps of the waterfall: each layer's cost, or its change. */
export function steps(glance: Glance, diff: boolean, show: Show = cost): Step[] {
  const layers = [...glance.layers].sort(([a], [b]) => order(a) - order(b) || a.localeCompare(b));
  const out: Step[] = [];
  if (!diff) {
    let at = 0;
    for (const [name, [after]] of layers) {
      if (after > 0) {
        out.push({
          name, from: at, to: at + after, kind: "layer",
          figures: [show(after), percent(share(after, glance.after))],
        });
        at += after;
      }
    }
    out.push({ name: "total", from: 0, to: glance.after, kind: "whole", figures: [show(glance.after), "100.0%"] });
    return out;
  }
  const parts = layers.map(([name, [after, before]]) => ({ name, before, after }));
  return changeSteps(glance.before, glance.after, parts, show);
}

/** Options of a waterfall among others. */
export interface Waterfall {
  /** Before the caption: which class it is. */
  title?: string;
  /** After it. */
  note?: string;
  show?: Show;
  /** The value that fills the width, where several are side by side. */
  most?: number;
}

/** The waterfall of a class's layers. */
export function waterfall(glance: Glance, diff: boolean, options: Waterfall = {}): HTMLElement {
  const per = glance.group.per ? `, per ${glance.group.per}` : "";
  const caption = diff
    ? `Layers whose cost changed${per}`
    : options.title
      ? `layers${per}`
      : "Each layer goes on where the one before it ended: the path from the application down, then what all of it shares";
  return cascade(steps(glance, diff, options.show), caption, diff, options);
}

/** Steps that each begin at the previous one's end. */
export function cascade(all: Step[], caption: string, diff: boolean, options: Waterfall = {}): HTMLElement {
  const show = options.show ?? cost;
  // In a comparison the changes are small relative to the whole: begin near them.
  const ends = all.flatMap((step) => (step.kind === "whole" ? [step.to] : [step.from, step.to]));
  const most = Math.max(...ends, options.most ?? 0, 1e-9);
  const least = diff ? Math.max(Math.min(...ends) - (most - Math.min(...ends)) * 0.25, 0) : 0;
  // Without changes, begin at 0.
  const zoomed = least > most * 0.02 && least < most ? least : 0;
  const x = scaleLinear([zoomed, most], [0, 100]).clamp(true);
  const said = [caption, zoomed > 0 ? `; the scale begins at ${show(zoomed)}` : "", options.note ? `; ${options.note}` : ""].join("");
  return barList({
    kind: "waterfall",
    caption: [options.title ? h("strong", {}, short(options.title, 160)) : null, options.title ? ": " : null, said],
    rows: all.map(({ name, figures, kind, from, to }) => ({
      kind, name, figures,
      bars: [{ from: x(Math.min(from, to)), wide: Math.abs(x(to) - x(from)), style: toneOf(kind === "layer" ? name : "") }],
    })),
  });
}

/** Whether a symbol is a function: the compiler's clone (`ip_rcv.isra.0`) is. */
export function isFunction(symbol: string, name: string): boolean {
  return symbol.split(".")[0] === name;
}

/** Whether a symbol continues a name. */
export function isSuccessor(symbol: string, name: string): boolean {
  return symbol.startsWith(`${name}_`);
}

/** The published top function today: in a sentence, and its index. */
export function published(
  group: PageClass,
  functions: PageFunction[],
  ofLayer: FunctionSum[],
  all: FunctionSum[],
  whole: number,
): { text: string; fn: number } {
  const said = group.published;
  if (!said) {
    return { text: "", fn: -1 };
  }
  const begin = `Published top: ${short(said.top_function, 60)}, ${said.top_us.toFixed(2)} \u00b5s of ${said.total_us.toFixed(3)} (${percent(share(said.top_us, said.total_us))})`;
  for (const is of [isFunction, isSuccessor]) {
    const called = (f: FunctionSum): string =>
      is === isFunction ? "it" : `its successor ${short(functions[f.fn].name, 60)}`;
    const rank = ofLayer.findIndex((f) => is(functions[f.fn].name, said.top_function));
    if (rank >= 0) {
      const f = ofLayer[rank];
      return {
        text: `${begin}; here ${called(f)} is number ${rank + 1} with ${percent(share(f.self, whole))}.`,
        fn: f.fn,
      };
    }
    const elsewhere = all.find((f) => is(functions[f.fn].name, said.top_function));
    if (elsewhere) {
      return {
        text: `${begin}; here ${called(elsewhere)} is in layer ${short(functions[elsewhere.fn].layer, 40)}.`,
        fn: -1,
      };
    }
  }
  return { text: `${begin}; this kernel has no such function on the path.`, fn: -1 };
}

/** Bars of a layer's functions, or of all. */
export function functionBars(
  tree: Tree,
  group: PageClass,
  sums: FunctionSum[],
  layer: string,
  pick: (fn: number) => void,
): HTMLElement {
  const functions = tree.functions;
  const mine = sums
    .filter((f) => f.self > 0 && (layer === "" || functions[f.fn].layer === layer))
    .sort((a, b) => b.self - a.self || functions[a.fn].name.localeCompare(functions[b.fn].name));
  const whole = mine.reduce((sum, f) => sum + f.self, 0);
  const bars = mine.slice(0, MOST_BARS).filter((f) => share(f.self, whole) >= MIN_SHARE);
  const rest = mine.slice(bars.length);
  const restSelf = rest.reduce((sum, f) => sum + f.self, 0);
  const about = group.published && (group.published.layer ?? "") === layer ? group.published : null;
  const all = [...sums].sort((a, b) => b.self - a.self);
  const said = about ? published(group, functions, mine, all, whole) : { text: "", fn: -1 };
  const mark = about ? share(about.top_us, about.total_us) : 0;
  const longest = Math.max(...bars.map((f) => share(f.self, whole)), said.fn >= 0 ? mark : 0, 1);
  const percentOf = (part: number): number => (part * 100) / longest;
  const figures = (self: number): string[] => [tree.show(self / tree.packets), percent(share(self, whole))];
  const rows = bars.map(({ fn, self }): BarRow => ({
    kind: "layer",
    name: functions[fn].name,
    open: () => pick(fn),
    figures: figures(self),
    bars: [
      { from: 0, wide: percentOf(share(self, whole)), style: toneOf(functions[fn].layer) },
      ...(fn === said.fn ? [{ from: percentOf(mark), wide: 0, kind: "mark", title: `published: ${percent(mark)}` }] : []),
    ],
  }));
  if (restSelf > 0) {
    rows.push({ kind: "rest", name: `${thousands(rest.length)} more`, figures: figures(restSelf), bars: [] });
  }
  const figure = barList({
    caption: [
      about ? `Figure ${short(about.figure, 8)}, ${group.class}: ` : "",
      `${layer === "" ? "the whole path" : `the ${short(layer, 40)} layer`}, ${tree.show(whole / tree.packets)} per ${group.per}`,
      about ? `; published ${about.total_us.toFixed(3)} \u00b5s` : "",
      said.fn >= 0 ? "; the upright line is the published share" : "",
    ],
    rows,
  });
  if (said.text) {
    figure.append(h("p", { class: "published" }, said.text));
  }
  return figure;
}
