// Pages made for tests: data of our own in the built page, as `render` in
// crates/report/src/html.rs puts them there.
import { readFileSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const escaped = (text) =>
  text.replace(/[&<>"']/g, (letter) => `&#${letter.codePointAt(0)};`);

/** Write a page with these data, from the template, to a file. */
export function writePage(template, data, out) {
  // One page, or several in one file.
  const pages = [data].flat();
  const packed = pages.map((page) => gzipSync(JSON.stringify(page)).toString("base64")).join("\n");
  const text = readFileSync(template, "utf8")
    .replace("PLUMB_TITLE", () => escaped(pages[0].title))
    .replace("PLUMB_NOSCRIPT", "")
    .replace("PLUMB_DATA", () => packed);
  writeFileSync(out, text);
}

/** Numbers that are the same in every run (a linear congruential generator). */
export function numbers(seed) {
  let state = seed >>> 0;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

const LAYERS = [
  "syscall", "socket", "transport", "network", "netfilter", "link", "driver", "memory", "copy",
  "locking", "scheduling", "interrupt", "security", "library", "(no layer)",
];

/** The schema that the page reads. */
const SCHEMA = Number(/SCHEMA = (\d+);/.exec(readFileSync(new URL("../src/data.ts", import.meta.url), "utf8"))[1]);

/** An empty page. */
export function emptyPage(more = {}) {
  return {
    schema: SCHEMA, views: [], diff: false, title: "A page", question: "", headline: [], warnings: [],
    unit: "instructions", facts: [], trust: [], claims: [], figures: [], functions: [], summary: null, classes: [],
    sections: [], ...more,
  };
}

/** The only part of a kind of a page's sections. */
export const partOf = (page, kind) => page.sections.flatMap((section) => section.parts).find((part) => part.kind === kind);

/** The columns of a table of functions: those that it sums up itself. */
const COLUMNS = ["function", "layer", "module", "self", "share", "inclusive", "inclusive_share", "calls"].map((key) => ({
  key, title: key, hint: "", own: true,
}));

/** The columns of a comparison's: the same before and after. */
const CHANGED = [
  ["name", "function"], ["before", "before"], ["after", "after"], ["difference", "change"], ["percent", "%"],
  ["inclusive_difference", "incl. change"], ["of", "layer"], ["module", "module"],
].map(([key, title]) => ({ key, title, hint: "", own: true }));

/** A page with a line for each class, as a report has it. */
export function summed(page) {
  const words = (key) => ({ key, title: key, hint: "", words: true });
  const figure = (key, title) => ({ key, title, hint: "" });
  const cell = (value) => ({ text: Number.isFinite(value) ? value.toFixed(1) : "-", value });
  const sum = (group, key, packets) => group.contexts.flatMap((tree) => tree[key]).reduce((all, one) => all + one, 0) / (packets || 1);
  const rows = page.classes.map((group) => {
    const after = sum(group, "self_insns", group.packets);
    const before = sum(group, "self_insns_before", group.packets_before);
    const named = [group.class, group.arm].map((text) => ({ text, value: null }));
    return [...named, ...(page.diff ? [cell(before), cell(after), cell(after - before)] : [cell(after)])];
  });
  const figures = page.diff
    ? [figure("before", "before"), figure("after", "after"), figure("difference", "change")]
    : [figure("cost", "instructions")];
  return { ...page, summary: { caption: "Every arm and class", columns: [words("class"), words("arm"), ...figures], rows } };
}

/** A class with nothing in it but these trees. */
export function classOf(more) {
  return {
    arm: "arm", class: "udp tx", per: "packet", sentence: "", packets: 100, packets_before: 0, contexts: [],
    published: null, moves: [], columns: COLUMNS, ...more,
  };
}

/** A page of one class with so many frames. */
export function largePage(frames, functions = 3000) {
  const random = numbers(1);
  const page = emptyPage({ title: `${frames} frames` });
  for (let i = 0; i < functions; i++) {
    page.functions.push({
      name: `function_${i}_${"abcdefghij".slice(0, random(10))}`,
      module: i % 7 === 0 ? "veth" : null,
      layer: LAYERS[random(LAYERS.length)],
      was: null,
    });
  }
  const tree = {
    context: "task", parent: [], function: [], calls: [], self_insns: [], calls_before: [], self_insns_before: [],
  };
  const depth = [];
  for (let row = 0; row < frames; row++) {
    // Down from the last one, or back to one of its callers: now and then far back.
    let parent = row - 1;
    const least = random(300) === 0 ? 2 : 50;
    while (parent > 0 && (depth[parent] >= least || random(2) === 0)) {
      parent = tree.parent[parent];
    }
    depth.push(parent < 0 ? 0 : depth[parent] + 1);
    tree.parent.push(parent);
    // A function calls some dozen others, wherever it is.
    const caller = parent < 0 ? 0 : tree.function[parent];
    tree.function.push((caller * 31 + random(12) * 97 + 1) % functions);
    tree.calls.push(100 * (1 + random(4)));
    tree.self_insns.push(100 * random(400));
  }
  page.classes.push(classOf({ sentence: `A tree of ${frames} frames.`, contexts: [tree] }));
  return page;
}

/** A comparison made of a report: some functions cost less, one went, one came. */
export function comparisonOf(report) {
  const page = structuredClone(report);
  page.diff = true;
  page.title = "before \u2192 after";
  page.headline = ["udp tx: some functions cost less."];
  page.warnings = ["The kernels differ: 6.1.0-54-amd64 and 6.1.0-56-amd64."];
  page.facts.push({ key: "kernel.release", value: "6.1.0-56-amd64", before: "6.1.0-54-amd64" });
  const random = numbers(7);
  const leaves = ["memory", "locking", "security"];
  const factor = page.functions.map((f) =>
    random(5) === 0 ? (leaves.includes(f.layer) && random(2) === 0 ? 0 : [0.5, 0.8, 1.1, 1.3, 2][random(5)]) : 1,
  );
  page.functions.forEach((f, i) => {
    f.was = i % 29 === 3 ? `${f.name}.isra.0` : null;
  });
  for (const group of page.classes) {
    group.arm = `${group.arm} \u2192 ${group.arm}`;
    group.packets_before = group.packets;
    group.columns = CHANGED;
    group.layers = null;
    for (const tree of group.contexts) {
      tree.calls_before = tree.calls.slice();
      tree.self_insns_before = tree.self_insns.slice();
      const gone = new Set();
      for (let row = 0; row < tree.parent.length; row++) {
        const by = factor[tree.function[row]];
        if (by === 0 || gone.has(tree.parent[row])) {
          gone.add(row);
          tree.calls[row] = 0;
          tree.self_insns[row] = 0;
        } else {
          tree.self_insns[row] = Math.round(tree.self_insns[row] * by);
          if (by === 2 && row % 3 === 0) {
            tree.self_insns_before[row] = 0;
            tree.calls_before[row] = 0;
          }
        }
      }
    }
    if (page.functions.length > 5) {
      group.moves = [{ from: 1, to: 2, insns_per_packet: 12.5, why: "inlined into its caller" }];
    }
  }
  return summed(page);
}
