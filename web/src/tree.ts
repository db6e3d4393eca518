/**
 * Calling-context trees in typed arrays. Row 0 is all of a class, then there is a
 * row for each context, then the frames; a parent comes before its children.
 */
import type { Page, PageClass, PageFunction } from "./data";

/** Rows that are no function. */
export const ROOT = -1;
const CONTEXT = -2;

export interface Tree {
  /** Rows. */
  size: number;
  parent: Int32Array;
  /** Index of the function, [`ROOT`], or below that a context. */
  fn: Int32Array;
  depth: Int32Array;
  deepest: number;
  self: Float64Array;
  calls: Float64Array;
  inclusive: Float64Array;
  /** Of a comparison: before. Else all of them are 0. */
  selfBefore: Float64Array;
  callsBefore: Float64Array;
  inclusiveBefore: Float64Array;
  /** How wide a row is and where it begins; the root is as wide as its weight. */
  width: Float64Array;
  left: Float64Array;
  /** Children of row `i`, the widest first: `children[begin[i]] .. children[begin[i + 1]]`. */
  begin: Int32Array;
  children: Int32Array;
  contexts: string[];
  root: string;
  /** What the costs are divided by, after and before. */
  packets: number;
  packetsBefore: number;
  functions: PageFunction[];
}

/** A tree being written, a row at a time. */
export class Rows {
  parent: number[] = [];
  fn: number[] = [];
  self: number[] = [];
  calls: number[] = [];
  selfBefore: number[] = [];
  callsBefore: number[] = [];

  push(parent: number, fn: number, self = 0, calls = 0, selfBefore = 0, callsBefore = 0): number {
    this.parent.push(parent);
    this.fn.push(fn);
    this.self.push(self);
    this.calls.push(calls);
    this.selfBefore.push(selfBefore);
    this.callsBefore.push(callsBefore);
    return this.parent.length - 1;
  }
}

/** The tree of a class, all contexts side by side. */
export function treeOf(page: Page, group: PageClass): Tree {
  const rows = new Rows();
  rows.push(-1, ROOT);
  group.contexts.forEach((_, index) => rows.push(0, CONTEXT - index));
  group.contexts.forEach((context, index) => {
    const base = rows.parent.length;
    const count = context.parent.length;
    for (let row = 0; row < count; row++) {
      const parent = context.parent[row];
      rows.push(
        parent < 0 ? 1 + index : base + parent,
        context.function[row],
        context.self_insns[row],
        context.calls[row],
        page.diff ? context.self_insns_before[row] : 0,
        page.diff ? context.calls_before[row] : 0,
      );
    }
  });
  const names = group.contexts.map((context) => context.context);
  return finish(rows, titleOf(group), names, group, page.functions);
}

/** An arm and class in short: an arm that is named after its protocol adds nothing. */
export function titleOf(group: PageClass): string {
  return group.arm === "" || group.class.split(" ")[0] === group.arm ? group.class : `${group.class}, ${group.arm}`;
}

function finish(
  rows: Rows,
  root: string,
  contexts: string[],
  by: { packets: number; packets_before: number },
  functions: PageFunction[],
): Tree {
  const size = rows.parent.length;
  const parent = Int32Array.from(rows.parent);
  const self = Float64Array.from(rows.self);
  const selfBefore = Float64Array.from(rows.selfBefore);
  const packets = by.packets || 1;
  const packetsBefore = by.packets_before || 1;
  const inclusive = self.slice();
  const inclusiveBefore = selfBefore.slice();
  const width = new Float64Array(size);
  const depth = new Int32Array(size);
  let deepest = 0;
  for (let row = 0; row < size; row++) {
    // Wide enough for either side, so that what is gone can be seen too.
    width[row] = Math.max(self[row] / packets, selfBefore[row] / packetsBefore);
    if (row > 0) {
      depth[row] = depth[parent[row]] + 1;
      deepest = Math.max(deepest, depth[row]);
    }
  }
  const begin = new Int32Array(size + 1);
  for (let row = size - 1; row > 0; row--) {
    const above = parent[row];
    inclusive[above] += inclusive[row];
    inclusiveBefore[above] += inclusiveBefore[row];
    width[above] += width[row];
    begin[above + 1]++;
  }
  for (let row = 0; row < size; row++) {
    begin[row + 1] += begin[row];
  }
  const children = new Int32Array(Math.max(size - 1, 0));
  const next = begin.slice();
  for (let row = 1; row < size; row++) {
    children[next[parent[row]]++] = row;
  }
  const left = new Float64Array(size);
  for (let row = 0; row < size; row++) {
    const mine = children.subarray(begin[row], begin[row + 1]);
    if (mine.length > 1) {
      mine.sort((a, b) => width[b] - width[a] || a - b);
    }
    let at = left[row];
    for (const child of mine) {
      left[child] = at;
      at += width[child];
    }
  }
  return {
    size, parent, depth, deepest, self, selfBefore, inclusive, inclusiveBefore, width, left, begin, children,
    fn: Int32Array.from(rows.fn),
    calls: Float64Array.from(rows.calls),
    callsBefore: Float64Array.from(rows.callsBefore),
    contexts, root, packets, packetsBefore, functions,
  };
}

/** What a row is called. */
export function nameOf(tree: Tree, row: number): string {
  const fn = tree.fn[row];
  if (fn >= 0) {
    return tree.functions[fn].name;
  }
  return fn === ROOT ? tree.root : tree.contexts[CONTEXT - fn];
}

/** Its layer; of what is no function, none. */
export function layerOf(tree: Tree, row: number): string {
  const fn = tree.fn[row];
  return fn >= 0 ? tree.functions[fn].layer : "";
}

/** Sums of a function. */
export interface FunctionSum {
  fn: number;
  self: number;
  selfBefore: number;
  inclusive: number;
  inclusiveBefore: number;
  calls: number;
  callsBefore: number;
}

/** What a function costs where another calls it. */
export interface Edge {
  from: number;
  to: number;
  inclusive: number;
  inclusiveBefore: number;
  calls: number;
  callsBefore: number;
}

export interface Sums {
  functions: FunctionSum[];
  edges: Edge[];
}

/** Sums by function and by call. Recursion counts once, where it began. */
export function sums(tree: Tree): Sums {
  const functions = new Map<number, FunctionSum>();
  const edges = new Map<number, Edge>();
  const open = new Int32Array(tree.functions.length);
  const openEdges = new Map<number, number>();
  const edgeOf = (row: number): number => {
    const above = row > 0 ? tree.fn[tree.parent[row]] : -1;
    return above >= 0 && tree.fn[row] >= 0 ? above * tree.functions.length + tree.fn[row] : -1;
  };
  // Down and up again: a row's complement is where it is left.
  const stack = [0];
  while (stack.length > 0) {
    const row = stack.pop() as number;
    if (row < 0) {
      const fn = tree.fn[~row];
      const edge = edgeOf(~row);
      if (fn >= 0) {
        open[fn]--;
      }
      if (edge >= 0) {
        openEdges.set(edge, (openEdges.get(edge) ?? 1) - 1);
      }
      continue;
    }
    const fn = tree.fn[row];
    if (fn >= 0) {
      let sum = functions.get(fn);
      if (!sum) {
        sum = { fn, self: 0, selfBefore: 0, inclusive: 0, inclusiveBefore: 0, calls: 0, callsBefore: 0 };
        functions.set(fn, sum);
      }
      sum.self += tree.self[row];
      sum.selfBefore += tree.selfBefore[row];
      sum.calls += tree.calls[row];
      sum.callsBefore += tree.callsBefore[row];
      if (open[fn] === 0) {
        sum.inclusive += tree.inclusive[row];
        sum.inclusiveBefore += tree.inclusiveBefore[row];
      }
      open[fn]++;
    }
    const key = edgeOf(row);
    if (key >= 0) {
      let edge = edges.get(key);
      if (!edge) {
        edge = {
          from: tree.fn[tree.parent[row]], to: fn, inclusive: 0, inclusiveBefore: 0, calls: 0, callsBefore: 0,
        };
        edges.set(key, edge);
      }
      edge.calls += tree.calls[row];
      edge.callsBefore += tree.callsBefore[row];
      const depth = openEdges.get(key) ?? 0;
      if (depth === 0) {
        edge.inclusive += tree.inclusive[row];
        edge.inclusiveBefore += tree.inclusiveBefore[row];
      }
      openEdges.set(key, depth + 1);
    }
    stack.push(~row);
    for (let at = tree.begin[row]; at < tree.begin[row + 1]; at++) {
      stack.push(tree.children[at]);
    }
  }
  const seen = [...functions.values()].filter((f) => f.inclusive > 0 || f.inclusiveBefore > 0);
  return { functions: seen, edges: [...edges.values()] };
}

/**
 * A function's callers: the tree upside down, the function at its root. The
 * widths are what the function cost, with all that it called, by who asked for it.
 */
export function callersOf(tree: Tree, fn: number): Tree {
  const rows = new Rows();
  rows.push(-1, fn);
  const known = new Map<string, number>();
  for (let row = 1; row < tree.size; row++) {
    if (tree.fn[row] !== fn || hasAncestor(tree, row, fn)) {
      continue;
    }
    let at = 0;
    rows.calls[0] += tree.calls[row];
    rows.callsBefore[0] += tree.callsBefore[row];
    for (let above = tree.parent[row]; above > 0; above = tree.parent[above]) {
      const key = `${at} ${tree.fn[above]}`;
      let next = known.get(key);
      if (next === undefined) {
        next = rows.push(at, tree.fn[above]);
        known.set(key, next);
      }
      // How often it was called for this caller, not how often that was.
      rows.calls[next] += tree.calls[row];
      rows.callsBefore[next] += tree.callsBefore[row];
      at = next;
    }
    rows.self[at] += tree.inclusive[row];
    rows.selfBefore[at] += tree.inclusiveBefore[row];
  }
  const by = { packets: tree.packets, packets_before: tree.packetsBefore };
  return finish(rows, "", tree.contexts, by, tree.functions);
}

function hasAncestor(tree: Tree, row: number, fn: number): boolean {
  for (let above = tree.parent[row]; above > 0; above = tree.parent[above]) {
    if (tree.fn[above] === fn) {
      return true;
    }
  }
  return false;
}

/** What a search found. */
export interface Found {
  /** By row: whether it is one. */
  rows: Uint8Array;
  frames: number;
  functions: number;
  /** Inclusive, and nothing of it twice. */
  total: number;
  totalBefore: number;
}

/** Frames whose name has the text in it; `/.../` is a regular expression, `=` the whole name. */
export function search(tree: Tree, query: string): Found | string {
  const test = matcher(query);
  if (typeof test === "string") {
    return test;
  }
  const matches = new Uint8Array(tree.functions.length);
  tree.functions.forEach((f, index) => {
    matches[index] = test(f.name) || (f.was !== null && test(f.was)) ? 1 : 0;
  });
  const found: Found = { rows: new Uint8Array(tree.size), frames: 0, functions: 0, total: 0, totalBefore: 0 };
  const inside = new Uint8Array(tree.size);
  const functions = new Set<number>();
  for (let row = 0; row < tree.size; row++) {
    const above = row > 0 ? tree.parent[row] : -1;
    inside[row] = above >= 0 && (inside[above] || found.rows[above]) ? 1 : 0;
    const fn = tree.fn[row];
    if (fn < 0 || !matches[fn] || (tree.inclusive[row] === 0 && tree.inclusiveBefore[row] === 0)) {
      continue;
    }
    found.rows[row] = 1;
    found.frames++;
    functions.add(fn);
    if (!inside[row]) {
      found.total += tree.inclusive[row];
      found.totalBefore += tree.inclusiveBefore[row];
    }
  }
  found.functions = functions.size;
  return found;
}

/** Whether a name is looked for; or in words why nothing can be. */
export function matcher(query: string): ((name: string) => boolean) | string {
  if (query.startsWith("=") && query.length > 1) {
    const whole = query.slice(1);
    return (name) => name === whole;
  }
  if (query.length > 2 && query.startsWith("/") && query.endsWith("/")) {
    try {
      const expression = new RegExp(query.slice(1, -1), "i");
      return (name) => expression.test(name);
    } catch {
      return "that is no regular expression";
    }
  }
  const needle = query.toLowerCase();
  return (name) => name.toLowerCase().includes(needle);
}

/** A class at a glance, without its tree. */
export interface Glance {
  index: number;
  group: PageClass;
  /** For each packet. */
  after: number;
  before: number;
  /** By layer, for each packet, after and before. */
  layers: Map<string, [number, number]>;
  topFunction: number;
  topSelf: number;
}

/** Every class at a glance. */
export function glances(page: Page): Glance[] {
  const sum = new Float64Array(page.functions.length);
  return page.classes.map((group, index) => {
    const packets = group.packets || 1;
    const packetsBefore = group.packets_before || 1;
    sum.fill(0);
    const layers = new Map<string, [number, number]>();
    let after = 0;
    let before = 0;
    const add = (fn: number, insns: number, side: 0 | 1): void => {
      const layer = page.functions[fn].layer;
      let pair = layers.get(layer);
      if (!pair) {
        pair = [0, 0];
        layers.set(layer, pair);
      }
      pair[side] += insns;
    };
    for (const tree of group.contexts) {
      for (let row = 0; row < tree.function.length; row++) {
        const fn = tree.function[row];
        const insns = tree.self_insns[row];
        after += insns;
        add(fn, insns, 0);
        sum[fn] += page.diff ? 0 : insns;
        if (page.diff) {
          before += tree.self_insns_before[row];
          add(fn, tree.self_insns_before[row], 1);
          sum[fn] += insns / packets - tree.self_insns_before[row] / packetsBefore;
        }
      }
    }
    for (const pair of layers.values()) {
      pair[0] /= packets;
      pair[1] /= packetsBefore;
    }
    let topFunction = -1;
    for (let fn = 0; fn < sum.length; fn++) {
      if (sum[fn] !== 0 && (topFunction < 0 || Math.abs(sum[fn]) > Math.abs(sum[topFunction]))) {
        topFunction = fn;
      }
    }
    const top = topFunction < 0 ? 0 : sum[topFunction];
    return {
      index, group, layers, topFunction,
      after: after / packets,
      before: before / packetsBefore,
      topSelf: page.diff ? top : top / packets,
    };
  });
}
