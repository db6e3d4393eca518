import assert from "node:assert/strict";
import test from "node:test";
import { callersOf, certainOf, changeOf, type Found, glances, nameOf, search, sums, titleOf, type Tree, treeOf } from "../src/tree";
import type { Page } from "../src/data";
import { fixture } from "./fixture";

function classOf(page: Page, name: string): Tree {
  const group = page.classes.find((c) => c.class === name);
  assert.ok(group);
  return treeOf(page, group);
}

const fnOf = (page: Page, name: string): number => page.functions.findIndex((f) => f.name === name);

/** Check that a tree adds up: a row is its own cost and its children's, and lies above them. */
for (const name of ["page.json", "page-diff.json"]) {
  test(`the trees of ${name} add up`, () => {
    const page = fixture(name);
    for (const group of page.classes) {
      const tree = treeOf(page, group);
      for (let row = 0; row < tree.size; row++) {
        let below = tree.self[row];
        let end = tree.left[row];
        let last = Number.POSITIVE_INFINITY;
        for (let at = tree.begin[row]; at < tree.begin[row + 1]; at++) {
          const child = tree.children[at];
          assert.equal(tree.parent[child], row);
          assert.equal(tree.depth[child], tree.depth[row] + 1);
          assert.ok(Math.abs(tree.left[child] - end) < 1e-6, "side by side");
          assert.ok(tree.width[child] <= last, "the widest first");
          last = tree.width[child];
          end = tree.left[child] + tree.width[child];
          below += tree.inclusive[child];
        }
        assert.equal(tree.inclusive[row], below);
        assert.ok(end <= tree.left[row] + tree.width[row] + 1e-6);
      }
      const glance = glances(page)[page.classes.indexOf(group)];
      assert.ok(Math.abs(glance.after - tree.inclusive[0] / tree.packets) < 1e-9);
      assert.ok(Math.abs(glance.before - tree.inclusiveBefore[0] / tree.packetsBefore) < 1e-9);
    }
  });
}

/** Check that recursion counts once in what a function costs with its callees. */
test("recursion counts once", () => {
  const page = fixture("page.json");
  const tree = classOf(page, "udp rx");
  const all = sums(tree).functions;
  const walk = all.find((f) => f.fn === fnOf(page, "fib_lookup_walk"));
  // 20, and below it 10, and below that a helper's 4 with 5 in it: as the terminal has it.
  assert.equal(walk?.inclusive, 39 * tree.packets);
  assert.equal(walk?.self, 35 * tree.packets);
  assert.equal(walk?.calls, 3 * tree.packets);
  assert.equal(all.reduce((sum, f) => sum + f.self, 0), tree.inclusive[0]);
});

/** Check that calls add up: a function's callers called it as often as it was entered. */
test("edges", () => {
  const page = fixture("page.json");
  const tree = classOf(page, "udp rx");
  const { functions, edges } = sums(tree);
  const free = functions.find((f) => f.fn === fnOf(page, "kmem_cache_free"));
  const into = edges.filter((e) => e.to === free?.fn);
  assert.deepEqual(into.map((e) => page.functions[e.from].name).sort(), ["udp_rcv", "udp_recvmsg"]);
  assert.equal(into.reduce((sum, e) => sum + e.calls, 0), free?.calls);
  assert.equal(into.reduce((sum, e) => sum + e.inclusive, 0), free?.inclusive);
});

/** Check that what is found is counted once, also where one match is below another. */
test("a search's total", () => {
  const page = fixture("page.json");
  const tree = classOf(page, "udp rx");
  const found = search(tree, "fib_lookup") as Found;
  assert.equal(found.functions, 2);
  assert.equal(found.frames, 4);
  assert.equal(found.total, 39 * tree.packets);
  const all = search(tree, "/./") as Found;
  assert.equal(all.total, tree.inclusive[0]);
  assert.equal((search(tree, "=ip_rcv") as Found).functions, 1);
  assert.equal((search(tree, "IP_RCV") as Found).functions, 2);
  assert.equal((search(tree, "no such thing") as Found).total, 0);
  assert.equal(search(tree, "/(/"), "that is no regular expression");
});

/** Check that a function's callers add up to what it costs, recursion too. */
test("callers", () => {
  const page = fixture("page.json");
  const tree = classOf(page, "udp rx");
  for (const f of sums(tree).functions) {
    const turned = callersOf(tree, f.fn);
    assert.equal(turned.inclusive[0], f.inclusive, page.functions[f.fn].name);
    assert.equal(nameOf(turned, 0), page.functions[f.fn].name);
  }
  const free = callersOf(tree, fnOf(page, "kmem_cache_free"));
  const callers = [...free.children.subarray(free.begin[0], free.begin[1])].map((row) => nameOf(free, row));
  assert.deepEqual(callers.sort(), ["udp_rcv", "udp_recvmsg"]);
});

/** Check that a comparison's tree is as wide as the larger side, and knows both. */
test("both sides of a comparison", () => {
  const page = fixture("page-diff.json");
  const tree = treeOf(page, page.classes[0]);
  const gone = tree.fn.indexOf(fnOf(page, "gone"));
  assert.equal(tree.inclusive[gone], 0);
  assert.ok(tree.inclusiveBefore[gone] > 0);
  assert.ok(tree.width[gone] > 0);
  const glance = glances(page)[0];
  const layers = [...glance.layers.values()];
  const changes = layers.reduce((sum, [after, before]) => sum + after - before, 0);
  assert.ok(Math.abs(changes - (glance.after - glance.before)) < 1e-9);
});

/** Check that an arm named after its protocol is not said twice. */
test("titles", () => {
  const page = fixture("page.json");
  assert.equal(titleOf(page.classes[0]), "udp tx");
  assert.equal(titleOf({ ...page.classes[0], arm: "tso=off" }), "udp tx, tso=off");
});

/** Check that of samples a change that they may make by themselves has no colour, and a large one all of it. */
test("changes of samples", () => {
  const page = fixture("page-samples-diff.json");
  const tree = treeOf(page, page.classes[0]);
  assert.ok(tree.sample);
  const named = (name: string): number => [...tree.fn].findIndex((fn) => fn >= 0 && tree.functions[fn].name === name);
  const [grown, same] = [named("ip_finish_output2"), named("udp_sendmsg")];
  const change = (row: number): number => changeOf(tree, row, "self");
  assert.ok(change(grown) > 0);
  assert.ok(Math.abs(certainOf(tree, grown, "self") - change(grown)) < 1e-9);
  assert.equal(certainOf(tree, same, "self"), 0);
  // A sample more or less is none.
  tree.self[same] += tree.sample[1];
  assert.ok(change(same) > 0);
  assert.equal(certainOf(tree, same, "self"), 0);
  // Counts are as they are.
  const counted = fixture("page-diff.json");
  const exact = treeOf(counted, counted.classes[0]);
  assert.equal(exact.sample, null);
  assert.equal(certainOf(exact, 0, "inclusive"), exact.inclusive[0] / exact.packets - exact.inclusiveBefore[0] / exact.packetsBefore);
});
