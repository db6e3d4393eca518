/** The series of charts, however they are drawn: the style of each, and a chart's data as a table. */
import type { PageChart, PagePoint, PageSeries } from "./data";
import { short } from "./number";
import { amount } from "./plot";
import { table } from "./table";

/** Hues that the colour-blind can distinguish; marks differ too, for paper. */
export const HUES = [250, 50, 150, 330, 200, 95, 290, 20];
export const LABEL_LETTERS = 40;
export const NAME_LETTERS = 60;

/** The style of a series in all charts, by its name. */
export type Looks = Map<string, number>;

/** Colours and marks for the series of some charts, the same name the same. */
export function looks(charts: PageChart[]): Looks {
  const found: Looks = new Map();
  for (const chart of charts) {
    for (const series of chart.series) {
      if ((series.kind === "line" || series.kind === "points") && !found.has(series.name)) {
        found.set(series.name, found.size);
      }
    }
  }
  return found;
}

/** An axis in words: "rate, packets/s". */
export const named = (axis: { label: string; unit: string }): string =>
  short(axis.unit === "" ? axis.label : axis.label === "" ? axis.unit : `${axis.label}, ${axis.unit}`, NAME_LETTERS);

/** All of it as a table, which can be copied. */
export function asTable(chart: PageChart): HTMLElement {
  type Row = { series: PageSeries; point: PagePoint };
  const rows: Row[] = chart.series.flatMap((series) => series.points.map((point) => ({ series, point })));
  const hasIntervals = rows.some(({ point }) => point.low !== null);
  const hasLabels = rows.some(({ point }) => point.label !== "");
  const shown = (value: number | null): string => (value === null ? "-" : amount(value));
  return table<Row>({
    caption: short(chart.title, 200),
    columns: [
      { title: "series", value: (r) => short(r.series.name, NAME_LETTERS) },
      { title: named(chart.x) || "x", value: (r) => r.point.x, show: (r) => chart.x.names?.[r.point.x] ?? shown(r.point.x) },
      { title: named(chart.y) || "y", value: (r) => r.point.y, show: (r) => shown(r.point.y) },
      ...(hasIntervals
        ? (["low", "high"] as const).map((end) => ({
            title: end,
            hint: "of the interval",
            value: (r: Row) => r.point[end] ?? Number.NaN,
            show: (r: Row) => shown(r.point[end]),
          }))
        : []),
      ...(hasLabels ? [{ title: "note", value: (r: Row) => short(r.point.label, LABEL_LETTERS) }] : []),
    ],
    rows,
    sort: -1,
    limit: 200,
  });
}
