import assert from "node:assert/strict";
import test from "node:test";
import { change, changePercent, cost, pathEnd, percent, share, short, thousands } from "../src/number";

/** Check that numbers read as those of the terminal do. */
test("costs", () => {
  assert.equal(thousands(1234567), "1,234,567");
  assert.equal(cost(0), "0");
  assert.equal(cost(843400 / 200), "4,217");
  assert.equal(cost(843450 / 200), "4,217.3");
  assert.equal(cost(1 / 200), "0.01");
  assert.equal(cost(999.96), "1,000.0");
  assert.equal(cost(Number.NaN), "-");
  assert.equal(cost(-12), "\u221212");
});

/** Check that a change has its sign, and that of nothing there is no percentage. */
test("changes", () => {
  assert.equal(change(116), "+116");
  assert.equal(change(-116), "\u2212116");
  assert.equal(change(0), "0");
  assert.equal(changePercent(6277, 6161), "\u22121.8%");
  assert.equal(changePercent(100, 150), "+50.0%");
  assert.equal(changePercent(0, 5), "new");
  assert.equal(changePercent(5, 0), "gone");
  assert.equal(changePercent(0, 0), "0.0%");
  assert.equal(share(1, 0), 0);
  assert.equal(percent(share(1, 8)), "12.5%");
});

/** Check that no name can be long, break a line or turn the text around. */
test("short", () => {
  assert.equal(short("abc", 3), "abc");
  assert.equal(short("abcd", 3), "ab\u2026");
  assert.equal([...short("x".repeat(10_000), 60)].length, 60);
  assert.equal(short("a\u001b[2J\nb\u202ec", 80), "a\ufffd[2J\ufffdb\ufffdc");
});

/** Check that of a long path the end is shown, and nothing that is no letter. */
test("path ends", () => {
  assert.equal(pathEnd("/a/b.c:7", 20), "/a/b.c:7");
  assert.equal(pathEnd("/home/someone/project/b.c:7", 14), "\u2026/b.c:7");
  assert.equal(pathEnd("x".repeat(50), 5), "\u2026xxxx");
  assert.equal(pathEnd("/a/b\u202e.c", 20), "/a/b\ufffd.c");
});
