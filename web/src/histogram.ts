/**
 * Log-linear histograms of nanoseconds, drawn: the twin of
 * crates/stats/src/histogram.rs, which defines the buckets.
 */
import { max, sum } from "d3-array";
import { scaleLog } from "d3-scale";
import type { Bucket } from "./data";
import { h, s } from "./dom";
import { nsUnit, percent, plural, share, thousands } from "./number";
import { axisBelow, fitted, ratioScale } from "./plot";

/** The mean width of letters, rounded up. */
const LETTER = 7.5;
const SUB = 16;
const LAST = 511;

/** The smallest time of a bucket. */
export function lower(bucket: number): number {
  const b = Math.max(0, Math.min(bucket, LAST + 1));
  return b < SUB ? b : (SUB + (b % SUB)) * 2 ** (Math.floor(b / SUB) - 1);
}

/** A stretch of a histogram: from, up to, and how many. */
export interface Bin {
  from: number;
  to: number;
  count: number;
}

/**
 * Four bins an octave, each of four buckets: fine enough to see two humps, coarse enough
 * to have a shape. Finely, a bin for each bucket.
 */
export function bins(buckets: Bucket[], fine = false): Bin[] {
  const found = new Map<number, Bin>();
  for (const [bucket, count] of buckets) {
    // Below 16 each nanosecond has a bucket: of eight and more, two make a quarter of an octave.
    const width = fine ? 1 : bucket >= SUB ? 4 : bucket >= 8 ? 2 : 1;
    const first = bucket - (bucket % width);
    const bin = found.get(first) ?? { from: lower(first), to: lower(first + width), count: 0 };
    bin.count += count;
    found.set(first, bin);
  }
  return [...found.values()].sort((a, b) => a.from - b.from);
}

/** The place of a time on a scale of octaves; times below a nanosecond are at its left end. */
const octave = (ns: number): number => Math.log2(Math.max(ns, 1));

/** The octaves that some histograms are within. */
export function span(all: Bucket[][]): [number, number] {
  let low = Number.POSITIVE_INFINITY;
  let high = 0;
  for (const buckets of all) {
    for (const [bucket, count] of buckets) {
      if (count > 0) {
        low = Math.min(low, Math.floor(octave(lower(bucket))));
        high = Math.max(high, Math.ceil(octave(lower(bucket + 1))));
      }
    }
  }
  return low < high ? [low, high] : [0, 1];
}

/** A histogram in words. */
export function described(buckets: Bucket[]): string {
  const all = bins(buckets);
  const timed = sum(all, (bin) => bin.count);
  if (timed === 0) {
    return "nothing was timed";
  }
  const most = all.reduce((a, b) => (b.count > a.count ? b : a));
  return (
    `${plural(timed, "time")} from ${nsUnit(all[0].from)} to ${nsUnit(all[all.length - 1].to)}, ` +
    `most (${percent(share(most.count, timed))}) from ${nsUnit(most.from)} to ${nsUnit(most.to)}`
  );
}

/** How high its bars are: bins at the low end are wider on a scale of octaves. */
function heights(all: Bin[]): number[] {
  const dense = all.map((bin) => bin.count / Math.max(octave(bin.to) - octave(bin.from), 0.25));
  const most = max(dense) || 1;
  return dense.map((d) => d / most);
}

/** A small one, for a cell: all cells of a column have one scale. */
export function sparkline(buckets: Bucket[], [low, high]: [number, number]): SVGElement {
  const wide = 120;
  const tall = 22;
  const x = scaleLog([2 ** low, 2 ** high], [0, wide]).clamp(true);
  const all = bins(buckets);
  const tops = heights(all);
  return s(
    "svg",
    { class: "spark", viewBox: `0 0 ${wide} ${tall}`, width: wide, height: tall, role: "img", "aria-label": described(buckets), preserveAspectRatio: "none" },
    s("line", { x1: 0, x2: wide, y1: tall - 0.5, y2: tall - 0.5, class: "base" }),
    ...all.map((bin, i) => {
      // One call in a hundred thousand can be seen still.
      const height = Math.max(tops[i] * (tall - 2), 1.2);
      const from = x(bin.from);
      return s("rect", { x: from.toFixed(1), width: Math.max(x(bin.to) - from - 0.4, 0.8).toFixed(1), y: (tall - 1 - height).toFixed(1), height: height.toFixed(1) });
    }),
  );
}

/** A round time, in few letters. */
function tick(ns: number): string {
  return ns < 1e3 ? `${ns} ns` : ns < 1e6 ? `${ns / 1e3} us` : ns < 1e9 ? `${ns / 1e6} ms` : `${ns / 1e9} s`;
}

/** The picture of a large one, this wide, with marks at notable times. */
function picture(buckets: Bucket[], all: Bin[], [low, high]: [number, number], marks: [string, number | null][], wide: number): SVGElement {
  const tall = 190;
  const base = tall - 22;
  const room = base - 38;
  const x = ratioScale([2 ** low, 2 ** high], [8, wide - 8], 60);
  const tops = heights(all);
  const timed = sum(all, (bin) => bin.count);
  // A mark whose name would overlap another goes below it.
  const rows = [Number.NEGATIVE_INFINITY, Number.NEGATIVE_INFINITY, Number.NEGATIVE_INFINITY];
  const placed = marks
    .filter((mark): mark is [string, number] => mark[1] !== null)
    .map(([name, ns]) => {
      const at = x.at(ns);
      const end = at > wide - 70;
      const from = end ? at - 3 - name.length * LETTER : at + 3;
      const row = Math.max(rows.findIndex((taken) => taken < from), 0);
      rows[row] = end ? at : from + name.length * LETTER;
      return { name, at, top: 10 + row * 12.5, end };
    });
  return s(
    "svg",
    { viewBox: `0 0 ${wide} ${tall}`, role: "img", "aria-label": described(buckets) },
    ...all.map((bin, i) => {
      const height = Math.max(tops[i] * room, 1.5);
      const from = x.at(bin.from);
      return s(
        "rect",
        { x: from, width: Math.max(x.at(bin.to) - from - 0.7, 1), y: base - height, height },
        s("title", {}, `${nsUnit(bin.from)} to ${nsUnit(bin.to)}: ${thousands(bin.count)} (${percent(share(bin.count, timed))})`),
      );
    }),
    axisBelow(x, tick, base, wide),
    ...placed.flatMap(({ name, at, top, end }) => [
      s("line", { x1: at, x2: at, y1: top, y2: base, class: "mark" }),
      s("text", { x: at + (end ? -3 : 3), y: top, "text-anchor": end ? "end" : "start", class: "mark" }, name),
    ]),
  );
}

/** A large one with its scale, marks at notable times, and its data as a table. */
export function histogram(title: string, buckets: Bucket[], marks: [string, number | null][]): HTMLElement {
  const [low, high] = span([buckets]);
  // Distinguish times that are close together.
  const all = bins(buckets, high - low <= 2);
  if (all.length === 0) {
    return h("p", {}, "Nothing was timed.");
  }
  const timed = sum(all, (bin) => bin.count);
  const { holder } = fitted(760, (holder, wide) => holder.replaceChildren(picture(buckets, all, [low, high], marks, wide)));
  return h(
    "figure",
    { class: "histogram" },
    h("figcaption", {}, title),
    holder,
    h(
      "details",
      {},
      h("summary", {}, "As a table"),
      h(
        "table",
        { class: "bins" },
        h("caption", {}, title),
        h("thead", {}, h("tr", {}, ...["from", "up to", "count", "share"].map((name) => h("th", { scope: "col", class: "number" }, name)))),
        h(
          "tbody",
          {},
          ...all.map((bin) =>
            h("tr", {}, ...[nsUnit(bin.from), nsUnit(bin.to), thousands(bin.count), percent(share(bin.count, timed))].map((cell) => h("td", { class: "number" }, cell))),
          ),
        ),
      ),
    ),
  );
}
