/** Lines and points over two axes, with their intervals. */
import { max } from "d3-array";
import { pointer } from "d3-selection";
import { area as band, line, symbol, symbolCircle, symbolCross, symbolDiamond2, symbolSquare, symbolTriangle } from "d3-shape";
import type { PageChart, PagePoint, PageSeries } from "./data";
import { h, s, type Child } from "./dom";
import { amount, amountOf, axisBelow, axisBeside, drawable, drawn, fitted, leader, nearest, place, places, scaleOf, pointText, type Box, type Scale } from "./plot";
import { plural, short } from "./number";
import { categories, isOfNames } from "./categories";
import { HUES, LABEL_LETTERS, NAME_LETTERS, asTable, named, type Looks } from "./series";

const MARKS = [symbolCircle, symbolSquare, symbolTriangle, symbolDiamond2, symbolCross];
/** The size of marks, square pixels: ours, and published ones, which are hollow. */
const MARK_SIZE = 50;
const PUBLISHED_SIZE = 80;
/** The mean width of letters, rounded up. */
const LETTER = 7;
const TALL = 340;
/** More bands than this hide each other; each point has its interval anyway. */
const MOST_BANDS = 8;

/** The mark of a series at a place. */
function mark(series: PageSeries, looks: Looks, x: number, y: number): SVGElement {
  const published = series.kind === "published";
  const type = published ? symbolDiamond2 : MARKS[(looks.get(series.name) ?? 0) % MARKS.length];
  const look = styleOf(series, looks);
  return s("path", { ...look, class: `${look.class} mark`, transform: `translate(${x} ${y})`, d: symbol(type, published ? PUBLISHED_SIZE : MARK_SIZE).digits(1)() });
}

const styleOf = (series: PageSeries, looks: Looks): Record<string, string | number> => ({
  class: `series ${series.kind}`,
  "--hue": HUES[(looks.get(series.name) ?? 0) % HUES.length],
});

/** A chart in words, for screen readers. */
export function described(chart: PageChart): string {
  const each = chart.series.map((series) => {
    const points = series.points;
    const first = points[0];
    const last = points[points.length - 1];
    const name = short(series.name, NAME_LETTERS);
    if (!first) {
      return `${name}: nothing`;
    }
    const at = (point: PagePoint): string => `${amountOf(point.y, chart.y.unit)} at ${amountOf(point.x, chart.x.unit)}`;
    return points.length === 1 ? `${name}: ${at(first)}` : `${name}: from ${at(first)} to ${at(last)}`;
  });
  return `${named(chart.y)} by ${named(chart.x)}. ${each.join("; ")}.`;
}

/** Boxes along a line, for labels to keep off. */
export function along(points: [number, number][]): Box[] {
  const boxes: Box[] = [];
  for (let i = 1; i < points.length; i++) {
    const [[x0, y0], [x1, y1]] = [points[i - 1], points[i]];
    const steps = Math.max(1, Math.ceil(Math.hypot(x1 - x0, y1 - y0) / 6));
    for (let step = 0; step <= steps; step++) {
      boxes.push({ x: x0 + ((x1 - x0) * step) / steps - 2, y: y0 + ((y1 - y0) * step) / steps - 2, wide: 4, tall: 4 });
    }
  }
  return boxes;
}

interface Drawing {
  svg: SVGSVGElement;
  x: Scale;
  wide: number;
  guide: SVGElement;
}

function draw(chart: PageChart, shown: PageSeries[], looks: Looks, wide: number): Drawing {
  // Scales cover all series, so that nothing moves when one is taken away.
  const all = chart.series.flatMap((series) => drawn(chart, series));
  const ys = all.flatMap((point) => [point.y, point.low, point.high].filter((y): y is number => y !== null));
  const tall = wide < 560 ? 300 : TALL;
  const area: Box = { x: 0, y: 26, wide: 0, tall: tall - 26 - 40 };
  const bottom = area.y + area.tall;
  const y = scaleOf(chart.y, ys, [bottom, area.y], 36);
  area.x = Math.ceil((max(y.ticks, (tick) => amount(tick).length) ?? 1) * LETTER) + 12;
  area.wide = wide - area.x - 14;
  const x = scaleOf(chart.x, all.map((point) => point.x), [area.x, area.x + area.wide], 70);
  const axes: Child[] = [
    axisBeside(y, amount, area.x, area.wide),
    axisBelow(x, amount, bottom, wide),
    s("text", { x: 0, y: 12, class: "title" }, named(chart.y) + (chart.y.log ? ", scale of ratios" : "")),
    s("text", { x: area.x + area.wide, y: tall - 3, "text-anchor": "end", class: "title" }, named(chart.x) + (chart.x.log ? ", scale of ratios" : "")),
  ];
  const xAt = (point: PagePoint): number => x.at(point.x);
  const yAt = (point: PagePoint): number => y.at(point.y);
  const stroke = line(xAt, yAt).digits(1);
  const interval = band(xAt, (point: PagePoint) => y.at(point.low ?? point.y), (point: PagePoint) => y.at(point.high ?? point.y)).digits(1);
  const guide = s("line", { x1: 0, x2: 0, y1: area.y, y2: bottom, class: "guide", visibility: "hidden" });
  const lines: Child[] = [];
  const marks: Child[] = [];
  const taken: Box[] = [];
  const labels: { x: number; y: number; wide: number; text: string }[] = [];
  for (const series of shown) {
    const points = drawn(chart, series);
    const look = styleOf(series, looks);
    if (series.kind === "line" || series.kind === "ideal") {
      const between = points.filter((point) => point.low !== null && point.high !== null);
      if (series.kind === "line" && between.length > 1 && chart.series.length <= MOST_BANDS) {
        lines.push(s("path", { ...look, class: `${look.class} band`, d: interval(between) }));
      }
      if (points.length > 1) {
        taken.push(...along(points.map((point) => [xAt(point), yAt(point)])));
        lines.push(s("path", { ...look, class: `${look.class} stroke`, d: stroke(points) }));
      }
    }
    if (series.kind === "ideal") {
      continue;
    }
    for (const point of points) {
      const [px, py] = [xAt(point), yAt(point)];
      if (point.low !== null && point.high !== null) {
        const [low, high] = [y.at(point.low), y.at(point.high)];
        // A bar that is no longer than its mark is hidden by it.
        marks.push(s("path", { ...look, class: `${look.class} error`, d: `M${px - 4} ${low}H${px + 4}M${px - 4} ${high}H${px + 4}M${px} ${low}V${high}` }));
      }
      marks.push(mark(series, looks, px, py));
      taken.push({ x: px - 5, y: py - 5, wide: 10, tall: 10 });
      if (series.kind === "published" && point.label !== "") {
        const text = short(point.label, LABEL_LETTERS);
        labels.push({ x: px, y: py, wide: text.length * LETTER, text });
      }
    }
  }
  const boxes = place(labels, area, taken);
  const texts = labels.flatMap((label, i) => {
    const to = leader(label, boxes[i]);
    return [
      to ? s("line", { x1: label.x, y1: label.y, x2: to[0], y2: to[1], class: "leader" }) : null,
      s("text", { x: boxes[i].x, y: boxes[i].y + 10, class: "label" }, label.text),
    ];
  });
  const svg = s(
    "svg",
    { viewBox: `0 0 ${wide} ${tall}`, role: "img", tabindex: 0, "aria-label": described(chart) },
    ...axes, guide, ...lines, ...texts, ...marks,
  );
  return { svg, x, wide, guide };
}

/** A chart with its legend, tooltips, and its table. */
export function chartFigure(chart: PageChart, looks: Looks): HTMLElement {
  if (isOfNames(chart)) {
    return categories(chart, looks);
  }
  if (chart.series.every((series) => series.points.length === 0)) {
    return h("figure", { class: "chart" }, h("figcaption", {}, short(chart.title, 200)), h("p", { class: "note" }, short(chart.note || "Nothing was measured.", 600)));
  }
  const hidden = new Set<PageSeries>();
  const tip = h("div", { class: "plot-tip", hidden: true });
  const spoken = h("p", { class: "offscreen", "aria-live": "polite" });
  let drawing: Drawing;
  let at = -1;
  const shown = (): PageSeries[] => chart.series.filter((series) => !hidden.has(series));
  const point = (index: number, speak: boolean): void => {
    const all = places(chart, shown());
    at = Math.max(-1, Math.min(index, all.length - 1));
    tip.hidden = at < 0;
    drawing.guide.setAttribute("visibility", at < 0 ? "hidden" : "visible");
    if (at < 0) {
      return;
    }
    const x = drawing.x.at(all[at]);
    drawing.guide.setAttribute("x1", String(x));
    drawing.guide.setAttribute("x2", String(x));
    const here = shown().flatMap((series) =>
      drawn(chart, series)
        .filter((one) => one.x === all[at] && series.kind !== "ideal")
        .map((one) => ({ series, one })),
    );
    // The largest first, as they lie above each other.
    here.sort((a, b) => b.one.y - a.one.y);
    const where = `${short(chart.x.label, 40)} ${amountOf(all[at], chart.x.unit)}`.trim();
    tip.replaceChildren(
      h("b", {}, where),
      ...here.map(({ series, one }) =>
        h("span", { class: "row" }, swatch(series), h("span", {}, short(one.label !== "" ? one.label : series.name, LABEL_LETTERS)), h("span", { class: "number" }, pointText(one, chart.y.unit))),
      ),
    );
    if (speak) {
      spoken.textContent = `${where}: ${here.map(({ series, one }) => `${short(series.name, 40)} ${pointText(one, chart.y.unit)}`).join(", ")}`;
    }
    // On the side where there is room.
    const scaled = drawing.svg.getBoundingClientRect().width / drawing.wide;
    tip.style.setProperty("left", "0");
    const room = tip.offsetWidth + 12;
    const left = x * scaled + room < holder.clientWidth ? x * scaled + 12 : Math.max(0, x * scaled - room);
    tip.style.setProperty("left", `${left}px`);
  };
  const pointed = (event: PointerEvent): void => point(nearest(places(chart, shown()), drawing.x, pointer(event, drawing.svg)[0]), false);
  const swatch = (series: PageSeries): SVGElement =>
    s(
      "svg",
      { class: "swatch-mark", viewBox: "0 -7 24 14", width: 24, height: 14, "aria-hidden": "true" },
      series.kind === "line" || series.kind === "ideal" ? s("path", { ...styleOf(series, looks), class: `series ${series.kind} stroke`, d: "M0 0H24" }) : null,
      series.kind === "ideal" ? null : mark(series, looks, 12, 0),
    );
  const { holder, redraw } = fitted(860, (holder, wide) => {
    const focused = document.activeElement === drawing?.svg;
    drawing = draw(chart, shown(), looks, wide);
    const { svg } = drawing;
    svg.addEventListener("pointermove", pointed);
    svg.addEventListener("pointerdown", pointed);
    svg.addEventListener("pointerleave", () => point(-1, false));
    svg.addEventListener("blur", () => point(-1, false));
    svg.addEventListener("keydown", (event) => {
      const last = places(chart, shown()).length - 1;
      const to = { ArrowRight: Math.min(at + 1, last), ArrowLeft: Math.max(at - 1, 0), Home: 0, End: last, Escape: -1 }[event.key];
      if (to !== undefined) {
        event.preventDefault();
        point(to, true);
      }
    });
    holder.replaceChildren(svg, tip);
    point(-1, false);
    if (focused) {
      svg.focus({ preventScroll: true });
    }
  });
  const unseen = chart.series.reduce((sum, series) => sum + series.points.filter((one) => !drawable(chart, one)).length, 0);
  return h(
    "figure",
    { class: "chart" },
    h("figcaption", {}, short(chart.title, 200)),
    h(
      "p",
      { class: "legend" },
      ...chart.series.map((series) => {
        const button = h(
          "button",
          {
            type: "button",
            class: "link key",
            "aria-pressed": "true",
            title: "show or hide it",
            onclick: () => {
              if (!hidden.delete(series)) {
                hidden.add(series);
              }
              button.setAttribute("aria-pressed", String(!hidden.has(series)));
              redraw();
            },
          },
          swatch(series),
          short(series.name, NAME_LETTERS),
        );
        return button;
      }),
    ),
    holder,
    spoken,
    chart.note !== "" ? h("p", { class: "note" }, short(chart.note, 600)) : null,
    unseen > 0 ? h("p", { class: "note" }, `${plural(unseen, "point")} of 0 or less ${unseen === 1 ? "is" : "are"} not on a scale of ratios, and in the table alone.`) : null,
    h("details", {}, h("summary", {}, "As a table"), asTable(chart)),
  );
}
