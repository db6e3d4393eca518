import assert from "node:assert/strict";
import test from "node:test";
import { layout } from "@dagrejs/dagre";
import { Graph } from "@dagrejs/graphlib";
import { changeSteps, isFunction, isSuccessor, published, steps } from "../src/bars";
import { changeFill, order, tone } from "../src/colour";
import { partOf } from "../src/data";
import { byLoss } from "../src/flow";
import { goodThreshold, MOST_NODES, part, pull } from "../src/graph";
import { longest, sent } from "../src/rates";
import { compare, csv } from "../src/table";
import { glances, sums, treeOf } from "../src/tree";
import { fixture } from "./fixture";

/** Check that a spreadsheet gets numbers as numbers, and names never as formulas. */
test("CSV", () => {
  const columns = [
    { title: "name", value: (r: [string, number]) => r[0] },
    { title: "", value: () => "" },
    { title: "cost", value: (r: [string, number]) => r[1] },
  ];
  const rows: [string, number][] = [["a", 1.5], ['say "x", y', 2], ["=cmd()", 3], ["@x\ny", Number.NaN]];
  assert.equal(csv(columns, rows), 'name,cost\r\na,1.5\r\n"say ""x"", y",2\r\n"\'=cmd()",3\r\n"\'@x\ny",\r\n');
});

/** Check that rows are in the order of their numbers, by size where that is asked for. */
test("sorting", () => {
  assert.deepEqual([3, -5, 1].sort((a, b) => compare(a, b, false)), [-5, 1, 3]);
  assert.deepEqual([3, -5, 1].sort((a, b) => compare(a, b, true)), [1, 3, -5]);
  assert.deepEqual(["f10", "f9"].sort((a, b) => compare(a, b, false)), ["f9", "f10"]);
});

/** Check that the waterfall's steps go from nothing to the whole, or from before to after. */
test("waterfalls", () => {
  for (const name of ["page.json", "page-diff.json"]) {
    const page = fixture(name);
    for (const glance of glances(page)) {
      const all = steps(glance, page.diff);
      let at = page.diff ? glance.before : 0;
      for (const step of all.slice(page.diff ? 1 : 0, -1)) {
        assert.ok(Math.abs(step.from - at) < 1e-9);
        at = step.to;
      }
      assert.ok(Math.abs(at - glance.after) < 1e-9);
      assert.equal(all[all.length - 1].to, glance.after);
    }
  }
});

/** Check that what may be chance is a step too, as pale as it is unsure, and that the steps add up to what is after. */
test("changes", () => {
  const parts = [{ name: "a", before: 10, after: 30, sure: true }, { name: "b", before: 5, after: 4, sure: false }, { name: "c", before: 1, after: 1, sure: true }];
  const all = changeSteps(16, 35, parts, String);
  assert.deepEqual(all.map((step) => step.kind), ["whole", "more", "unsure", "whole"]);
  assert.deepEqual(all.map((step) => step.to), [16, 36, 35, 35]);
  assert.deepEqual(all[1].figures, ["+20", "+200.0%"]);
});

/** Check that a bar has room for what was sent: that which came through and that which was lost. */
test("bars of arms", () => {
  const page = fixture("page-bench.json");
  const arms = partOf(page, "rates")?.arms ?? [];
  const socket = arms.find((arm) => arm.name === "socket");
  assert.ok(socket);
  assert.ok(Math.abs(sent(socket) - 1.2e6 / (1 - 0.803)) < 1);
  assert.equal(longest(arms), Math.max(...arms.map((arm) => arm.high ?? 0)));
  assert.equal(longest([]), 1e-9);
  assert.equal(sent({ ...socket, pps: null, lost: 1 }), 0);
});

/** Check that ledgers that don't add up come before those that lost packets, and these before the others. */
test("ledgers by loss", () => {
  const page = fixture("page-bench.json");
  const flows = partOf(page, "flows")?.flows ?? [];
  const clean = { title: "clean", invalid: "", hops: [{ name: "x", entered: 5, left: 5, dropped: [], missing: 0 }] };
  const sorted = byLoss([clean, ...flows]);
  assert.notEqual(sorted[0].invalid, "");
  assert.equal(sorted[sorted.length - 1], clean);
});

/** Check that the path's layers are in the order of the path, before those that it shares. */
test("layers", () => {
  const layers = ["memory", "(no layer)", "driver", "syscall", "invented", "network"];
  layers.sort((a, b) => order(a) - order(b) || a.localeCompare(b));
  assert.deepEqual(layers, ["syscall", "network", "driver", "memory", "(no layer)", "invented"]);
  assert.equal(tone("(no layer)").chroma, 0);
  assert.notEqual(changeFill(-1, false), changeFill(1, false));
  assert.equal(changeFill(0, true), changeFill(0, true));
});

/** Check that a published function is found by name, as a clone, or as its successor. */
test("published functions", () => {
  assert.ok(isFunction("ip_rcv", "ip_rcv") && isFunction("ip_rcv.isra.0", "ip_rcv"));
  assert.ok(!isFunction("ip_rcv_core", "ip_rcv") && isSuccessor("ip_rcv_core", "ip_rcv"));
  const page = fixture("page.json");
  const said = page.classes.map((group) => {
    const tree = treeOf(page, group);
    const all = sums(tree).functions.sort((a, b) => b.self - a.self);
    const mine = all.filter((f) => page.functions[f.fn].layer === group.published?.layer && f.self > 0);
    const whole = mine.reduce((sum, f) => sum + f.self, 0);
    return published(group, page.functions, mine, all, whole).text;
  });
  assert.match(said[0], /ip_finish_output2, 2.30 \u00b5s of 4.352 \(52.8%\); here it is number 1 with 100.0%/);
  assert.ok(said.some((text) => /its successor ip_route_input_noref is number/.test(text)), said.join("\n"));
  assert.ok(said.some((text) => /here it is in layer link/.test(text)), said.join("\n"));
  assert.ok(said.some((text) => /this kernel has no such function/.test(text)), said.join("\n"));
});

/** Check that calls of any share are laid out: with their shares as weights, dagre fails on these. */
test("weights of calls", () => {
  const calls: [string, string, number][] = [
    ["a", "b", 6.391799479838908],
    ["c", "d", 3.036268030684431],
    ["c", "e", 5.146934317351983],
    ["e", "f", 3.3223417097274304],
    ["g", "e", 3.0026052818882176],
  ];
  const laidOut = (weight: (share: number) => number): void => {
    const graph = new Graph({ directed: true });
    graph.setGraph({ rankdir: "TB" });
    graph.setDefaultEdgeLabel(() => ({}));
    for (const name of ["a", "b", "c", "e", "g", "d", "f"]) {
      graph.setNode(name, { width: 132, height: 38 });
    }
    for (const [from, to, times] of calls) {
      graph.setEdge(from, to, { width: 40, height: 12, labelpos: "c", weight: weight((times - 1) / 20) });
    }
    layout(graph);
  };
  assert.throws(() => laidOut((share) => 1 + 20 * share));
  laidOut(pull);
});

/** Check that the graph drops what is small, and what is below a folded function. */
test("parts of the graph", () => {
  const page = fixture("page.json");
  const group = page.classes.find((c) => c.class === "udp tx");
  assert.ok(group);
  const tree = treeOf(page, group);
  const all = sums(tree);
  const whole = part(tree, all, 0, new Set());
  assert.equal(whole.nodes.length, all.functions.length);
  assert.equal(whole.hidden, 0);
  const few = part(tree, all, 20, new Set());
  assert.ok(few.nodes.length < whole.nodes.length);
  assert.ok(few.nodes.every((f) => f.inclusive >= 0.2 * tree.inclusive[0]));
  const send = page.functions.findIndex((f) => f.name === "udp_sendmsg");
  const folded = part(tree, all, 0, new Set([send]));
  assert.deepEqual(
    folded.nodes.map((f) => page.functions[f.fn].name).sort(),
    ["entry_SYSCALL_64", "udp_sendmsg"],
  );
  assert.equal(folded.folded.get(send), 2);
  assert.ok(part(tree, all, goodThreshold(tree, all), new Set()).nodes.length <= MOST_NODES);
});

/** Check that functions that only call each other are shown too, and fold. */
test("circles", () => {
  const page = fixture("page.json");
  const tree = treeOf(page, page.classes[0]);
  const self = tree.inclusive[0];
  const of = (fn: number, inclusive: number) =>
    ({ fn, self, selfBefore: 0, inclusive, inclusiveBefore: 0, calls: 1, callsBefore: 0 });
  const call = (from: number, to: number) =>
    ({ from, to, inclusive: self, inclusiveBefore: 0, calls: 1, callsBefore: 0 });
  const circle = { functions: [of(0, self), of(1, self), of(2, self)], edges: [call(1, 2), call(2, 1)] };
  assert.equal(part(tree, circle, 0, new Set()).nodes.length, 3);
  assert.deepEqual(part(tree, circle, 0, new Set([1])).nodes.map((f) => f.fn), [0, 1]);
});
