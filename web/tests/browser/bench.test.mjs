// Charts and flows of the built page, driven in a headless Chromium.
import assert from "node:assert/strict";
import { test } from "node:test";
import { partOf } from "../../scripts/pages.mjs";
import { golden, open } from "./open.mjs";

const bench = golden("page-bench.json");
const figure = (page, n) => page.locator("#rates figure.chart").nth(n);

/** Check that there is a picture, a legend and a table of every chart and ledger, and no section that is empty. */
test("parts of a page of benches", async (t) => {
  const page = await open(t, bench);
  assert.equal(await page.locator("#rates figure.chart svg[role=img]").count(), 3);
  assert.equal(await page.locator("#flows figure.flow svg[role=img]").count(), 2);
  assert.deepEqual(await page.locator("nav a:visible").allInnerTexts(), ["Overview", "Measured", "Rates", "Latency", "Why", "Where packets went"]);
  assert.ok(!(await page.locator("main").innerText()).includes("Nothing was measured"));
  // Of each series as many marks as it has points.
  const first = figure(page, 0);
  const points = partOf(bench, "charts").charts[0].series.filter((s) => s.kind !== "ideal").flatMap((s) => s.points);
  assert.equal(await first.locator(".plot .mark").count(), points.length);
  assert.equal(await first.locator(".plot .band").count(), 3);
  assert.deepEqual(
    (await first.locator(".plot text.label").allTextContents()).sort(),
    partOf(bench, "charts").charts[0].series[4].points.map((p) => p.label).sort(),
  );
  await first.locator("details > summary").click();
  const all = partOf(bench, "charts").charts[0].series.flatMap((s) => s.points).length;
  assert.equal(await first.locator("tbody tr").count(), all);
  // The ledger that does not add up is the first, and says so.
  assert.match(await page.locator("#flows figure").first().innerText(), /No measurement: 2,000,000 packets went missing/);
});

/** Check that what a packet costs is drawn for each path, as long as it is, and in tables that can be copied. */
test("why", async (t) => {
  const page = await open(t, bench);
  const costs = partOf(bench, "costs");
  const rows = page.locator("#why figure > ol > li");
  assert.equal(await rows.count(), costs.paths.length);
  const own = (at) => costs.parts.filter((p) => p.layer !== "").reduce((sum, p) => sum + p.each[at], 0);
  assert.match(await rows.nth(1).innerText(), new RegExp(`${(own(1) / own(0)).toFixed(1)}\u00d7`));
  const ends = await rows.evaluateAll((all) =>
    all.map((li) => Math.max(...[...li.querySelectorAll(".bar")].map((bar) => bar.getBoundingClientRect().right)) - li.querySelector(".track").getBoundingClientRect().left),
  );
  const whole = (at) => costs.parts.reduce((sum, p) => sum + p.each[at], 0);
  assert.ok(Math.abs(ends[0] / ends[1] - whole(0) / whole(1)) < 0.02, JSON.stringify(ends));
  await page.locator("#why details > summary", { hasText: "By function" }).click();
  assert.equal(await page.locator("#why table:visible tbody tr").count(), costs.functions.rows.length);
  await page.locator("#why input:visible").fill("veth");
  assert.equal(await page.locator("#why table:visible tbody tr").count(), 1);
});

/** Check that arrow keys go from place to place and say what is there, and that Escape ends it. */
test("charts by keyboard", async (t) => {
  const page = await open(t, bench);
  const chart = figure(page, 0);
  const spoken = chart.locator("> [aria-live]");
  await chart.locator(".plot > svg").focus();
  await page.keyboard.press("ArrowRight");
  assert.match(await spoken.innerText(), /^cores 1: published 43.5.M.packets\/s, published 24.M.packets\/s, xdp 16.4.M.packets\/s \(15.7.M to 17.2.M\)/);
  await page.keyboard.press("End");
  assert.match(await spoken.innerText(), /^cores 6: xdp /);
  assert.equal(await chart.locator(".plot-tip").isVisible(), true);
  await page.keyboard.press("Escape");
  assert.equal(await chart.locator(".plot-tip").isVisible(), false);
});

/** Check that the place that is pointed at is described, within the window. */
test("charts by mouse", async (t) => {
  const page = await open(t, bench);
  const chart = figure(page, 0);
  const svg = chart.locator(".plot > svg");
  await svg.scrollIntoViewIfNeeded();
  const box = await svg.boundingBox();
  for (const share of [0.2, 0.97]) {
    await page.mouse.move(box.x + box.width * share, box.y + box.height / 2);
    const tip = chart.locator(".plot-tip");
    assert.match(await tip.innerText(), share < 0.5 ? /^cores 1\n/ : /^cores 6\n/);
    const at = await tip.boundingBox();
    assert.ok(at.x >= 0 && at.x + at.width <= box.x + box.width + 2, JSON.stringify(at));
  }
  await page.mouse.move(box.x + box.width / 2, box.y - 60);
  assert.equal(await chart.locator(".plot-tip").isVisible(), false);
});

/** Check that a series can be taken away and brought back, and nothing else moves. */
test("series can be hidden", async (t) => {
  const page = await open(t, bench);
  const chart = figure(page, 0);
  const path = () => chart.locator(".plot .line.stroke").first().getAttribute("d");
  const before = await path();
  const button = chart.getByRole("button", { name: "nft-raw" });
  await button.click();
  assert.equal(await button.getAttribute("aria-pressed"), "false");
  assert.equal(await chart.locator(".plot .line.stroke").count(), 2);
  assert.equal(await path(), before);
  await button.press("Enter");
  assert.equal(await chart.locator(".plot .line.stroke").count(), 3);
});

/** Check that on a phone nothing is wider than the window, that letters stay legible, and that a turned phone draws anew. */
test("charts on a phone", async (t) => {
  const page = await open(t, bench, { viewport: { width: 360, height: 740 } });
  const wide = () => page.evaluate(() => document.documentElement.scrollWidth);
  assert.equal(await wide(), 360);
  const letters = await page.$$eval(".plot text", (all) => Math.min(...all.map((e) => e.getBoundingClientRect().height)));
  assert.ok(letters > 10, `${letters}`);
  const cut = await page.$$eval(".plot > svg", (all) =>
    all.flatMap((svg) => {
      const box = svg.getBoundingClientRect();
      return [...svg.querySelectorAll("text")].filter((e) => {
        const at = e.getBoundingClientRect();
        return at.left < box.left - 2 || at.right > box.right + 6;
      }).map((e) => e.textContent);
    }),
  );
  assert.deepEqual(cut, []);
  const box = () => figure(page, 0).locator(".plot > svg").getAttribute("viewBox");
  const before = await box();
  await page.setViewportSize({ width: 740, height: 360 });
  await page.waitForFunction((was) => document.querySelector(".plot > svg").getAttribute("viewBox") !== was, before);
});

/** Check that in pictures, however wide, no text is on another or cut, and that they are drawn anew when the window changes. */
test("text in pictures", async (t) => {
  for (const name of ["page-bench.json", "page-stages.json", "page-times.json"]) {
    const page = await open(t, golden(name));
    for (const width of [1280, 700, 360]) {
      await page.setViewportSize({ width, height: 800 });
      await page.waitForFunction(() =>
        [...document.querySelectorAll(".plot > svg")].every((svg) => Math.abs(svg.getBoundingClientRect().width - svg.viewBox.baseVal.width) < 5),
      );
      const found = await page.$$eval(".plot > svg", (all) =>
        all.flatMap((svg) => {
          const texts = [...svg.querySelectorAll("text")].map((e) => ({ text: e.textContent, at: e.getBoundingClientRect() }));
          const box = svg.getBoundingClientRect();
          const cut = texts.filter(({ at }) => at.left < box.left - 2 || at.right > box.right + 2 || at.top < box.top - 4 || at.bottom > box.bottom + 4);
          // Lines of text may touch, as in a paragraph.
          const on = texts.flatMap((a, i) =>
            texts.slice(i + 1).filter((b) => a.at.left < b.at.right && b.at.left < a.at.right && a.at.top + 3 < b.at.bottom && b.at.top + 3 < a.at.bottom).map((b) => `${a.text} and ${b.text}`),
          );
          return [...cut.map(({ text }) => `${text} is cut`), ...on];
        }),
      );
      assert.deepEqual(found, [], `${name} at ${width}`);
      // A ledger's text is beside what is drawn.
      const room = await page.$$eval(".flow .plot > svg", (all) =>
        all.map((svg) => {
          const ends = (what, end) => [...svg.querySelectorAll(what)].map((e) => e.getBoundingClientRect()[end]);
          return Math.min(...ends("text", "left")) - Math.max(...ends("rect, path", "right"));
        }),
      );
      assert.ok(room.every((one) => one > -0.5), `${name} at ${width}: ${room}`);
    }
  }
});

/** Check that lines can be seen in the light and in the dark, and on paper. */
test("colours of charts", async (t) => {
  for (const colorScheme of ["light", "dark"]) {
    const page = await open(t, bench, { colorScheme });
    const contrast = await page.evaluate(() => {
      const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
      const bright = (colour) => {
        context.fillStyle = colour;
        context.fillRect(0, 0, 1, 1);
        const [r, g, b] = [...context.getImageData(0, 0, 1, 1).data].slice(0, 3).map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const paper = bright(getComputedStyle(document.body).backgroundColor);
      return [...document.querySelectorAll(".plot .line.stroke")].map((line) => {
        const ink = bright(getComputedStyle(line).stroke);
        return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
      });
    });
    // WCAG 2.2, 1.4.11: graphics need 3 to 1.
    assert.ok(contrast.length > 5 && Math.min(...contrast) >= 3, `${colorScheme}: ${contrast}`);
  }
  const page = await open(t, bench, { colorScheme: "dark" });
  await page.emulateMedia({ media: "print" });
  assert.equal(await page.evaluate(() => getComputedStyle(document.documentElement).getPropertyValue("--series-light")).then(Number), 0.52);
});

/** Check that names made of HTML and of ten thousand letters stay text, that odd numbers are borne, and that an empty chart is one. */
test("odd charts", async (t) => {
  const odd = structuredClone(bench);
  const html = "<img src=x onerror=alert(1)>";
  const long = "y".repeat(10_000);
  const [chart] = partOf(odd, "charts").charts;
  chart.title = html + long;
  chart.series[0].name = html;
  chart.series[1].name = long;
  chart.series[4].points[0].label = html;
  chart.series[2].points = [{ x: 3, y: 0, low: null, high: null, label: "" }, { x: 3, y: -1, low: -2, high: 0, label: "" }];
  partOf(odd, "charts").charts.push({ title: "none", note: "", x: chart.x, y: chart.y, series: [] });
  partOf(odd, "charts").charts.push({ ...chart, title: "one", series: [{ name: "one", kind: "line", points: [{ x: 1, y: 1e-12, low: null, high: null, label: "" }] }] });
  partOf(odd, "flows").flows.push({ title: html, invalid: "", hops: [] });
  partOf(odd, "flows").flows.push({ title: "more left", invalid: "odd", hops: [{ name: long, entered: 5, left: 9, dropped: [[html, 0]], missing: -4 }] });
  partOf(odd, "flows").flows.push(...Array.from({ length: 6 }, () => partOf(odd, "flows").flows[0]));
  const page = await open(t, odd);
  assert.equal(await page.locator("img").count(), 0);
  assert.equal(await page.locator("#rates figure.chart").count(), 5);
  assert.ok((await figure(page, 0).locator("figcaption").innerText()).length <= 200);
  const numbers = await page.$$eval(".plot svg *, .plot > svg *", (all) => all.flatMap((e) => [...e.attributes].map((a) => a.value)).filter((v) => /NaN|Infinity/.test(v)));
  assert.deepEqual(numbers, []);
  // Many ledgers are folded.
  assert.equal(await page.locator("#flows figure").count(), 4);
  assert.equal(await page.locator("#flows summary .name").count(), 10, "each is named, unfolded or not");
  await page.locator("#flows > details:not([open]) > summary").first().click();
  await page.waitForFunction(() => document.querySelectorAll("#flows figure").length === 5);
  await page.locator("#flows > details:not([open]) > summary").evaluateAll((all) => all.forEach((one) => one.click()));
  await page.waitForFunction(() => document.querySelectorAll("#flows figure").length === 10);
  await page.evaluate(() => document.querySelectorAll("#flows figure details").forEach((d) => (d.open = true)));
  assert.ok((await page.locator("#flows").innerText()).includes("more left than came"));
});
