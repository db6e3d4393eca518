import assert from "node:assert/strict";
import test from "node:test";
import { reach } from "../src/compared";
import { bins, described, lower, span } from "../src/histogram";
import { ns, nsUnit, ratioPercent } from "../src/number";
import { meanOf, parts, wholeOf } from "../src/times";
import { fixture } from "./fixture";

/** Check that a bucket is what Rust says that it is. */
test("buckets", () => {
  // From crates/stats/src/histogram.rs: each follows the one before it, to 2^35.
  assert.deepEqual([0, 15, 16, 31, 32, 33, 48].map(lower), [0, 15, 16, 31, 32, 34, 64]);
  assert.equal(lower(512), 2 ** 35);
  for (let bucket = 0; bucket < 512; bucket++) {
    assert.ok(lower(bucket + 1) > lower(bucket));
  }
});

/** Check that bins hold every time once, between their ends, a quarter of an octave each. */
test("bins", () => {
  const all = bins(Array.from({ length: 512 }, (_, bucket): [number, number] => [bucket, 1]));
  assert.equal(all.reduce((sum, bin) => sum + bin.count, 0), 512);
  let at = 0;
  for (const bin of all) {
    assert.equal(bin.from, at);
    at = bin.to;
    assert.ok(bin.from < 8 || bin.to / bin.from <= 1.2501, `${bin.from}`);
  }
  assert.equal(at, 2 ** 35);
  assert.deepEqual(span([[[16, 1]], [[48, 2], [60, 0]]]), [4, 7]);
  assert.deepEqual(span([[]]), [0, 1]);
  assert.equal(bins([[48, 1], [49, 1]], true).length, 2);
  assert.equal(described([]), "nothing was timed");
  assert.match(described([[16, 1], [48, 3]]), /^4 times from 16.ns to 80.ns, most \(75\.0%\) from 64.ns to 80.ns$/);
});

/** Check that times are as long as it takes to read them: crates/report/src/times/number.rs has the same. */
test("times", () => {
  const cases: [number, string][] = [
    [0, "0"], [0.04, "0"], [4, "4"], [4.25, "4.3"], [9.96, "10"], [-3.26, "\u22123.3"], [9_999.4, "9,999"],
    [9_999.6, "10.0us"], [123_456, "123us"], [20_000_000, "20.0ms"], [3.2e10, "32.0s"], [Number.NaN, "-"],
  ];
  for (const [value, text] of cases) {
    assert.equal(ns(value).replace("\u202f", ""), text);
  }
  assert.equal(nsUnit(4), "4\u202fns");
  assert.equal(nsUnit(20_500), "20.5\u202fus");
  assert.equal(ratioPercent(1.1234), "+12.3%");
  assert.equal(ratioPercent(0.5), "\u221250.0%");
});

/** Check that the stages of a page add up to the whole way. */
test("stages add up", () => {
  for (const group of fixture("page-stages.json").classes) {
    const times = group.times;
    assert.ok(times && times.stages.length > 3);
    const sum = parts(times).reduce((all, stage) => all + meanOf(times, stage), 0);
    assert.ok(Math.abs(sum - wholeOf(times)) < 0.1);
  }
});

/** Check that the scale of intervals has all of them in it, within reason. */
test("intervals", () => {
  const rows = fixture("page-times-diff.json").classes[0].times?.compared ?? [];
  const most = reach(rows);
  assert.ok(rows.length > 3);
  for (const row of rows) {
    assert.ok(!row.ratio || Math.abs(Math.log(row.ratio[2])) <= most + 1e-9);
  }
  assert.equal(reach([]), 0.01);
});
