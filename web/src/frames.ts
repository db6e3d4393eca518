/** The icicle with what belongs to it: search, callers, colours, and the same as a list. */
import { said, say } from "./address";
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

/** The details of a row. */
export function describe(tree: Tree, row: number, diff: boolean): [string, string][] {
  const after = tree.inclusive[row] / tree.packets;
  const self = tree.self[row] / tree.packets;
  const calls = tree.calls[row] / tree.packets;
  const fn = tree.fn[row];
  const { show } = tree;
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
    lines.push(["inclusive", `${show(after)} (${percent(share(after, whole))})`], ["self", show(self)]);
    if (fn >= 0) {
      lines.push([tree.counted, cost(calls)]);
    }
    return lines;
  }
  const pair = (a: number, b: number, format = show): string => `${format(a)} \u2192 ${format(b)} (${change(b - a, format)}, ${changePercent(a, b)})`;
  lines.push(
    ["inclusive", pair(tree.inclusiveBefore[row] / tree.packetsBefore, after)],
    ["self", pair(tree.selfBefore[row] / tree.packetsBefore, self)],
  );
  if (fn >= 0) {
    lines.push([tree.counted, pair(tree.callsBefore[row] / tree.packetsBefore, calls, cost)]);
  }
  return lines;
}

/** The part of a page that shows one class's frames. */
export function frames(page: Page, whole: Tree, per: string): Frames {
  let tree = whole;
  // Don't write to the address until its state is shown.
  let following = false;
  const tellAddress: typeof say = (changes) => following && say(changes);
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
    chosen: (row) => {
      tell(row);
      tellAddress({ frame: row > 0 ? String(row) : null });
    },
    zoomed: (row, extent) => {
      tellAddress({ zoom: extent });
      queueMicrotask(() => trail(row));
    },
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
    tellAddress({ search: query });
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
      found.textContent = `${counted}${tree.show(before)} \u2192 ${tree.show(total)} (${change(total - before, tree.show)}) per ${per}`;
    } else {
      const part = share(total, tree.inclusive[0] / tree.packets);
      found.textContent = `${counted}${tree.show(total)} per ${per} (${percent(part)})`;
    }
  }

  function show(next: Tree): void {
    tree = next;
    tellAddress({ callers: next === whole ? null : whole.functions[next.fn[0]].name, frame: null });
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

  /** Show the state in the address, without parts that the tree does not have. */
  function follow(): void {
    const callee = whole.functions.findIndex((f) => f.name === said("callers"));
    if (callee >= 0 && whole.fn.includes(callee)) {
      show(callersOf(whole, callee));
    }
    input.value = said("search") ?? "";
    if (input.value !== "") {
      look();
    }
    icicle.restore(said("zoom") ?? "");
    const row = Number(said("frame"));
    if (Number.isInteger(row) && row > 0 && row < tree.size) {
      icicle.select(row);
    }
    following = true;
  }

  follow();
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

/** Rows as a list that unfolds, for readers who can't see or use the canvas. */
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
    ? `${tree.show(before)} \u2192 ${tree.show(after)} (${change(after - before, tree.show)})`
    : `${tree.show(after)}, self ${tree.show(tree.self[row] / tree.packets)}`;
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
