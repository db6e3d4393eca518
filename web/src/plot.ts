/** What a chart is drawn by: scales, round numbers on them, and room for labels. */
import { scaleLinear, scaleLog } from "d3-scale";
import type { PageAxis, PageChart, PagePoint, PageSeries } from "./data";
import { thousands } from "./number";

/** From values to places, with the round values in between. */
export interface Scale {
  at: (value: number) => number;
  ticks: number[];
  domain: [number, number];
}

/** Whether a point has a place on both axes. */
export const drawable = (chart: PageChart, point: PagePoint): boolean =>
  !(chart.x.log && point.x <= 0) && !(chart.y.log && point.y <= 0);

/** Points of a series that have a place. */
export const drawn = (chart: PageChart, series: PageSeries): PagePoint[] => series.points.filter((point) => drawable(chart, point));

/** All that an axis has to have room for; on a scale of ratios only what is above 0. */
export function extent(values: number[], log: boolean): [number, number] {
  const fit = values.filter((value) => Number.isFinite(value) && (!log || value > 0));
  const low = fit.reduce((a, b) => Math.min(a, b), Number.POSITIVE_INFINITY);
  const high = fit.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
  if (low > high) {
    return log ? [1, 10] : [0, 1];
  }
  if (log) {
    return [low / 1.25, high * 1.25];
  }
  // From nothing on, as rates and shares are: a cut axis makes little look like much.
  const from = Math.min(low, 0);
  return [from, high > from ? high : from + 1];
}

/** A scale over some values, with so many ticks at most. */
export function scaleOf(axis: PageAxis, values: number[], range: [number, number], most: number): Scale {
  const [low, high] = extent(values, axis.log);
  if (axis.log) {
    const scale = scaleLog().domain([low, high]).range(range);
    return { at: (value) => scale(value), ticks: decades(low, high, most), domain: [low, high] };
  }
  // How many there come to be is not always what was asked for.
  let few = Math.max(2, most);
  while (few > 2 && scaleLinear().domain([low, high]).nice(few).ticks(few).length > most + 1) {
    few--;
  }
  const scale = scaleLinear().domain([low, high]).nice(few).range(range);
  // Half a core is none, nor is half a packet.
  const whole = values.every(Number.isInteger);
  const ticks = scale.ticks(few).filter((tick) => !whole || Number.isInteger(tick));
  const [from, to] = scale.domain();
  return { at: (value) => scale(value), ticks, domain: [from, to] };
}

/** Round numbers on a scale of ratios: of each power of ten as many as there is room for. */
export function decades(low: number, high: number, most: number): number[] {
  const first = Math.floor(Math.log10(low));
  const last = Math.ceil(Math.log10(high));
  for (const digits of [[1, 2, 5], [1, 3], [1]]) {
    const all: number[] = [];
    for (let power = first; power <= last; power++) {
      // Not by multiplying: 10 ** -3 * 5 is no round number.
      all.push(...digits.map((digit) => Number(`${digit}e${power}`)).filter((tick) => tick >= low && tick <= high));
    }
    if (all.length <= most) {
      return all;
    }
    if (digits.length === 1) {
      const step = Math.ceil(all.length / Math.max(1, most));
      return all.filter((_, i) => i % step === 0);
    }
  }
  return [];
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
    // What is near nothing is written as powers of ten.
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
export function told(point: PagePoint, unit: string): string {
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
 * Room for labels near their points: as near as there is room, within the area, off
 * other labels and off what is in the way, and not nearer to another point than to
 * their own. Where not all of that can be had, the latter are given up first.
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

/** From a point to its label, where that is not beside it; nothing where it is. */
export function leader(point: { x: number; y: number }, box: Box): [number, number] | null {
  const x = Math.min(Math.max(point.x, box.x), box.x + box.wide);
  const y = Math.min(Math.max(point.y, box.y + 3), box.y + box.tall - 3);
  return Math.hypot(x - point.x, y - point.y) > 14 ? [x, y] : null;
}

/** Where any of some series has a point: in their order, each once. */
export function places(chart: PageChart, series: PageSeries[]): number[] {
  const all = series.filter((one) => one.kind !== "ideal").flatMap((one) => drawn(chart, one).map((point) => point.x));
  return [...new Set(all)].sort((a, b) => a - b);
}
