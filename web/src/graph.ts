/**
 * The call graph: callers, callees and the cost of calls. Functions and calls below
 * a threshold are left out; dagre lays out the rest.
 */
import { Graph } from "@dagrejs/graphlib";
import { layout } from "@dagrejs/dagre";
import { curveBasis, line } from "d3-shape";
import { changeFill, toneOf } from "./colour";
import { h, s } from "./dom";
import { isDark } from "./icicle";
import { change, cost, percent, plural, share, short, thousands } from "./number";
import type { Edge, FunctionSum, Sums, Tree } from "./tree";

/** The most functions of a readable picture. */
export const MOST_NODES = 120;
/** Shares of the whole at which to cut, percent. */
export const THRESHOLDS = [0.1, 0.2, 0.5, 1, 2, 3, 5, 7.5, 10, 15, 20, 30, 50];
const NAME_LETTERS = 30;
const HIGH = 38;
/** A smooth line through the points that dagre gives. */
const curve = line<{ x: number; y: number }>((p) => p.x, (p) => p.y).curve(curveBasis).digits(1);

export interface Part {
  nodes: FunctionSum[];
  edges: Edge[];
  /** Functions below the threshold, or in a collapsed part. */
  hidden: number;
  /** By function: how many of its callees are not shown because it is collapsed. */
  folded: Map<number, number>;
}

const weight = (tree: Tree, of: { inclusive: number; inclusiveBefore: number }): number =>
  Math.max(of.inclusive / tree.packets, of.inclusiveBefore / tree.packetsBefore);

/**
 * How much a call with this share of the whole keeps its ends together. An integer: otherwise
 * rounding in dagre's sums makes it look for an edge that does not exist.
 */
export function pull(share: number): number {
  return Math.round(1 + 20 * share);
}

/** The part of the graph from a threshold on, without callees of collapsed functions. */
export function part(tree: Tree, sums: Sums, threshold: number, collapsed: ReadonlySet<number>): Part {
  const least = (threshold / 100) * tree.width[0];
  const kept = sums.functions
    .filter((f) => weight(tree, f) >= least && weight(tree, f) > 0)
    .sort((a, b) => weight(tree, b) - weight(tree, a) || a.fn - b.fn)
    .slice(0, MOST_NODES);
  const byFn = new Map(kept.map((f) => [f.fn, f]));
  const edges = sums.edges.filter(
    (e) => byFn.has(e.from) && byFn.has(e.to) && weight(tree, e) >= least / 4 && weight(tree, e) > 0,
  );
  const callees = new Map<number, Edge[]>();
  const called = new Set<number>();
  for (const edge of edges) {
    callees.set(edge.from, [...(callees.get(edge.from) ?? []), edge]);
    if (edge.from !== edge.to) {
      called.add(edge.to);
    }
  }
  const folded = new Map<number, number>();
  const reach = (start: number, reached: Set<number>, folds: boolean): void => {
    const stack = [start];
    while (stack.length > 0) {
      const fn = stack.pop() as number;
      if (reached.has(fn)) {
        continue;
      }
      reached.add(fn);
      const below = callees.get(fn) ?? [];
      if (folds && collapsed.has(fn)) {
        folded.set(fn, below.length);
      } else {
        stack.push(...below.map((e) => e.to));
      }
    }
  };
  // Start at functions without callers and, in a cycle without callers, at the largest.
  const starts: number[] = [];
  const all = new Set<number>();
  for (const f of [...kept.filter((f) => !called.has(f.fn)), ...kept]) {
    if (!all.has(f.fn)) {
      starts.push(f.fn);
      reach(f.fn, all, false);
    }
  }
  const reached = new Set<number>();
  for (const start of starts) {
    reach(start, reached, true);
  }
  const nodes = kept.filter((f) => reached.has(f.fn));
  return {
    nodes,
    edges: edges.filter((e) => reached.has(e.from) && reached.has(e.to) && !collapsed.has(e.from)),
    hidden: sums.functions.length - nodes.length,
    folded,
  };
}

/** The threshold at which the graph is still a picture. */
export function goodThreshold(tree: Tree, sums: Sums): number {
  const found = THRESHOLDS.find((t) => part(tree, sums, t, new Set()).nodes.length <= 36);
  return found ?? THRESHOLDS[THRESHOLDS.length - 1];
}

/** The graph, with its controls. */
export function callGraph(tree: Tree, sums: Sums, diff: boolean, pick: (fn: number) => void): HTMLElement {
  const collapsed = new Set<number>();
  let threshold = goodThreshold(tree, sums);
  let view = { x: 0, y: 0, scale: 1 };
  let size = { width: 1, height: 1 };
  let first = 0;
  let most = 1e-9;
  for (const f of sums.functions) {
    most = Math.max(most, Math.abs(f.inclusive / tree.packets - f.inclusiveBefore / tree.packetsBefore));
  }
  const inner = s("g");
  const svg = s(
    "svg",
    {
      class: "graph",
      tabindex: 0,
      role: "group",
      "aria-label": "Call graph. Tab goes from function to function, Enter folds and unfolds what one calls.",
      onkeydown: (event: KeyboardEvent) => key(event),
      onwheel: (event: WheelEvent) => wheel(event),
      onpointerdown: (event: PointerEvent) => grab(event),
    },
    marker(),
    inner,
  );
  const status = h("span", { class: "status", role: "status", "aria-live": "polite" });
  const shown = h("output", {});
  const slider = h("input", {
    type: "range",
    min: 0,
    max: THRESHOLDS.length - 1,
    step: 1,
    value: THRESHOLDS.indexOf(threshold),
    "aria-label": "Least share of the path that is shown",
    oninput: () => {
      threshold = THRESHOLDS[Number(slider.value)];
      render(true);
    },
  });
  const button = (text: string, label: string, act: () => void) =>
    h("button", { type: "button", "aria-label": label, title: label, onclick: act }, text);
  const scroller = h("div", { class: "graph-box" }, svg);
  const hint = h("span", { class: "status", hidden: true }, "Drag to see the rest.");

  function place(): void {
    inner.setAttribute("transform", `translate(${view.x} ${view.y}) scale(${view.scale})`);
    // There are no scroll bars for parts beyond the edges.
    hint.hidden = size.width * view.scale <= scroller.clientWidth && size.height * view.scale <= scroller.clientHeight;
  }

  function fit(): void {
    const wide = scroller.clientWidth || 800;
    const high = scroller.clientHeight || 520;
    // Not too small to read: beyond that, pan.
    const scale = Math.min(Math.max(Math.min(wide / (size.width + 24), high / (size.height + 24)), 0.75), 1);
    view = { scale, x: (wide - size.width * scale) / 2, y: 12 };
    if (size.width * scale > wide - 24) {
      // The most expensive function is in sight.
      view.x = Math.min(Math.max(wide / 2 - first * scale, wide - 12 - size.width * scale), 12);
    }
    place();
  }

  function zoom(factor: number, x = scroller.clientWidth / 2, y = scroller.clientHeight / 2): void {
    const scale = Math.min(Math.max(view.scale * factor, 0.1), 4);
    view.x = x - ((x - view.x) * scale) / view.scale;
    view.y = y - ((y - view.y) * scale) / view.scale;
    view.scale = scale;
    place();
  }

  function key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) {
      return;
    }
    const moves: Record<string, () => void> = {
      ArrowLeft: () => (view.x += 60),
      ArrowRight: () => (view.x -= 60),
      ArrowUp: () => (view.y += 60),
      ArrowDown: () => (view.y -= 60),
      "+": () => zoom(1.25),
      "=": () => zoom(1.25),
      "-": () => zoom(0.8),
      "0": fit,
      Home: fit,
    };
    const move = moves[event.key];
    if (move) {
      move();
      place();
      event.preventDefault();
    }
  }

  function wheel(event: WheelEvent): void {
    if (!event.ctrlKey && !event.metaKey && !event.altKey) {
      return;
    }
    event.preventDefault();
    const box = svg.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY * 0.003), event.clientX - box.left, event.clientY - box.top);
  }

  function grab(event: PointerEvent): void {
    if (event.button !== 0) {
      return;
    }
    const start = { x: event.clientX, y: event.clientY, vx: view.x, vy: view.y };
    let moved = false;
    const move = (e: PointerEvent): void => {
      if (!moved && Math.hypot(e.clientX - start.x, e.clientY - start.y) < 4) {
        return;
      }
      if (!moved) {
        moved = true;
        svg.setPointerCapture(e.pointerId);
      }
      view.x = start.vx + e.clientX - start.x;
      view.y = start.vy + e.clientY - start.y;
      place();
    };
    const end = (): void => {
      svg.removeEventListener("pointermove", move);
      svg.removeEventListener("pointerup", end);
      svg.removeEventListener("pointercancel", end);
    };
    svg.addEventListener("pointermove", move);
    svg.addEventListener("pointerup", end);
    svg.addEventListener("pointercancel", end);
  }

  function toggle(fn: number): void {
    if (collapsed.has(fn)) {
      collapsed.delete(fn);
    } else {
      collapsed.add(fn);
    }
    render(false);
    (inner.querySelector(`[data-fn="${fn}"]`) as SVGElement | null)?.focus();
  }

  function render(refit: boolean): void {
    const shownPart = part(tree, sums, threshold, collapsed);
    shown.textContent = `${threshold}%`;
    status.textContent = `${plural(shownPart.nodes.length, "function")}, ${plural(shownPart.edges.length, "call")}; ${thousands(shownPart.hidden)} not shown`;
    const graph = new Graph({ directed: true, multigraph: false });
    graph.setGraph({ rankdir: "TB", nodesep: 18, ranksep: 20, edgesep: 12, marginx: 4, marginy: 4 });
    graph.setDefaultEdgeLabel(() => ({}));
    for (const f of shownPart.nodes) {
      const letters = Math.min(tree.functions[f.fn].name.length, NAME_LETTERS);
      graph.setNode(String(f.fn), { width: Math.max(letters * 7.1 + 18, figuresOf(f).length * 5.9 + 14, 132), height: HIGH });
    }
    for (const e of shownPart.edges) {
      if (e.from !== e.to) {
        graph.setEdge(String(e.from), String(e.to), {
          width: edgeText(e).length * 6 + 4, height: 12, labelpos: "c", weight: pull(weight(tree, e) / (tree.width[0] || 1)),
        });
      }
    }
    layout(graph);
    const label = graph.graph() as { width?: number; height?: number };
    size = { width: label.width ?? 1, height: label.height ?? 1 };
    const top = shownPart.nodes[0];
    first = top ? (graph.node(String(top.fn)) as { x: number }).x : 0;
    const edges = shownPart.edges.filter((e) => e.from !== e.to).map((e) => drawEdge(graph, e));
    const nodes = shownPart.nodes.map((f) => drawNode(graph, f, shownPart));
    inner.replaceChildren(...edges, ...nodes);
    if (refit) {
      fit();
    }
  }

  const edgeText = (e: Edge): string => {
    if (diff) {
      return change(e.inclusive / tree.packets - e.inclusiveBefore / tree.packetsBefore, tree.show);
    }
    const calls = e.calls / tree.packets;
    // Samples don't count calls.
    const times = tree.counted === "calls" && calls > 0 && calls !== 1 ? ` \u00b7 ${cost(calls)}\u00d7` : "";
    return tree.show(e.inclusive / tree.packets) + times;
  };

  function drawEdge(graph: Graph, e: Edge): SVGElement {
    const at = graph.edge(String(e.from), String(e.to)) as {
      points: { x: number; y: number }[]; x: number; y: number;
    };
    const part = weight(tree, e) / (tree.width[0] || 1);
    const gone = diff && e.inclusive === 0;
    return s(
      "g",
      { class: gone ? "edge gone" : "edge" },
      s("path", { d: curve(at.points), "stroke-width": (0.8 + 5 * Math.sqrt(part)).toFixed(2), "marker-end": "url(#arrow)" }),
      s("text", { x: at.x + 7, y: at.y + 4 }, edgeText(e)),
    );
  }

  /** The text below a function's name. */
  function figuresOf(f: FunctionSum): string {
    const [is, was] = [f.inclusive / tree.packets, f.inclusiveBefore / tree.packetsBefore];
    return diff ? `${tree.show(was)} \u2192 ${tree.show(is)} (${change(is - was, tree.show)})` : `${tree.show(is)} \u00b7 self ${tree.show(f.self / tree.packets)}`;
  }

  function drawNode(graph: Graph, f: FunctionSum, shownPart: Part): SVGElement {
    const at = graph.node(String(f.fn)) as { x: number; y: number; width: number; height: number };
    const about = tree.functions[f.fn];
    const inclusive = f.inclusive / tree.packets;
    const delta = inclusive - f.inclusiveBefore / tree.packetsBefore;
    const calls = shownPart.edges.some((e) => e.from === f.fn && e.to !== f.fn);
    const folded = shownPart.folded.get(f.fn) ?? 0;
    const figures = figuresOf(f);
    const gone = diff && f.inclusive === 0 && f.inclusiveBefore > 0;
    const label =
      `${short(about.name, 120)}, ${about.layer}, inclusive ${figures}, ` +
      `${percent(share(inclusive, tree.inclusive[0] / tree.packets))} of the path` +
      (folded ? `, ${folded} calls folded` : "");
    const box = s("rect", {
      x: -at.width / 2, y: -at.height / 2, width: at.width, height: at.height, rx: 3,
      class: gone ? "box gone" : "box",
      ...(diff ? {} : toneOf(about.layer)),
    });
    if (diff) {
      box.setAttribute("fill", changeFill(delta / most, isDark()));
    }
    return s(
      "g",
      {
        class: "node",
        transform: `translate(${at.x} ${at.y})`,
        tabindex: 0,
        role: "button",
        "aria-label": label,
        "aria-expanded": folded ? "false" : calls ? "true" : null,
        "data-fn": f.fn,
        onclick: () => toggle(f.fn),
        ondblclick: () => pick(f.fn),
        onkeydown: (event: KeyboardEvent) => {
          if (event.key === "Enter" || event.key === " ") {
            event.preventDefault();
            event.stopPropagation();
            toggle(f.fn);
          }
        },
      },
      s("title", {}, label),
      box,
      s("text", { y: -4, "text-anchor": "middle", class: "name" }, short(about.name, NAME_LETTERS)),
      s("text", { y: 12, "text-anchor": "middle", class: "figures" }, figures),
      folded ? s("text", { y: HIGH / 2 + 11, "text-anchor": "middle", class: "folded" }, `+${folded}`) : null,
    );
  }

  const element = h(
    "div",
    { class: "graph-part" },
    h(
      "div",
      { class: "tools" },
      h("label", { class: "field" }, h("span", {}, "At least"), slider, shown, h("span", {}, "of the path")),
      status,
      hint,
      h("span", { class: "spring" }),
      button("\u2212", "Zoom out", () => zoom(0.8)),
      button("+", "Zoom in", () => zoom(1.25)),
      button("Fit", "Fit the graph in", fit),
      button("Unfold all", "Unfold all that is folded", () => {
        collapsed.clear();
        render(true);
      }),
    ),
    scroller,
  );
  render(false);
  new ResizeObserver(() => fit()).observe(scroller);
  return element;
}

function marker(): SVGElement {
  return s(
    "defs",
    {},
    s(
      "marker",
      { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, markerUnits: "userSpaceOnUse", orient: "auto-start-reverse" },
      s("path", { d: "M0 0.5L8 4L0 7.5z", class: "arrow" }),
    ),
  );
}
