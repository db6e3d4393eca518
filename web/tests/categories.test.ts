import assert from "node:assert/strict";
import test from "node:test";
import { isOfNames, rowsOf } from "../src/categories";
import type { PageChart, PagePoint } from "../src/data";

const point = (x: number, y: number, label = ""): PagePoint => ({ x, y, low: null, high: null, label });

const chart: PageChart = {
  title: "by offload",
  note: "",
  x: { label: "offload.tso", unit: "", log: false, names: ["on", "off"] },
  y: { label: "throughput", unit: "bit/s", log: false, names: [] },
  series: [
    { name: "tx_shift=0", kind: "line", points: [point(0, 900), point(1, 450)] },
    { name: "published", kind: "published", points: [point(1, 600, "a paper")] },
  ],
};

/** Check that levels which are words have bars in their order, with what was published beside ours. */
test("bars of words", () => {
  assert.ok(isOfNames(chart));
  assert.ok(!isOfNames({ ...chart, x: { label: "size", unit: "bytes", log: false, names: [] } }));
  const rows = rowsOf(chart, new Map([["tx_shift=0", 0]]));
  assert.deepEqual(rows.map((row) => [row.name, row.figures[0], row.bars[0].wide]), [
    ["on", "tx_shift=0", 100],
    ["off", "tx_shift=0", 50],
    ["off", "a paper", (600 * 100) / 900],
  ]);
  assert.equal(rows[2].kind, "others");
});

/** Check that a chart without anything has no bars. */
test("bars of nothing", () => {
  assert.deepEqual(rowsOf({ ...chart, series: [] }, new Map()), []);
});
