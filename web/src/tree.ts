/**
 * Calling-context trees in typed arrays. Row 0 is all of a class, then there is a
 * row for each context, then the frames; a parent comes before its children.
 */
import type { Page, PageClass, PageFunction } from "./data";
import { costIn } from "./number";

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
  /** The width and the begin of a row; the root is as wide as its weight. */
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
  /** The cost that one sample stands for, before and after, where samples are compared. */
  sample: [number, number] | null;
  functions: PageFunction[];
  /** How its costs are written. */
  show: (value: number) => string;
  /** The count beside costs: calls, or samples. */
  counted: string;
}

/** The source of a tree: a parent comes before its children. */
interface Columns {
  parent: Int32Array;
  fn: Int32Array;
  self: Float64Array;
  calls: Float64Array;
  selfBefore: Float64Array;
  callsBefore: Float64Array;
}

function columns(size: number): Columns {
  return {
    parent: new Int32Array(size),
    fn: new Int32Array(size),
    self: new Float64Array(size),
    calls: new Float64Array(size),
    selfBefore: new Float64Array(size),
    callsBefore: new Float64Array(size),
  };
}

/** The tree of a class, all contexts side by side. */
export function treeOf(page: Page, group: PageClass): Tree {
  const contexts = group.contexts.length;
  const rows = columns(group.contexts.reduce((sum, context) => sum + context.parent.length, 1 + contexts));
  rows.parent[0] = -1;
  rows.fn[0] = ROOT;
  let base = 1 + contexts;
  group.contexts.forEach((context, index) => {
    rows.fn[1 + index] = CONTEXT - index;
    const count = context.parent.length;
    for (let row = 0; row < count; row++) {
      const parent = context.parent[row];
      rows.parent[base + row] = parent < 0 ? 1 + index : base + parent;
    }
    rows.fn.set(context.function, base);
    rows.self.set(context.self_insns, base);
    rows.calls.set(context.calls, base);
    if (page.diff) {
      rows.selfBefore.set(context.self_insns_before, base);
      rows.callsBefore.set(context.calls_before, base);
    }
    base += count;
  });
  const names = group.contexts.map((context) => context.context);
  const counted = group.columns?.find((column) => column.key === "calls" || column.key === "calls_after");
  const shown = { functions: page.functions, show: costIn(page.unit), counted: counted?.title.startsWith("samples") ? "samples" : "calls" };
  return finish(rows, titleOf(group), names, group, shown, sampleOf(rows, group));
}

/** The cost that a sample stands for on either side, where samples are compared: there both sides have intervals. */
function sampleOf(rows: Columns, group: PageClass): [number, number] | null {
  if (!group.times?.columns?.some((column) => column.key === "interval_before")) {
    return null;
  }
  const sum = (all: Float64Array): number => all.reduce((a, b) => a + b, 0);
  const each = (costs: Float64Array, samples: Float64Array): number => sum(costs) / (sum(samples) || 1);
  return [each(rows.selfBefore, rows.callsBefore), each(rows.self, rows.calls)];
}

/** Standard errors of a change by counting samples, up to which it has no colour... */
const FAINT = 2;
/** ...and from which it has full colour. */
const CERTAIN = 4;

/** A row's cost after and before, with its callees or its own. */
function sidesOf(tree: Tree, row: number, of: "inclusive" | "self"): [number, number] {
  return of === "inclusive" ? [tree.inclusive[row], tree.inclusiveBefore[row]] : [tree.self[row], tree.selfBefore[row]];
}

/** The change of that. */
export function changeOf(tree: Tree, row: number, of: "inclusive" | "self"): number {
  const [is, was] = sidesOf(tree, row, of);
  return is / tree.packets - was / tree.packetsBefore;
}

/** The same for colouring: a change within the counting error is faint. */
export function certainOf(tree: Tree, row: number, of: "inclusive" | "self"): number {
  const [is, was] = sidesOf(tree, row, of);
  const change = changeOf(tree, row, of);
  if (!tree.sample || change === 0) {
    return change;
  }
  const [before, after] = tree.sample;
  const error = Math.sqrt((was * before) / tree.packetsBefore ** 2 + (is * after) / tree.packets ** 2);
  return change * Math.max(0, Math.min(1, (Math.abs(change) / error - FAINT) / (CERTAIN - FAINT)));
}

/** An arm and class in short: an arm that is named after its protocol adds nothing. */
export function titleOf(group: PageClass): string {
  return group.arm === "" || group.class.split(" ")[0] === group.arm ? group.class : `${group.class}, ${group.arm}`;
}

function finish(
  rows: Columns,
  root: string,
  contexts: string[],
  by: { packets: number; packets_before: number },
  shown: Pick<Tree, "functions" | "show" | "counted">,
  sample: [number, number] | null,
): Tree {
  const { parent, self, selfBefore } = rows;
  const size = parent.length;
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
    ...rows, size, depth, deepest, inclusive, inclusiveBefore, width, left, begin, children, contexts,
    root, packets, packetsBefore, sample, ...shown,
  };
}

/** The name of a row. */
export function nameOf(tree: Tree, row: number): string {
  const fn = tree.fn[row];
  if (fn >= 0) {
    return tree.functions[fn].name;
  }
  return fn === ROOT ? tree.root : tree.contexts[CONTEXT - fn];
}

/** Its layer; none if it is not a function. */
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

/** The cost of a function where another calls it. */
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
  const { fn, parent, size } = tree;
  const count = tree.functions.length;
  const functions: (FunctionSum | undefined)[] = new Array(count);
  const edges: Edge[] = [];
  // Which call a row is; -1 if nobody called it.
  const call = new Int32Array(size).fill(-1);
  const known = new Map<number, number>();
  for (let row = 1; row < size; row++) {
    const from = fn[parent[row]];
    const to = fn[row];
    if (to < 0) {
      continue;
    }
    let sum = functions[to];
    if (!sum) {
      sum = { fn: to, self: 0, selfBefore: 0, inclusive: 0, inclusiveBefore: 0, calls: 0, callsBefore: 0 };
      functions[to] = sum;
    }
    sum.self += tree.self[row];
    sum.selfBefore += tree.selfBefore[row];
    sum.calls += tree.calls[row];
    sum.callsBefore += tree.callsBefore[row];
    if (from < 0) {
      continue;
    }
    const key = from * count + to;
    let index = known.get(key);
    if (index === undefined) {
      index = edges.length;
      known.set(key, index);
      edges.push({ from, to, inclusive: 0, inclusiveBefore: 0, calls: 0, callsBefore: 0 });
    }
    call[row] = index;
    edges[index].calls += tree.calls[row];
    edges[index].callsBefore += tree.callsBefore[row];
  }
  // Down and up again, for what is open on the way; a row's complement is where it is left.
  const open = new Int32Array(count);
  const openCalls = new Int32Array(edges.length);
  const stack = new Int32Array(2 * size + 1);
  let top = 1;
  while (top > 0) {
    const row = stack[--top];
    if (row < 0) {
      open[fn[~row]]--;
      if (call[~row] >= 0) {
        openCalls[call[~row]]--;
      }
      continue;
    }
    const of = fn[row];
    if (of >= 0) {
      const sum = functions[of] as FunctionSum;
      if (open[of]++ === 0) {
        sum.inclusive += tree.inclusive[row];
        sum.inclusiveBefore += tree.inclusiveBefore[row];
      }
      if (call[row] >= 0 && openCalls[call[row]]++ === 0) {
        const edge = edges[call[row]];
        edge.inclusive += tree.inclusive[row];
        edge.inclusiveBefore += tree.inclusiveBefore[row];
      }
      stack[top++] = ~row;
    }
    for (let at = tree.begin[row]; at < tree.begin[row + 1]; at++) {
      stack[top++] = tree.children[at];
    }
  }
  const seen = functions.filter((f): f is FunctionSum => f !== undefined && (f.inclusive > 0 || f.inclusiveBefore > 0));
  return { functions: seen, edges };
}

/**
 * A function's callers: the tree upside down, the function at its root. The
 * widths are the function's inclusive cost by caller.
 */
export function callersOf(tree: Tree, fn: number): Tree {
  const outermost: number[] = [];
  for (let row = 1; row < tree.size; row++) {
    if (tree.fn[row] === fn && !hasAncestor(tree, row, fn)) {
      outermost.push(row);
    }
  }
  // The shape first: its callers, and theirs.
  const parents = [-1];
  const fns = [fn];
  const known = new Map<number, Map<number, number>>();
  const ways = outermost.map((row) => {
    const way = [0];
    for (let above = tree.parent[row]; above > 0; above = tree.parent[above]) {
      const at = way[way.length - 1];
      let below = known.get(at);
      if (!below) {
        below = new Map();
        known.set(at, below);
      }
      let next = below.get(tree.fn[above]);
      if (next === undefined) {
        next = parents.length;
        parents.push(at);
        fns.push(tree.fn[above]);
        below.set(tree.fn[above], next);
      }
      way.push(next);
    }
    return way;
  });
  const rows = columns(parents.length);
  rows.parent.set(parents);
  rows.fn.set(fns);
  outermost.forEach((row, index) => {
    // How often it was called for each of its callers, not how often they were.
    for (const at of ways[index]) {
      rows.calls[at] += tree.calls[row];
      rows.callsBefore[at] += tree.callsBefore[row];
    }
    const end = ways[index][ways[index].length - 1];
    rows.self[end] += tree.inclusive[row];
    rows.selfBefore[end] += tree.inclusiveBefore[row];
  });
  const by = { packets: tree.packets, packets_before: tree.packetsBefore };
  return finish(rows, "", tree.contexts, by, { functions: tree.functions, show: tree.show, counted: tree.counted }, tree.sample);
}

function hasAncestor(tree: Tree, row: number, fn: number): boolean {
  for (let above = tree.parent[row]; above > 0; above = tree.parent[above]) {
    if (tree.fn[above] === fn) {
      return true;
    }
  }
  return false;
}

/** The result of a search. */
export interface Found {
  /** By row: whether it is one. */
  rows: Uint8Array;
  frames: number;
  functions: number;
  /** Inclusive, without counting nested matches twice. */
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

/** A predicate for names that match the search; or an error in words. */
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
}

/** Every class at a glance. */
export function glances(page: Page): Glance[] {
  return page.classes.map((group, index) => glanceOf(page, group, index));
}

/** A class at a glance. */
export function glanceOf(page: Page, group: PageClass, index: number): Glance {
  const packets = group.packets || 1;
  const packetsBefore = group.packets_before || 1;
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
      if (page.diff) {
        before += tree.self_insns_before[row];
        add(fn, tree.self_insns_before[row], 1);
      }
    }
  }
  for (const pair of layers.values()) {
    pair[0] /= packets;
    pair[1] /= packetsBefore;
  }
  return {
    index, group, layers,
    after: after / packets,
    before: before / packetsBefore,
  };
}
