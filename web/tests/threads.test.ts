/** Samples by thread: how dark a piece of time is, and what it says. */
import assert from "node:assert/strict";
import test from "node:test";
import type { PageThreads } from "../src/data";
import { darkness, costText } from "../src/threads";

const of: PageThreads = { table: { caption: "", columns: [], rows: [] }, piece_ns: 1_000, unit: "ns", lines: [], processes: [] };

/** Check that nothing is empty, the largest is full, and that what is small is still seen. */
test("darkness", () => {
  assert.equal(darkness(0, 10), 0);
  assert.equal(darkness(0, 0), 0);
  assert.equal(darkness(10, 10), 1);
  assert.ok(darkness(1, 1_000_000) >= 0.1);
  assert.ok(darkness(2, 10) < darkness(5, 10));
});

/** Check that time is shown as a part of a CPU, and all else in its unit. */
test("costText", () => {
  assert.equal(costText(of, 250), "25.0% of a CPU");
  assert.equal(costText({ ...of, unit: "faults" }, 1_234), "1,234 faults");
});
