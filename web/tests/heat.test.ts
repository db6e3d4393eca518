/** Times between events over time: which times a cell is of. */
import assert from "node:assert/strict";
import test from "node:test";
import { bounds } from "../src/heat";

/** Check that cells follow each other, and that none is empty or below a nanosecond. */
test("cells", () => {
  assert.deepEqual(bounds(0), [1, 4]);
  assert.deepEqual(bounds(16), [16, 20]);
  let at = bounds(0)[1];
  for (let bucket = 4; bucket < 512; bucket += 4) {
    const [from, to] = bounds(bucket);
    assert.equal(from, at);
    assert.ok(to > from);
    at = to;
  }
});
