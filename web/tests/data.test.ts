import assert from "node:assert/strict";
import test from "node:test";
import { gzipSync } from "node:zlib";
import { check, decode, type Page } from "../src/data";
import { bytes, fixture } from "./fixture";

/** What each part of a page has, as src/data.ts says; a page of Rust's has the same. */
const KEYS: Record<string, string[]> = {
  page: [
    "schema", "views", "diff", "title", "question", "headline", "warnings", "unit", "facts", "trust", "claims", "figures",
    "functions", "summary", "classes", "sections",
  ],
  fact: ["key", "value", "before"],
  claim: ["says", "verdict", "because"],
  function: ["name", "module", "layer", "was", "source"],
  class: [
    "arm", "class", "per", "sentence", "could_not_act", "packets", "packets_before", "contexts", "layers",
    "published", "moves", "columns", "rows", "count", "times",
  ],
  tree: [
    "context", "parent", "function", "calls", "self_insns", "calls_before", "self_insns_before",
  ],
  published: ["figure", "layer", "total_us", "top_function", "top_us"],
  move: ["from", "to", "insns_per_packet", "why"],
};

const alike = (of: object, keys: string[]): void => assert.deepEqual(Object.keys(of).sort(), [...keys].sort());

/** Check that both sides name the same fields: Rust wrote these files. */
for (const name of ["page.json", "page-diff.json"]) {
  test(`the fields of ${name}`, () => {
    const page = fixture(name);
    alike(page, KEYS.page);
    page.facts.forEach((fact) => alike(fact, KEYS.fact));
    page.claims.forEach((claim) => alike(claim, KEYS.claim));
    page.functions.forEach((f) => alike(f, KEYS.function));
    for (const group of page.classes) {
      alike(group, KEYS.class);
      for (const column of group.columns ?? []) {
        assert.ok(column.title && column.own);
      }
      group.contexts.forEach((tree) => alike(tree, KEYS.tree));
      group.moves.forEach((move) => alike(move, KEYS.move));
      if (group.published) {
        alike(group.published, KEYS.published);
      }
    }
    assert.ok(page.functions.length > 0 && page.classes.length > 0);
  });
}

/** Check that a row has a cell for each column that the tree does not tell. */
test("cells of page-samples.json", () => {
  for (const group of check(fixture("page-samples.json")).classes) {
    const own = (group.columns ?? []).filter((column) => !column.own);
    assert.deepEqual(own.map((column) => column.title), ["95% interval"]);
    assert.ok(group.rows && group.rows.length > 0);
    for (const row of group.rows ?? []) {
      assert.equal(row.cells.length, own.length);
    }
  }
});

/** Check that what was packed is what comes out, byte for byte. */
test("packed and unpacked", async () => {
  const packed = gzipSync(bytes("page.json")).toString("base64");
  assert.deepEqual(await decode(`\n${packed}\n`), fixture("page.json"));
});

/** Check that data of another schema, or that are not whole, are reported and not drawn. */
test("bad data", async () => {
  const bad = (change: (page: Page) => void): (() => Page) => {
    const page = fixture("page.json");
    change(page);
    return () => check(page);
  };
  assert.throws(bad((page) => (page.schema = 1)), /schema 1/);
  assert.throws(bad((page) => page.classes[0].contexts[0].calls.pop()), /not of one length/);
  assert.throws(bad((page) => (page.classes[0].contexts[0].parent[1] = 1)), /refers to what there is not/);
  assert.throws(bad((page) => (page.classes[0].contexts[0].function[0] = 9999)), /refers to what there is not/);
  assert.throws(bad((page) => (page.diff = true)), /not of one length/);
  await assert.rejects(decode("AAAA"));
  await assert.rejects(decode(""));
});
