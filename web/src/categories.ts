/** A chart over levels that are words: bars, a group for each. */
import { barList, type BarRow } from "./barlist";
import type { PageChart } from "./data";
import { h } from "./dom";
import { short } from "./number";
import { pointText } from "./plot";
import { HUES, asTable, type Looks } from "./series";

const NAME_LETTERS = 60;
const SERIES_LETTERS = 30;

/** Whether levels of a chart are words. */
export const isOfNames = (chart: PageChart): boolean => (chart.x.names ?? []).length > 0;

/** Bars of a chart, the levels in their order, and in each the series in theirs. */
export function rowsOf(chart: PageChart, looks: Looks): BarRow[] {
  const names = chart.x.names ?? [];
  const most = Math.max(...chart.series.flatMap((series) => series.points.map((point) => point.y)), 1e-12);
  const several = chart.series.length > 1;
  return names.flatMap((name, x) =>
    chart.series.flatMap((series) =>
      series.points
        .filter((point) => point.x === x)
        .map((point): BarRow => {
          const of = series.kind === "published" && point.label !== "" ? point.label : series.name;
          const value = pointText(point, chart.y.unit);
          return {
            kind: series.kind === "published" ? "others" : "",
            name,
            figures: [several ? short(of, SERIES_LETTERS) : "", value],
            said: `${short(name, NAME_LETTERS)}, ${short(of, NAME_LETTERS)}: ${value}`,
            bars: [{ from: 0, wide: (Math.max(point.y, 0) * 100) / most, style: { "--hue": HUES[(looks.get(series.name) ?? 0) % HUES.length], "--chroma": series.kind === "published" ? 0 : 0.12 }, title: value }],
          };
        }),
    ),
  );
}

/** The chart, with its table. */
export function categories(chart: PageChart, looks: Looks): HTMLElement {
  const unit = chart.y.unit === "" ? "" : `, ${chart.y.unit}`;
  const caption = `${short(chart.title, 200)} (${short(chart.y.label, NAME_LETTERS)}${unit} by ${short(chart.x.label, NAME_LETTERS)})`;
  const figure = barList({ kind: "categories", caption: [caption], rows: rowsOf(chart, looks) });
  if (chart.note !== "") {
    figure.append(h("p", { class: "note" }, short(chart.note, 600)));
  }
  figure.append(h("details", {}, h("summary", {}, "As a table"), asTable(chart)));
  return figure;
}
