import assert from "node:assert/strict";
import test from "node:test";
import { linesOf, MOST_ROWS, sidesOf, textOf } from "../src/calltext";
import { treeOf } from "../src/tree";
import { fixture } from "./fixture";

/** Check that each side has its own shares, that a callee has no more than its caller, and what is left out. */
test("call graphs of both sides", () => {
  const page = fixture("page-diff.json");
  const tree = treeOf(page, page.classes[0]);
  const sides = sidesOf(tree, page.diff);
  assert.deepEqual(sides.map(([title]) => title), ["Before", "After"]);
  for (const [, side] of sides) {
    const whole = side.inclusive[0] / side.packets;
    const all = linesOf(tree, side, 0.000001, whole);
    assert.equal(all.hidden, 0);
    assert.equal(all.lines[0].share, 100);
    const few = linesOf(tree, side, 60, whole);
    assert.ok(few.lines.length < all.lines.length && few.hidden > 0);
    assert.ok(few.lines.every((line) => line.share >= 60));
    const byRow = new Map(all.lines.map((line) => [line.row, line]));
    for (const line of all.lines.slice(1)) {
      const above = byRow.get(tree.parent[line.row]);
      assert.ok(above && above.share >= line.share - 1e-9 && above.depth === line.depth - 1);
    }
    // As perf has it: the share, then the name, callees indented.
    const text = textOf(tree, few.lines).split("\n");
    assert.match(text[0], /^100\.00% {2}\S/);
    assert.match(text[1], /^ *\d+\.\d\d% {4}\S/);
  }
  // The sides differ.
  const of = (at: number): string => textOf(tree, linesOf(tree, sides[at][1], 1, sides[at][1].inclusive[0] / sides[at][1].packets).lines);
  assert.notEqual(of(0), of(1));
});

/** Check that costs that are percentages are shares already, and that there is an end to rows. */
test("percentages, and very large graphs", () => {
  const page = fixture("page.json");
  const tree = treeOf(page, page.classes[0]);
  const [[title, side]] = sidesOf(tree, page.diff);
  assert.equal(title, "");
  const whole = side.inclusive[0] / side.packets;
  assert.ok(Math.abs(linesOf(tree, side, 0, 100).lines[0].share - whole) < 1e-9);
  assert.ok(linesOf(tree, side, 0, whole).lines.length <= MOST_ROWS);
});
