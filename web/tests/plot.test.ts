import assert from "node:assert/strict";
import test from "node:test";
import { along, described } from "../src/chart";
import { partOf } from "../src/data";
import { described as flowDescribed, layout, MISSING, wrapped } from "../src/flow";
import { amount, amountOf, domainOf, drawn, leader, nearest, place, places, ratioScale, scaleOf, pointText, type Box, type Scale } from "../src/plot";
import { looks } from "../src/series";
import { fixture } from "./fixture";

const page = fixture("page-bench.json");
const charts = partOf(page, "charts")?.charts ?? [];
const axis = (log: boolean) => ({ label: "a", unit: "b", log, names: [] });

/** Check that amounts are short, and as right as three digits are. */
test("amounts", () => {
  const cases: [number, string][] = [
    [0, "0"], [1, "1"], [28.34, "28.3"], [0.0123, "0.0123"], [999, "999"], [1514, "1,514"], [9_999, "9,999"],
    [10_000, "10 k"], [12_345, "12.3 k"], [999_999, "1 M"], [16_400_000, "16.4 M"], [43.5e6, "43.5 M"],
    [1.2e9, "1.2 G"], [-3.21e6, "\u22123.21 M"], [-0.5, "\u22120.5"], [Number.NaN, "-"],
  ];
  for (const [value, text] of cases) {
    assert.equal(amount(value).replace("\u202f", " "), text);
  }
  assert.equal(amountOf(16.4e6, "packets/s"), "16.4\u202fM\u202fpackets/s");
  assert.equal(amountOf(100, "packets/s"), "100\u202fpackets/s");
  assert.equal(amountOf(28.34, "%"), "28.3%");
  assert.equal(amountOf(2, ""), "2");
  assert.equal(pointText({ x: 1, y: 5, low: 4, high: 6, label: "" }, "%"), "5% (4 to 6)");
  assert.equal(pointText({ x: 1, y: 5, low: null, high: null, label: "" }, "%"), "5%");
});

/** How far apart the nearest two ticks are. */
const closest = ({ at, ticks }: Scale) => Math.min(...ticks.slice(1).map((tick, i) => Math.abs(at(tick) - at(ticks[i]))));

/** Check that plain scales begin at nothing, that none is without ticks, and that those of ratios leave out what has no place. */
test("scales", () => {
  assert.deepEqual(domainOf([3, 9], false), [0, 9]);
  assert.deepEqual(domainOf([-3, 9], false), [-3, 9]);
  assert.deepEqual(domainOf([], false), [0, 1]);
  assert.deepEqual(domainOf([0, 0], false), [0, 1]);
  assert.deepEqual(domainOf([0, -5], true), [1, 10]);
  const cores = scaleOf(axis(false), [1, 2], [0, 500], 70);
  assert.deepEqual(cores.ticks, [0, 1, 2]);
  assert.equal(cores.at(0), 0);
  assert.equal(cores.at(2), 500);
  const ratios = scaleOf(axis(true), [0, 1e3, 1e7], [0, 100], 16);
  assert.ok(ratios.at(1e3) > 0 && ratios.at(1e7) < 100);
  assert.ok(Math.abs(ratios.at(1e5) - 50) < 1e-6);
  // What has no place on it ends where it does.
  assert.equal(ratios.at(0), 0);
  assert.equal(ratios.at(1e12), 100);
  for (const values of [[5], [5e-3], [16e6, 16.1e6], [1e-9, 1e12], [9_000, 9_001]]) {
    for (const log of [false, true]) {
      const scale = scaleOf(axis(log), values, [0, 300], 50);
      assert.ok(scale.ticks.length > 0 && closest(scale) >= 50, `${values}: ${scale.ticks}`);
      assert.ok(values.every((value) => scale.at(value) >= -1e-6 && scale.at(value) <= 300 + 1e-6), `${values} ${log}: ${scale.at.domain()}`);
    }
  }
});

/** Check that on a scale of ratios there are as many round numbers as have room, and that they are round. */
test("round numbers", () => {
  const ticks = (low: number, high: number, wide: number) => ratioScale([low, high], [0, wide], 60).ticks;
  assert.deepEqual(ticks(800, 1.2e7, 360), [1e3, 1e4, 1e5, 1e6, 1e7]);
  assert.deepEqual(ticks(55, 1600, 720), [100, 200, 500, 1000]);
  assert.deepEqual(ticks(0.004, 0.06, 720), [0.005, 0.01, 0.02, 0.05]);
  assert.deepEqual(ticks(2 ** 11, 2 ** 16, 560), [5_000, 10_000, 20_000, 50_000]);
  assert.deepEqual(ticks(2 ** 12, 2 ** 13, 700), [5_000, 6_000, 7_000, 8_000]);
  assert.deepEqual(ticks(1, 2 ** 35, 700).slice(0, 3), [1, 10, 100]);
  assert.deepEqual(ticks(5.5e6, 9.9e6, 280), [6e6, 8e6]);
  for (let low = 1; low < 10; low += 0.7) {
    for (let ratio = 1.5; ratio < 1e11; ratio *= 1.3) {
      for (const wide of [234, 300, 720]) {
        const scale = ratioScale([low, low * ratio], [0, wide], 60);
        assert.ok(scale.ticks.length > 0 && closest(scale) >= 60, `${low} to ${low * ratio} in ${wide}: ${scale.ticks}`);
        assert.ok(scale.ticks.every((tick) => tick >= low && tick <= low * ratio), `${scale.ticks}`);
      }
    }
  }
});

/** Check that what is pointed at is the place that is nearest on the picture. */
test("nearest", () => {
  const ratios = ratioScale([1, 1e4], [0, 400], 60);
  assert.equal(nearest([1, 10, 10_000], ratios, 240), 1);
  assert.equal(nearest([1, 10, 10_000], ratios, 260), 2);
  assert.equal(nearest([], ratios, 0), -1);
});

/** Check that labels meet neither each other nor what is in the way, and stay inside where there is room. */
test("labels have room", () => {
  const area: Box = { x: 0, y: 0, wide: 400, tall: 300 };
  const points = [10, 60, 62, 64, 66, 390].map((x) => ({ x, y: 150, wide: 70 }));
  const line = along([[0, 150], [400, 150]]);
  const boxes = place(points, area, line);
  const meet = (a: Box, b: Box) => a.x < b.x + b.wide && b.x < a.x + a.wide && a.y < b.y + b.tall && b.y < a.y + a.tall;
  boxes.forEach((box, i) => {
    assert.ok(box.x >= 0 && box.x + box.wide <= 400 && box.y >= 0 && box.y + box.tall <= 300, JSON.stringify(box));
    assert.ok(boxes.every((other, j) => i === j || !meet(box, other)), `${i}`);
    assert.ok(!line.some((other) => meet(box, other)), `${i}`);
  });
  // Beside its point a label needs no line to it.
  assert.equal(leader({ x: 50, y: 50 }, { x: 58, y: 44, wide: 70, tall: 13 }), null);
  assert.deepEqual(leader({ x: 50, y: 50 }, { x: 58, y: 84, wide: 70, tall: 13 }), [58, 87]);
  // Where there is none, there is a place all the same.
  assert.equal(place([{ x: 5, y: 5, wide: 900 }], area).length, 1);
  assert.deepEqual(place([], area), []);
});

/** Check that a line is kept off along all of it. */
test("along a line", () => {
  const boxes = along([[0, 0], [30, 40]]);
  for (let at = 0; at <= 1; at += 0.05) {
    assert.ok(boxes.some((box) => Math.hypot(box.x + 2 - 30 * at, box.y + 2 - 40 * at) < 5));
  }
  assert.deepEqual(along([[1, 1]]), []);
});

/** Check that a series looks the same in every chart. */
test("looks", () => {
  const all = looks(charts);
  assert.deepEqual([...all.keys()], ["xdp", "nft-raw", "nft-conntrack", "dpdk"]);
  assert.equal(new Set(all.values()).size, all.size);
});

/** Check that what Rust wrote is drawn but for what has no place, and in words. */
test("charts of Rust", () => {
  const sizes = charts[2];
  assert.equal(sizes.series[0].points.length - drawn(sizes, sizes.series[0]).length, 1);
  assert.deepEqual(places(sizes, sizes.series), [60, 566, 1514]);
  assert.match(described(charts[0]), /^rate, packets\/s by cores\. xdp: from 16.4.M.packets\/s at 1 to /);
  assert.deepEqual(places(charts[0], charts[0].series), [1, 2, 3, 4, 5, 6]);
});

/** Check that every packet of a ledger is in its picture: widths are in proportion, what leaves lies beside what goes on, and no text is on another. */
test("flows", () => {
  for (const flow of partOf(page, "flows")?.flows ?? []) {
    for (const wide of [300, 720]) {
      const { nodes, links, branches, tall } = layout(flow, wide);
      assert.equal(nodes.length, flow.hops.length + 1);
      const scale = nodes[0].wide / nodes[0].count;
      flow.hops.forEach((hop, i) => {
        assert.ok(Math.abs(links[i].wide - hop.left * scale) < 1e-9);
        const mine = branches.filter((branch) => branch.from === links[i].from);
        assert.equal(mine.reduce((sum, branch) => sum + branch.count, 0) + hop.left, hop.entered);
        // Side by side from the right, so that those further left turn further down.
        let right = nodes[i].wide;
        for (const branch of mine) {
          right -= branch.count * scale;
          assert.ok(Math.abs(branch.x - branch.count * scale / 2 - right) < 1e-9);
        }
        assert.ok(Math.abs(right - links[i].wide) < 1e-9);
        assert.deepEqual(mine.map((branch) => branch.turn), mine.map((branch) => branch.turn).sort((a, b) => a - b));
      });
      const missing = branches.filter((branch) => branch.missing);
      assert.equal(missing.length, flow.invalid === "" ? 0 : 1);
      assert.ok(missing.every((branch) => branch.cause === MISSING && branch.count === 2_000_000));
      const lines = [...nodes, ...branches].flatMap((one) => one.lines.map((_, i) => one.y + i * 15)).sort((a, b) => a - b);
      assert.ok(lines.every((y, i) => y < tall && (i === 0 || y - lines[i - 1] >= 14)), `${lines}`);
    }
    assert.match(flowDescribed(flow), /^generator to tx0: 11,880,000 of 12,000,000; gone: 120,000 xdp_devmap_xmit/);
  }
  const empty = layout({ title: "", invalid: "", hops: [] }, 300);
  assert.deepEqual([empty.nodes, empty.links, empty.branches], [[], [], []]);
  const none = layout({ title: "", invalid: "", hops: [{ name: "x", entered: 0, left: 0, dropped: [], missing: 0 }] }, 300);
  assert.ok(none.nodes.every((node) => node.wide === 0));
});

/** Check that words are kept whole where there is room, in as few lines as they need. */
test("wrapped", () => {
  assert.deepEqual(wrapped("79,988 (0.7%) kfree_skb NETFILTER_DROP", 24), ["79,988 (0.7%) kfree_skb", "NETFILTER_DROP"]);
  assert.deepEqual(wrapped("short", 24), ["short"]);
  assert.ok(wrapped(`a ${"y".repeat(99)}`, 10).every((line) => line.length <= 10));
});
