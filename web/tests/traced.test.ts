/** Traced calls: which lines of a tree are seen. */
import assert from "node:assert/strict";
import test from "node:test";
import { endOf, seen } from "../src/traced";

const DEPTH = [0, 1, 2, 2, 1, 2, 3, 0];

/** Check that what is below a line ends with the next one that is not deeper. */
test("ends", () => {
  assert.deepEqual(
    DEPTH.map((_, line) => endOf(DEPTH, line)),
    [7, 4, 3, 4, 7, 7, 7, 8],
  );
});

/** Check that folded lines hide what is below them, and nothing else. */
test("folded lines", () => {
  assert.deepEqual(
    seen(DEPTH, () => false),
    [0, 1, 2, 3, 4, 5, 6, 7],
  );
  assert.deepEqual(
    seen(DEPTH, (line) => line === 1 || line === 5),
    [0, 1, 4, 5, 7],
  );
  assert.deepEqual(
    seen(DEPTH, (line) => line === 0),
    [0, 7],
  );
});
