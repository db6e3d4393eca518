/** The basis of charts: scales, axes with round numbers on them, and room for labels. */
import { extent, leastIndex, pairs, ticks } from "d3-array";
import { axisBottom, axisLeft, type Axis } from "d3-axis";
import { scaleLinear, scaleLog, type ScaleLinear, type ScaleLogarithmic } from "d3-scale";
import { select } from "d3-selection";
import type { PageAxis, PageChart, PagePoint, PageSeries } from "./data";
import { h, s } from "./dom";
import { thousands } from "./number";

/** From values to places, clamped to the ends, with the round values in between. */
export interface Scale {
  at: ScaleLinear<number, number> | ScaleLogarithmic<number, number>;
  ticks: number[];
}

/** Whether a point has a place on both axes. */
export const drawable = (chart: PageChart, point: PagePoint): boolean =>
  !(chart.x.log && point.x <= 0) && !(chart.y.log && point.y <= 0);

/** Points of a series that have a place. */
export const drawn = (chart: PageChart, series: PageSeries): PagePoint[] => series.points.filter((point) => drawable(chart, point));

/** All values that an axis needs room for; on a logarithmic scale only those above 0. */
export function domainOf(values: number[], log: boolean): [number, number] {
  const [low, high] = extent(values.filter((value) => Number.isFinite(value) && (!log || value > 0)));
  if (low === undefined) {
    return log ? [1, 10] : [0, 1];
  }
  if (log) {
    return [low / 1.25, high * 1.25];
  }
  // From 0 on, like rates and shares: a cut axis exaggerates.
  const from = Math.min(low, 0);
  return [from, high > from ? high : from + 1];
}

/** Whether there is this much room from each tick to the next. */
const apart = ({ at, ticks }: Scale, room: number): boolean => pairs(ticks).every(([a, b]) => Math.abs(at(b) - at(a)) >= room);

/** The first scale on which ticks are far enough apart, with at least two ticks if possible. */
function roomy(scales: Scale[], room: number): Scale {
  const fit = scales.filter((scale) => apart(scale, room));
  return fit.find(({ ticks }) => ticks.length > 1) ?? fit.find(({ ticks }) => ticks.length > 0) ?? scales[scales.length - 1];
}

/** From this number of ticks down to two. */
const fewer = <T>(length: number, room: number, make: (count: number) => T): T[] => {
  const most = Math.max(2, Math.floor(length / room));
  return Array.from({ length: most - 1 }, (_, i) => make(most - i));
};

/** A logarithmic scale with round numbers: as many in each power of ten as there is room for. */
export function ratioScale(domain: [number, number], range: [number, number], room: number): Scale {
  const at = scaleLog(domain, range).clamp(true);
  // d3 leaves out all but powers of ten where there are more of these than requested.
  const all = at.ticks(Math.ceil(Math.log10(domain[1] / domain[0])) + 1);
  const of = (digits: string): Scale => ({ at, ticks: all.filter((tick) => digits.includes(tick.toExponential()[0])) });
  const counts = fewer(Math.abs(range[1] - range[0]), room, (count) => count);
  return roomy(
    [
      ...["123456789", "125", "13", "1"].map(of),
      ...counts.map((count) => ({ at, ticks: at.ticks(count) })),
      // Between two powers of ten, 6 and 8 may have room where 5, 10 and all others have none.
      ...counts.map((count) => ({ at, ticks: ticks(...domain, count) })),
    ],
    room,
  );
}

/** A scale over some values; ticks are at least this far apart. */
export function scaleOf(axis: PageAxis, values: number[], range: [number, number], room: number): Scale {
  const domain = domainOf(values, axis.log);
  if (axis.log) {
    return ratioScale(domain, range, room);
  }
  // There are no half cores or packets.
  const whole = values.every(Number.isInteger);
  const of = (count: number): Scale => {
    const at = scaleLinear(domain, range).nice(count).clamp(true);
    return { at, ticks: at.ticks(count).filter((tick) => !whole || Number.isInteger(tick)) };
  };
  return roomy(fewer(Math.abs(range[1] - range[0]), room, of), room);
}

const drawAxis = (axis: Axis<number>, { ticks }: Scale, show: (value: number) => string, transform: string): SVGGElement => {
  const g = s("g", { class: "axis", transform });
  select(g).call(axis.tickValues(ticks).tickFormat(show).tickSizeOuter(0).offset(0));
  return g;
};

/** An axis at the left, with lines from its ticks through the picture. */
export const axisBeside = (scale: Scale, show: (value: number) => string, x: number, across: number): SVGGElement =>
  drawAxis(axisLeft<number>(scale.at).tickSizeInner(-across).tickPadding(6), scale, show, `translate(${x} 0)`);

/** An axis below a picture of this width; labels at its ends are within it. */
export function axisBelow(scale: Scale, show: (value: number) => string, y: number, wide: number): SVGGElement {
  const g = drawAxis(axisBottom<number>(scale.at).tickSizeInner(4).tickPadding(4), scale, show, `translate(0 ${y})`);
  select(g).selectAll<SVGTextElement, number>("text").attr("text-anchor", (tick) => (scale.at(tick) < 24 ? "start" : scale.at(tick) > wide - 24 ? "end" : "middle"));
  return g;
}

/**
 * A picture as wide as there is room for it, redrawn when that changes. On a phone it is
 * drawn for that width, so that its letters are not scaled down.
 */
export function fitted(most: number, draw: (holder: HTMLElement, wide: number) => void): { holder: HTMLElement; redraw: () => void } {
  const holder = h("div", { class: "plot" });
  let wide = 0;
  const size = (): number => Math.max(300, Math.min(most, holder.clientWidth || window.innerWidth - 24));
  const redraw = (): void => {
    wide = size();
    draw(holder, wide);
  };
  redraw();
  new ResizeObserver(() => {
    if (Math.abs(size() - wide) > 4 && holder.clientWidth > 0) {
      redraw();
    }
  }).observe(holder);
  return { holder, redraw };
}

const LARGE: [number, string][] = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]];

/** A value in few letters: 16.4 M, 1,514, 28.3. */
export function amount(value: number): string {
  if (!Number.isFinite(value)) {
    return "-";
  }
  const size = Math.abs(value);
  const sign = value < 0 ? "\u2212" : "";
  const digits = (of: number): string => {
    const text = of >= 999.5 ? thousands(of) : String(Number(of.toPrecision(3)));
    // Values near 0 are written as powers of ten.
    return text.replace("-", "\u2212");
  };
  // Rounded to a thousand it would be 1,000 k; below ten thousand every digit is there.
  const large = LARGE.find(([from, prefix]) => size >= (prefix === "k" ? from : from * (1 - 5e-4)));
  if (!large) {
    return sign + digits(size);
  }
  return `${sign}${digits(size / (large[1] === "k" ? 1e3 : large[0]))}\u202f${large[1]}`;
}

/** The same with its unit. */
export function amountOf(value: number, unit: string): string {
  return unit === "" ? amount(value) : `${amount(value)}${unit === "%" ? "" : "\u202f"}${unit}`;
}

/** Of a point: its value with its interval. */
export function pointText(point: PagePoint, unit: string): string {
  const interval = point.low !== null && point.high !== null ? ` (${amount(point.low)} to ${amount(point.high)})` : "";
  return amountOf(point.y, unit) + interval;
}

export interface Box {
  x: number;
  y: number;
  wide: number;
  tall: number;
}

const meet = (a: Box, b: Box): boolean => a.x < b.x + b.wide && b.x < a.x + a.wide && a.y < b.y + b.tall && b.y < a.y + a.tall;

/** How far a box is from a point; 0 within it. */
const away = (box: Box, x: number, y: number): number =>
  Math.hypot(Math.max(box.x - x, 0, x - box.x - box.wide), Math.max(box.y - y, 0, y - box.y - box.tall));

/**
 * Room for labels near their points: as near as possible, within the area, off other
 * labels and obstacles, and not nearer to another point than to their own. Where not
 * all of that is possible, the latter are given up first.
 */
export function place(points: { x: number; y: number; wide: number }[], area: Box, taken: Box[] = [], tall = 13): Box[] {
  const boxes: Box[] = [];
  const inside = (box: Box): boolean =>
    box.x >= area.x && box.x + box.wide <= area.x + area.wide && box.y >= area.y && box.y + box.tall <= area.y + area.tall;
  for (const own of points) {
    const { x, y, wide } = own;
    const cost = (box: Box): number => {
      const distance = away(box, x, y);
      const nearer = points.some((other) => other !== own && away(box, other.x, other.y) < distance);
      const labels = boxes.filter((other) => meet(box, other)).length;
      const others = Math.min(taken.filter((other) => meet(box, other)).length, 4);
      return distance + (inside(box) ? 0 : 2000) + 500 * labels + 20 * others + (nearer ? 60 : 0);
    };
    let best: Box | null = null;
    let least = Number.POSITIVE_INFINITY;
    for (const dx of [8, 18, 30, 44, 60, 80]) {
      for (let dy = 0; dy <= 5; dy++) {
        for (const up of dy === 0 ? [0] : [-dy * tall, dy * tall]) {
          for (const left of [x + dx, x - dx - wide, ...(dy > 0 && dx === 8 ? [x - wide / 2] : [])]) {
            const box = { x: left, y: y - tall / 2 + up, wide, tall };
            const price = cost(box);
            if (price < least) {
              [best, least] = [box, price];
            }
          }
        }
      }
    }
    boxes.push(best ?? { x, y, wide, tall });
  }
  return boxes;
}

/** A line from a point to its label, unless that is beside it. */
export function leader(point: { x: number; y: number }, box: Box): [number, number] | null {
  const x = Math.min(Math.max(point.x, box.x), box.x + box.wide);
  const y = Math.min(Math.max(point.y, box.y + 3), box.y + box.tall - 3);
  return Math.hypot(x - point.x, y - point.y) > 14 ? [x, y] : null;
}

/** Which of some places is nearest to one; -1 where there is none. */
export const nearest = (all: number[], { at }: Scale, place: number): number => leastIndex(all, (value) => Math.abs(at(value) - place)) ?? -1;

/** Where any of some series has a point: in their order, each once. */
export function places(chart: PageChart, series: PageSeries[]): number[] {
  const all = series.filter((one) => one.kind !== "ideal").flatMap((one) => drawn(chart, one).map((point) => point.x));
  return [...new Set(all)].sort((a, b) => a - b);
}
