// Every page by axe-core: WCAG 2.1 A and AA, contrast among them, in both themes, wide and narrow.
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { createRequire } from "node:module";
import { test } from "node:test";
import { golden, goldens, open } from "./open.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Violations, each with the first places where it is. */
const violations = (page) =>
  page.evaluate(async () => {
    const { violations } = await axe.run({ runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"] });
    return violations.map(({ id, nodes }) => {
      const places = nodes.slice(0, 3).map(({ target, failureSummary }) => `${target} (${failureSummary.split("\n")[1].trim()})`);
      return `${id}: ${nodes.length}: ${places.join("; ")}`;
    });
  });

for (const name of readdirSync(goldens).filter((name) => /^page.*\.json$/.test(name))) {
  test(`axe: ${name}`, async (t) => {
    const page = await open(t, golden(name));
    // As from the console: the page's policy allows no script but its own.
    await page.evaluate(AXE);
    // What is folded isn't looked at.
    await page.$$eval("details", (all) => all.forEach((each) => (each.open = true)));
    for (const colorScheme of ["light", "dark"]) {
      for (const width of [1280, 400]) {
        await page.emulateMedia({ colorScheme });
        await page.setViewportSize({ width, height: 900 });
        assert.deepEqual(await violations(page), [], `${colorScheme}, ${width} px`);
      }
    }
  });
}
