/** The icicle with what belongs to it: search, callers, colours, and the same as a list. */
import type { Page } from "./data";
import { choice, field, h } from "./dom";
import { changeFill, order, toneOf } from "./colour";
import { Icicle, isDark, type Colouring } from "./icicle";
import { change, changePercent, cost, pathEnd, percent, plural, share, short } from "./number";
import { callersOf, layerOf, nameOf, search, type Tree } from "./tree";

export interface Frames {
  element: HTMLElement;
  /** Find a function, by its exact name. */
  find: (fn: number) => void;
  icicle: Icicle;
}

/** What there is to say of a row. */
export function describe(tree: Tree, row: number, diff: boolean): [string, string][] {
  const after = tree.inclusive[row] / tree.packets;
  const self = tree.self[row] / tree.packets;
  const calls = tree.calls[row] / tree.packets;
  const fn = tree.fn[row];
  const lines: [string, string][] = [];
  if (fn >= 0) {
    const about = tree.functions[fn];
    if (about.was) {
      lines.push(["was", short(about.was, 120)]);
    }
    lines.push(["layer", short(about.layer, 40)]);
    if (about.module) {
      lines.push(["module", short(about.module, 80)]);
    }
    if (about.source) {
      lines.push(["source", pathEnd(about.source, 80)]);
    }
  }
  const whole = tree.inclusive[0] / tree.packets;
  if (!diff) {
    lines.push(["inclusive", `${cost(after)} (${percent(share(after, whole))})`], ["self", cost(self)]);
    if (fn >= 0) {
      lines.push(["calls", cost(calls)]);
    }
    return lines;
  }
  const pair = (a: number, b: number): string => `${cost(a)} \u2192 ${cost(b)} (${change(b - a)}, ${changePercent(a, b)})`;
  lines.push(
    ["inclusive", pair(tree.inclusiveBefore[row] / tree.packetsBefore, after)],
    ["self", pair(tree.selfBefore[row] / tree.packetsBefore, self)],
  );
  if (fn >= 0) {
    lines.push(["calls", pair(tree.callsBefore[row] / tree.packetsBefore, calls)]);
  }
  return lines;
}

/** The part of a page that shows one class's frames. */
export function frames(page: Page, whole: Tree, per: string): Frames {
  let tree = whole;
  const found = h("span", { class: "status found", role: "status", "aria-live": "polite" });
  const frame = h("p", { id: "frame", class: "frame", role: "status", "aria-live": "polite" });
  const crumbs = h("nav", { class: "crumbs", "aria-label": "Zoomed to" });
  const input = h("input", {
    type: "search",
    placeholder: "name, =name or /regex/",
    oninput: () => look(),
    onkeydown: (event: KeyboardEvent) => {
      if (event.key === "Escape") {
        input.value = "";
        look();
      }
    },
  });
  const callers = h("button", { type: "button", onclick: () => upsideDown() }, "Callers of it");
  const back = h("button", { type: "button", hidden: true, onclick: () => show(whole) }, "Back to the whole");

  const icicle = new Icicle(whole, page.diff, {
    describe: (of, row) => describe(of, row, page.diff),
    chosen: (row) => tell(row),
    zoomed: (row) => queueMicrotask(() => trail(row)),
  });

  function tell(row: number): void {
    const lines = describe(tree, row, page.diff).map(([label, value]) => `${label} ${value}`);
    frame.replaceChildren(h("strong", {}, short(nameOf(tree, row), 200)), ` \u2014 ${lines.join("; ")}`);
    callers.disabled = tree !== whole || tree.fn[row] < 0;
  }

  function trail(row: number): void {
    const path: number[] = [];
    for (let at = row; at >= 0; at = at === 0 ? -1 : tree.parent[at]) {
      path.unshift(at);
    }
    // The ends of a long way.
    const shown = path.length > 9 ? [...path.slice(0, 2), -1, ...path.slice(-6)] : path;
    crumbs.replaceChildren(
      ...shown.map((at) =>
        at < 0
          ? h("span", {}, "\u2026")
          : h("button", { type: "button", class: "link", onclick: () => icicle.zoom(at) }, short(nameOf(tree, at), 40)),
      ),
    );
  }

  function look(): void {
    const query = input.value.trim();
    if (query === "") {
      found.textContent = "";
      icicle.setFound(null);
      return;
    }
    const result = search(tree, query);
    if (typeof result === "string") {
      found.textContent = result;
      icicle.setFound(null);
      return;
    }
    icicle.setFound(result);
    const total = result.total / tree.packets;
    const counted = `${plural(result.frames, "frame")} of ${plural(result.functions, "function")}: `;
    if (page.diff) {
      const before = result.totalBefore / tree.packetsBefore;
      found.textContent = `${counted}${cost(before)} \u2192 ${cost(total)} (${change(total - before)}) per ${per}`;
    } else {
      const part = share(total, tree.inclusive[0] / tree.packets);
      found.textContent = `${counted}${cost(total)} per ${per} (${percent(part)})`;
    }
  }

  function show(next: Tree): void {
    tree = next;
    icicle.setTree(next);
    back.hidden = next === whole;
    heading.textContent = next === whole ? "" : `Who calls ${short(nameOf(next, 0), 80)}: its callers are below it`;
    tell(0);
    look();
    outline.replaceChildren(...outlineOf(tree, [0], page.diff));
  }

  function upsideDown(): void {
    const fn = tree.fn[icicle.current.selected];
    if (fn >= 0 && tree === whole) {
      input.value = "";
      show(callersOf(whole, fn));
    }
  }

  const heading = h("p", { class: "inverted", role: "status" });
  const outline = h("ul", { class: "outline" });
  const list = h("details", {
    class: "as-list",
    ontoggle: () => {
      if (list.open && outline.childElementCount === 0) {
        outline.replaceChildren(...outlineOf(tree, [0], page.diff));
      }
    },
  }, h("summary", {}, "The same as a list"), outline);
  const colours = page.diff
    ? field("Colour by", choice(
        [["inclusive", "change with callees"], ["self", "change of self"], ["layer", "layer"]],
        "inclusive",
        (value) => {
          icicle.setColouring(value as Colouring);
          key.replaceChildren(...legend(whole, value as Colouring, page.diff));
        },
      ))
    : null;
  const key = h("div", { class: "legend" }, ...legend(whole, page.diff ? "inclusive" : "layer", page.diff));
  tell(0);
  const element = h(
    "div",
    { class: "frames" },
    h(
      "div",
      { class: "tools" },
      field("Search", input), found, h("span", { class: "spring" }), colours, callers, back,
      h("button", { type: "button", title: "Escape", onclick: () => icicle.out() }, "Out"),
      h("button", { type: "button", title: "Home", onclick: () => icicle.zoom(0) }, "Reset"),
    ),
    heading,
    crumbs,
    icicle.element,
    frame,
    key,
    list,
  );
  return {
    element,
    icicle,
    find: (fn) => {
      if (tree !== whole) {
        show(whole);
      }
      input.value = `=${whole.functions[fn].name}`;
      look();
      let widest = -1;
      for (let row = 1; row < whole.size; row++) {
        if (whole.fn[row] === fn && (widest < 0 || whole.width[row] > whole.width[widest])) {
          widest = row;
        }
      }
      if (widest >= 0) {
        icicle.zoom(0);
        icicle.select(widest);
      }
    },
  };
}

function legend(tree: Tree, colouring: Colouring, diff: boolean): HTMLElement[] {
  if (colouring !== "layer") {
    const swatch = (value: number, text: string): HTMLElement =>
      h("span", { class: "key" }, h("span", { class: "swatch", "--fill": changeFill(value, isDark()) }), text);
    return [
      swatch(-1, "less"), swatch(0, "the same"), swatch(1, "more"),
      h("span", { class: "key" }, h("span", { class: "swatch hatched" }), "gone"),
      h("span", { class: "key" }, "+ new"),
    ];
  }
  const layers = new Set<string>();
  for (let row = 1; row < tree.size; row++) {
    if (tree.self[row] > 0 || (diff && tree.selfBefore[row] > 0)) {
      layers.add(layerOf(tree, row));
    }
  }
  return [...layers]
    .filter((layer) => layer !== "")
    .sort((a, b) => order(a) - order(b) || a.localeCompare(b))
    .map((layer) => h("span", { class: "key" }, h("span", { class: "swatch tone", ...toneOf(layer) }), short(layer, 40)));
}

/** Callees shown at once; the rest on demand. */
const OUTLINE_STEP = 50;

/** Rows as a list that unfolds, for who can't see or use the canvas. */
function outlineOf(tree: Tree, rows: ArrayLike<number>, diff: boolean): HTMLElement[] {
  const items: HTMLElement[] = [];
  const shown = Math.min(rows.length, OUTLINE_STEP);
  for (let i = 0; i < shown; i++) {
    items.push(outlineItem(tree, rows[i], diff));
  }
  if (rows.length > shown) {
    const rest = Array.prototype.slice.call(rows, shown) as number[];
    const more = h("li", {}, h("button", {
      type: "button",
      onclick: () => more.replaceWith(...outlineOf(tree, rest, diff)),
    }, `${rest.length} more`));
    items.push(more);
  }
  return items;
}

function outlineItem(tree: Tree, row: number, diff: boolean): HTMLElement {
  const after = tree.inclusive[row] / tree.packets;
  const before = tree.inclusiveBefore[row] / tree.packetsBefore;
  const figures = diff
    ? `${cost(before)} \u2192 ${cost(after)} (${change(after - before)})`
    : `${cost(after)}, self ${cost(tree.self[row] / tree.packets)}`;
  const line = [h("span", { class: "code" }, short(nameOf(tree, row), 120)), " ", h("span", { class: "dim" }, figures)];
  const below = tree.children.subarray(tree.begin[row], tree.begin[row + 1]);
  if (below.length === 0) {
    return h("li", { class: "leaf" }, ...line);
  }
  const list = h("ul");
  const details = h("details", {
    ontoggle: () => {
      if (details.open && list.childElementCount === 0) {
        list.replaceChildren(...outlineOf(tree, below, diff));
      }
    },
  }, h("summary", {}, ...line), list);
  return h("li", {}, details);
}
