/** Lines and points over two axes, with their intervals. */
import type { PageChart, PagePoint, PageSeries } from "./data";
import { h, s, type Child } from "./dom";
import { amount, amountOf, drawable, drawn, leader, place, places, scaleOf, told, type Box, type Scale } from "./plot";
import { plural, short } from "./number";
import { table } from "./table";

/** Hues that the colour-blind tell apart as well; marks differ too, for paper. */
const HUES = [250, 50, 150, 330, 200, 95, 290, 20];
const MARKS = ["circle", "square", "triangle", "diamond", "cross"] as const;
type Mark = (typeof MARKS)[number];
/** As wide as letters are on the average where they are wide. */
const LETTER = 7;
const LABEL_LETTERS = 40;
const NAME_LETTERS = 60;
const TALL = 340;
/** More bands than this hide each other; each point has its interval anyway. */
const MOST_BANDS = 8;

/** What a series is drawn with, wherever it is: by its name. */
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

/** A mark around a place. */
export function markPath(mark: Mark, x: number, y: number, r: number): string {
  const at = (dx: number, dy: number): string => `${(x + dx * r).toFixed(1)} ${(y + dy * r).toFixed(1)}`;
  switch (mark) {
    case "circle":
      return `M${at(-1, 0)}A${r} ${r} 0 1 0 ${at(1, 0)}A${r} ${r} 0 1 0 ${at(-1, 0)}Z`;
    case "square":
      return `M${at(-0.9, -0.9)}L${at(0.9, -0.9)}L${at(0.9, 0.9)}L${at(-0.9, 0.9)}Z`;
    case "triangle":
      return `M${at(0, -1.15)}L${at(1.1, 0.85)}L${at(-1.1, 0.85)}Z`;
    case "diamond":
      return `M${at(0, -1.3)}L${at(1.3, 0)}L${at(0, 1.3)}L${at(-1.3, 0)}Z`;
    case "cross":
      return `M${at(-1, -0.35)}L${at(-0.35, -0.35)}L${at(-0.35, -1)}L${at(0.35, -1)}L${at(0.35, -0.35)}L${at(1, -0.35)}L${at(1, 0.35)}L${at(0.35, 0.35)}L${at(0.35, 1)}L${at(-0.35, 1)}L${at(-0.35, 0.35)}L${at(-1, 0.35)}Z`;
  }
}

const markOf = (series: PageSeries, looks: Looks): Mark =>
  series.kind === "published" ? "diamond" : MARKS[(looks.get(series.name) ?? 0) % MARKS.length];

const styleOf = (series: PageSeries, looks: Looks): Record<string, string | number> => ({
  class: `series ${series.kind}`,
  "--hue": HUES[(looks.get(series.name) ?? 0) % HUES.length],
});

/** An axis in words: "rate, packets/s". */
const named = (axis: { label: string; unit: string }): string =>
  short(axis.unit === "" ? axis.label : axis.label === "" ? axis.unit : `${axis.label}, ${axis.unit}`, NAME_LETTERS);

/** What a chart says, for who does not see it. */
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
  y: Scale;
  area: Box;
  guide: SVGElement;
}

function draw(chart: PageChart, shown: PageSeries[], looks: Looks, wide: number): Drawing {
  // Scales are those of all series, so that nothing moves when one is taken away.
  const all = chart.series.flatMap((series) => drawn(chart, series));
  const ys = all.flatMap((point) => [point.y, point.low, point.high].filter((y): y is number => y !== null));
  const tall = wide < 560 ? 300 : TALL;
  const area: Box = { x: 0, y: 26, wide: 0, tall: tall - 26 - 40 };
  const y = scaleOf(chart.y, ys, [area.y + area.tall, area.y], 7);
  const letters = Math.max(...y.ticks.map((tick) => amount(tick).length), 1);
  area.x = Math.ceil(letters * LETTER) + 12;
  area.wide = wide - area.x - 14;
  const x = scaleOf(chart.x, all.map((point) => point.x), [area.x, area.x + area.wide], Math.max(2, Math.floor(area.wide / 70)));
  const clampY = (value: number): number => Math.min(Math.max(value, area.y), area.y + area.tall);
  // What has no place on a scale of ratios ends where the scale does.
  const yAt = (value: number): number => (chart.y.log && value <= 0 ? area.y + area.tall : clampY(y.at(value)));
  const bottom = area.y + area.tall;
  const axes: Child[] = [
    ...y.ticks.flatMap((tick) => [
      s("line", { x1: area.x, x2: area.x + area.wide, y1: y.at(tick), y2: y.at(tick), class: "grid" }),
      s("text", { x: area.x - 6, y: y.at(tick) + 4, "text-anchor": "end" }, amount(tick)),
    ]),
    s("line", { x1: area.x, x2: area.x + area.wide, y1: bottom, y2: bottom, class: "base" }),
    ...x.ticks.flatMap((tick) => {
      const at = x.at(tick);
      return [
        s("line", { x1: at, x2: at, y1: bottom, y2: bottom + 4, class: "base" }),
        s("text", { x: at, y: bottom + 17, "text-anchor": at > wide - 24 ? "end" : "middle" }, amount(tick)),
      ];
    }),
    s("text", { x: 0, y: 12, class: "title" }, named(chart.y) + (chart.y.log ? ", scale of ratios" : "")),
    s("text", { x: area.x + area.wide, y: tall - 3, "text-anchor": "end", class: "title" }, named(chart.x) + (chart.x.log ? ", scale of ratios" : "")),
  ];
  const guide = s("line", { x1: 0, x2: 0, y1: area.y, y2: bottom, class: "guide", visibility: "hidden" });
  const lines: Child[] = [];
  const marks: Child[] = [];
  const taken: Box[] = [];
  const labels: { x: number; y: number; wide: number; text: string }[] = [];
  for (const series of shown) {
    const points = drawn(chart, series);
    const at = (point: PagePoint): string => `${x.at(point.x).toFixed(1)} ${yAt(point.y).toFixed(1)}`;
    const look = styleOf(series, looks);
    if (series.kind === "line" || series.kind === "ideal") {
      const between = points.filter((point) => point.low !== null && point.high !== null);
      if (series.kind === "line" && between.length > 1 && chart.series.length <= MOST_BANDS) {
        const edge = (of: PagePoint[], value: (point: PagePoint) => number): string =>
          of.map((point) => `${x.at(point.x).toFixed(1)} ${yAt(value(point)).toFixed(1)}`).join("L");
        lines.push(
          s("path", { ...look, class: `${look.class} band`, d: `M${edge(between, (p) => p.high ?? p.y)}L${edge([...between].reverse(), (p) => p.low ?? p.y)}Z` }),
        );
      }
      if (points.length > 1) {
        taken.push(...along(points.map((point) => [x.at(point.x), yAt(point.y)])));
        lines.push(s("path", { ...look, class: `${look.class} stroke`, d: `M${points.map(at).join("L")}` }));
      }
    }
    if (series.kind === "ideal") {
      continue;
    }
    for (const point of points) {
      const px = x.at(point.x);
      const py = yAt(point.y);
      if (point.low !== null && point.high !== null) {
        const low = yAt(point.low);
        const high = yAt(point.high);
        // A bar that is no longer than its mark is hidden by it.
        marks.push(s("path", { ...look, class: `${look.class} error`, d: `M${px - 4} ${low}H${px + 4}M${px - 4} ${high}H${px + 4}M${px} ${low}V${high}` }));
      }
      marks.push(s("path", { ...look, class: `${look.class} mark`, d: markPath(markOf(series, looks), px, py, series.kind === "published" ? 5 : 4) }));
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
  return { svg, x, y, area, guide };
}

/** All of it as a table, which can be copied. */
function asTable(chart: PageChart): HTMLElement {
  type Row = { series: PageSeries; point: PagePoint };
  const rows: Row[] = chart.series.flatMap((series) => series.points.map((point) => ({ series, point })));
  const hasIntervals = rows.some(({ point }) => point.low !== null);
  const hasLabels = rows.some(({ point }) => point.label !== "");
  const shown = (value: number | null): string => (value === null ? "-" : amount(value));
  return table<Row>({
    caption: short(chart.title, 200),
    columns: [
      { title: "series", value: (r) => short(r.series.name, NAME_LETTERS) },
      { title: named(chart.x) || "x", value: (r) => r.point.x, show: (r) => shown(r.point.x) },
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

/** A chart with its legend, what is told where it is pointed at, and its table. */
export function chartFigure(chart: PageChart, looks: Looks): HTMLElement {
  const hidden = new Set<PageSeries>();
  const holder = h("div", { class: "plot" });
  const tip = h("div", { class: "plot-tip", hidden: true });
  const spoken = h("p", { class: "offscreen", "aria-live": "polite" });
  let drawing: Drawing;
  let at = -1;
  let wide = 0;
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
        h("span", { class: "row" }, swatch(series), h("span", {}, short(one.label !== "" ? one.label : series.name, LABEL_LETTERS)), h("span", { class: "number" }, told(one, chart.y.unit))),
      ),
    );
    if (speak) {
      spoken.textContent = `${where}: ${here.map(({ series, one }) => `${short(series.name, 40)} ${told(one, chart.y.unit)}`).join(", ")}`;
    }
    // On the side where there is room.
    const scaled = (holder.clientWidth || wide) / wide;
    tip.style.setProperty("left", "0");
    const room = tip.offsetWidth + 12;
    const left = x * scaled + room < holder.clientWidth ? x * scaled + 12 : Math.max(0, x * scaled - room);
    tip.style.setProperty("left", `${left}px`);
  };
  const nearest = (event: PointerEvent): number => {
    const box = drawing.svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) * wide) / box.width;
    const all = places(chart, shown());
    let best = -1;
    all.forEach((value, i) => {
      if (best < 0 || Math.abs(drawing.x.at(value) - x) < Math.abs(drawing.x.at(all[best]) - x)) {
        best = i;
      }
    });
    return best;
  };
  const swatch = (series: PageSeries): SVGElement =>
    s(
      "svg",
      { class: "swatch-mark", viewBox: "0 0 24 12", width: 24, height: 12, "aria-hidden": "true" },
      series.kind === "line" || series.kind === "ideal" ? s("path", { ...styleOf(series, looks), class: `series ${series.kind} stroke`, d: "M0 6H24" }) : null,
      series.kind === "ideal" ? null : s("path", { ...styleOf(series, looks), class: `series ${series.kind} mark`, d: markPath(markOf(series, looks), 12, 6, 4) }),
    );
  const redraw = (): void => {
    // On a phone it is drawn for one, so that its letters are not made small.
    wide = Math.max(300, Math.min(860, holder.clientWidth || window.innerWidth - 24));
    const focused = document.activeElement === drawing?.svg;
    drawing = draw(chart, shown(), looks, wide);
    const { svg } = drawing;
    svg.addEventListener("pointermove", (event) => point(nearest(event), false));
    svg.addEventListener("pointerdown", (event) => point(nearest(event), false));
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
  };
  redraw();
  new ResizeObserver(() => {
    if (Math.abs(Math.max(300, Math.min(860, holder.clientWidth)) - wide) > 4 && holder.clientWidth > 0) {
      redraw();
    }
  }).observe(holder);
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
