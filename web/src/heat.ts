/** Times between events over time: a picture of when how many took how long. */
import { scaleLinear } from "d3-scale";
import type { PageHeat } from "./data";
import { h, s } from "./dom";
import { lower } from "./histogram";
import { nsUnit, plural, short } from "./number";
import { axisBelow, axisBeside, fitted, ratioScale } from "./plot";
import { darkness } from "./threads";

/** Buckets of a cell: crates/model/src/spans.rs has the same. */
const COARSE = 4;
const TALL = 220;
const LEFT = 64;
const MOST = 1100;

/** From and to of a cell, in nanoseconds; none is below one. */
export const bounds = (bucket: number): [number, number] => [Math.max(lower(bucket), 1), Math.max(lower(bucket + COARSE), 2)];

/** The map. */
export function heatFigure(of: PageHeat): HTMLElement {
  const most = Math.max(...of.cells.map((cell) => cell.count));
  const columns = Math.max(...of.cells.map((cell) => cell.column)) + 1;
  const low = Math.min(...of.cells.map((cell) => bounds(cell.bucket)[0]));
  const high = Math.max(...of.cells.map((cell) => bounds(cell.bucket)[1]));
  const draw = (holder: HTMLElement, wide: number): void => {
    const x = scaleLinear([0, columns], [LEFT, wide - 8]);
    const y = ratioScale([low, high], [TALL, 8], 34);
    const across = scaleLinear([0, columns * of.column_ns], [LEFT, wide - 8]);
    const cells = of.cells.map((cell) => {
      const [from, to] = bounds(cell.bucket);
      const [top, bottom] = [y.at(to), y.at(from)];
      const at = `${nsUnit(cell.column * of.column_ns)} to ${nsUnit((cell.column + 1) * of.column_ns)}`;
      return s(
        "rect",
        { x: x(cell.column), y: top, width: Math.max(x(1) - x(0), 0.5) + 0.02, height: Math.max(bottom - top, 0.5) + 0.02, "fill-opacity": darkness(cell.count, most).toFixed(3) },
        s("title", {}, `${at}: ${plural(cell.count, "time")} of ${nsUnit(from)} to ${nsUnit(to)}`),
      );
    });
    holder.replaceChildren(
      s(
        "svg",
        { viewBox: `0 0 ${wide} ${TALL + 24}`, width: wide, height: TALL + 24, class: "heat-map", role: "img", "aria-label": `${short(of.title, 200)}: between ${nsUnit(low)} and ${nsUnit(high)}, over ${nsUnit(columns * of.column_ns)}` },
        axisBeside(y, nsUnit, LEFT, wide - 8 - LEFT),
        s("g", { class: "cells" }, ...cells),
        axisBelow({ at: across, ticks: across.ticks(Math.max(2, Math.floor(wide / 120))) }, nsUnit, TALL, wide),
      ),
    );
  };
  return h(
    "figure",
    { class: "heat" },
    h("figcaption", {}, `${short(of.title, 200)}: how long, over time; the darkest is ${plural(most, "time")} in ${nsUnit(of.column_ns)}`),
    fitted(MOST, draw).holder,
  );
}
