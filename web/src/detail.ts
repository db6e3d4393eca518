/** Everything about one arm and class. */
import type { Page, PageCell, PageClass, PageTable, PageTimes } from "./data";
import { functionBars, waterfall } from "./bars";
import { order } from "./colour";
import { callText } from "./calltext";
import { bothPart, comparedPart } from "./compared";
import { choice, field, h, section } from "./dom";
import { frames } from "./frames";
import { callGraph } from "./graph";
import { changeCell } from "./classes";
import type { Icicle } from "./icicle";
import { changePercent, cost, costIn, pathEnd, percent, share, short, unitOf } from "./number";
import { sectionOf } from "./sections";
import { isProfile } from "./threads";
import { cellOf, columnsOf, plain, table, type Drawn } from "./table";
import { stagesPart, timedFunctions } from "./times";
import { sums, titleOf, treeOf, type FunctionSum, type Glance, type Tree } from "./tree";

const NAME_LETTERS = 60;

export interface Detail {
  element: HTMLElement;
  /** None where there are no calls. */
  icicle: Icicle | null;
}

/** The sections of a class. `drawn`: whether its waterfall is on the page already. */
export function detail(page: Page, glance: Glance, drawn: boolean, alone: HTMLElement | null = null): Detail {
  const { group } = glance;
  const title = h(
    "div",
    { class: "class-head" },
    h("h2", { id: "class-title", tabindex: -1 }, short(titleOf(group), 160)),
    h("p", { class: "sentence" }, short(group.sentence, 2000)),
    alone ? h("div", { class: "tools alone" }, alone) : null,
  );
  const times = group.times ?? null;
  const timed = times ? timedParts(group, times, page.unit || "cost") : [];
  if (times && group.contexts.length === 0) {
    const functions = times.functions.length > 0 ? section("functions", "Functions", timedFunctions(page, group, times)) : null;
    return { element: h("div", { class: "detail" }, title, ...timed, functions), icicle: null };
  }
  const tree = treeOf(page, group);
  const all = sums(tree);
  const shown = frames(page, tree, group.per);
  const pick = (fn: number): void => {
    shown.find(fn);
    document.getElementById("frames")?.scrollIntoView({ block: "start" });
  };
  const icicle = section("frames", "Calling contexts", shown.element);
  // Of samples the contexts come first, and when they were taken.
  const first = isProfile(page);
  const threads = page.sections.filter((one) => one.id === "threads").map((one) => sectionOf(one, false));
  const element = h(
    "div",
    { class: "detail" },
    title,
    ...(first ? [icicle, ...threads] : []),
    ...timed,
    section("layers", "Layers", drawn ? layerTable(page, group.layers) : h("div", { class: "columns bars-columns" }, waterfall(glance, page.diff, { show: costIn(page.unit) }), layerTable(page, group.layers))),
    // Percentiles come before calls.
    times && !page.diff ? section("functions", "Functions", timedFunctions(page, group, times)) : null,
    // For times, changes have verdicts above.
    times && page.diff ? null : section("bars", page.diff ? "What changed most" : "Functions by share", page.diff ? changes(page, tree, all.functions, group.moves, pick) : barsPart(tree, glance, all.functions, pick)),
    first ? null : icicle,
    section("graph", "Call graph", callGraph(tree, all, page.diff, pick)),
    section("calltext", page.diff ? "Call graphs, before and after" : "Call graph as text", callText(tree, page.diff, page.unit)),
    times ? null : section("functions", "Functions", functionTable(page, group, tree, all.functions, pick)),
  );
  return { element, icicle: shown.icicle };
}

/** The sections of a class of times beside its calls. */
function timedParts(group: PageClass, times: PageTimes, unit: string): HTMLElement[] {
  const out: HTMLElement[] = [];
  if (times.stages.length > 0) {
    out.push(section("stages", "Stages", stagesPart(group, times)));
  }
  if (times.compared.length > 0) {
    out.push(section("verdicts", "What changed", comparedPart(group, times, unit)));
  }
  if (times.both) {
    out.push(section("verdicts", "What both instruments saw", bothPart(times.both)));
  }
  return out;
}

function barsPart(tree: Tree, glance: Glance, functions: FunctionSum[], pick: (fn: number) => void): HTMLElement {
  const { group } = glance;
  const layers = [...glance.layers].filter(([, [after]]) => after > 0).map(([layer]) => layer);
  layers.sort((a, b) => order(a) - order(b) || a.localeCompare(b));
  const wanted = group.published?.layer ?? "";
  let layer = layers.includes(wanted) ? wanted : "";
  const holder = h("div", {}, functionBars(tree, group, functions, layer, pick));
  const select = choice(
    [["", "the whole path"], ...layers.map((l): [string, string] => [l, short(l, 40)])],
    layer,
    (value) => {
      layer = value;
      holder.replaceChildren(functionBars(tree, group, functions, layer, pick));
    },
  );
  return h("div", {}, h("div", { class: "tools" }, field("Of", select)), holder);
}

function layerTable(page: Page, of: PageTable | null | undefined): HTMLElement | null {
  if (!of) {
    return null;
  }
  const key = page.diff ? "difference" : "self";
  const columns = columnsOf<PageCell[]>(of.columns, (row) => row, {
    difference: { show: (row) => changed(cellOf(of.columns, row, "difference")) },
  });
  return plain(of, { columns, sort: columns.findIndex((column) => column.key === key), bySize: page.diff });
}

/** The text of a change, in its colour. */
const changed = (cell: PageCell): HTMLElement => h("span", { class: (cell.value ?? 0) < 0 ? "less" : (cell.value ?? 0) > 0 ? "more" : "" }, cell.text);

const ratio = (before: number, after: number): number =>
  before > 0 ? ((after - before) * 100) / before : after > 0 ? Number.POSITIVE_INFINITY : 0;

function functionCell(page: Page, fn: number, pick: (fn: number) => void): HTMLElement {
  const about = page.functions[fn];
  return h(
    "span",
    {},
    h(
      "button",
      { type: "button", class: "link code", title: about.name.length > NAME_LETTERS ? short(about.name, 400) : null, onclick: () => pick(fn) },
      short(about.name, NAME_LETTERS),
    ),
    about.was ? h("span", { class: "dim" }, ` was ${short(about.was, NAME_LETTERS)}`) : null,
  );
}

function sourceCell(source: string | null): HTMLElement | null {
  return source ? h("span", { class: "code", title: short(source, 400) }, pathEnd(source, 32)) : null;
}

/** Sums over the shown tree for the table of functions, by the keys of the report's columns. */
function fromTree(page: Page, tree: Tree, pick: (fn: number) => void): Record<string, Drawn<FunctionSum>> {
  const after = (n: number): number => n / tree.packets;
  const before = (n: number): number => n / tree.packetsBefore;
  const whole = after(tree.inclusive[0]);
  const about = (f: FunctionSum) => page.functions[f.fn];
  const show = costIn(page.unit);
  const figure = (of: (f: FunctionSum) => number, format = show): Drawn<FunctionSum> => ({ value: of, show: (f) => format(of(f)) });
  const part = (of: (f: FunctionSum) => number): Drawn<FunctionSum> => figure((f) => share(after(of(f)), whole), percent);
  const difference = (of: (f: FunctionSum) => [number, number]): Drawn<FunctionSum> => ({ value: (f) => of(f)[1] - of(f)[0], show: (f) => changeCell(...of(f)) });
  const self = (f: FunctionSum): [number, number] => [before(f.selfBefore), after(f.self)];
  const inclusive = (f: FunctionSum): [number, number] => [before(f.inclusiveBefore), after(f.inclusive)];
  const name: Drawn<FunctionSum> = { value: (f) => about(f).name, show: (f) => functionCell(page, f.fn, pick), class: "name" };
  const layer: Drawn<FunctionSum> = { value: (f) => about(f).layer, show: (f) => short(about(f).layer, 24) };
  return {
    function: name,
    layer,
    module: { value: (f) => about(f).module ?? "", show: (f) => short(about(f).module ?? "", 24) },
    source: { value: (f) => about(f).source ?? "", show: (f) => sourceCell(about(f).source) },
    self: figure((f) => after(f.self)),
    share: part((f) => f.self),
    inclusive: figure((f) => after(f.inclusive)),
    inclusive_share: part((f) => f.inclusive),
    calls: figure((f) => after(f.calls), cost),
    // Of a comparison.
    name,
    of: layer,
    before: figure((f) => self(f)[0]),
    after: figure((f) => self(f)[1]),
    difference: difference(self),
    percent: { value: (f) => ratio(...self(f)), show: (f) => changePercent(...self(f)) },
    inclusive_before: figure((f) => inclusive(f)[0]),
    inclusive_after: figure((f) => inclusive(f)[1]),
    inclusive_difference: difference(inclusive),
    calls_before: figure((f) => before(f.callsBefore), cost),
    calls_after: figure((f) => after(f.calls), cost),
  };
}

function functionTable(page: Page, group: PageClass, tree: Tree, functions: FunctionSum[], pick: (fn: number) => void): HTMLElement {
  const about = (f: FunctionSum) => page.functions[f.fn];
  const rows = new Map((group.rows ?? []).map((row) => [row.function, row.cells]));
  const all = columnsOf<FunctionSum>(group.columns ?? [], (f) => rows.get(f.fn) ?? [], fromTree(page, tree, pick));
  // A column without any value is left out.
  const columns = all.filter((column) => column.key !== "source" || functions.some((f) => column.value(f) !== ""));
  return table({
    caption: `Functions, ${unitOf(page.unit || "cost", group.per)}`,
    columns,
    rows: functions,
    sort: columns.findIndex((column) => column.key === (page.diff ? "difference" : "self")),
    bySize: page.diff,
    filter: (f) => `${about(f).name} ${about(f).was ?? ""} ${about(f).layer} ${about(f).module ?? ""} ${about(f).source ?? ""}`,
    limit: 50,
    rowClass: (f) => (page.diff && f.inclusive === 0 ? "gone" : page.diff && f.inclusiveBefore === 0 ? "new" : ""),
  });
}

const MOST_CHANGES = 16;

/** In a comparison: the functions whose own cost changed most, and moves. */
function changes(
  page: Page,
  tree: Tree,
  functions: FunctionSum[],
  moves: Page["classes"][number]["moves"],
  pick: (fn: number) => void,
): HTMLElement {
  const delta = (f: FunctionSum): number => f.self / tree.packets - f.selfBefore / tree.packetsBefore;
  const changed = functions.filter((f) => Math.abs(delta(f)) > 1e-9).sort((a, b) => Math.abs(delta(b)) - Math.abs(delta(a)));
  const shown = changed.slice(0, MOST_CHANGES);
  const most = Math.max(...shown.map((f) => Math.abs(delta(f))), 1e-9);
  if (changed.length === 0 && moves.length === 0) {
    return h("p", {}, "No function's own cost changed.");
  }
  const rest = changed.slice(shown.length).reduce((sum, f) => sum + delta(f), 0);
  return h(
    "div",
    {},
    h(
      "figure",
      { class: "bars diverging" },
      h("figcaption", {}, "Change of each function's own cost; less is to the left"),
      h(
        "ol",
        {},
        ...shown.map((f) => {
          const d = delta(f);
          const wide = (Math.abs(d) * 50) / most;
          return h(
            "li",
            { class: d < 0 ? "less" : "more" },
            h("span", { class: "name" }, functionCell(page, f.fn, pick)),
            h("span", { class: "number" }, changeCell(f.selfBefore / tree.packetsBefore, f.self / tree.packets)),
            h("span", { class: "number" }, changePercent(f.selfBefore / tree.packetsBefore, f.self / tree.packets)),
            h(
              "span",
              { class: "track", "aria-hidden": "true" },
              h("span", { class: "bar", "--from": `${d < 0 ? 50 - wide : 50}%`, "--wide": `${wide}%` }),
            ),
          );
        }),
        changed.length > shown.length
          ? h("li", { class: "rest" }, h("span", { class: "name" }, `${changed.length - shown.length} more`), h("span", { class: "number" }, changeCell(0, rest)), h("span", { class: "number" }), h("span", { class: "track" }))
          : null,
      ),
    ),
    moves.length > 0
      ? h(
          "div",
          { class: "moves" },
          h("h3", {}, "Moved, not changed"),
          h(
            "ul",
            {},
            ...moves.map((move) =>
              h(
                "li",
                {},
                h("span", { class: "code" }, short(page.functions[move.from]?.name ?? "?", NAME_LETTERS)),
                " \u2192 ",
                h("span", { class: "code" }, short(page.functions[move.to]?.name ?? "?", NAME_LETTERS)),
                ` ${tree.show(move.insns_per_packet)} `,
                h("span", { class: "dim" }, short(move.why, 200)),
              ),
            ),
          ),
        )
      : null,
  );
}
