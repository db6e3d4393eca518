// The first screen of every page, driven in a headless Chromium: its answer as a picture.
import assert from "node:assert/strict";
import { test } from "node:test";
import { emptyPage, partOf } from "../../scripts/pages.mjs";
import { golden as goldenFile, open } from "./open.mjs";

const golden = (name) => goldenFile(name === "" ? "page.json" : `page-${name}.json`);
const bench = golden("bench");
/** What a person sees at first, without scrolling. */
const SCREEN = 800;

const arm = (name, pps, lost, mark = "", state = "measured") => ({
  name, state, pps, low: pps && pps * 0.9, high: pps && pps * 1.1, lost, mark,
  cells: [{ text: pps === null ? "-" : `${pps / 1e6} M`, value: pps }, { text: `${lost * 100} %`, value: lost }],
});

/** A bench of so many arms, two of which lost packets. */
function many(count) {
  const data = structuredClone(bench);
  partOf(data, "charts").charts = [];
  partOf(data, "flows").flows = [];
  const others = Array.from({ length: count - 2 }, (_, i) => arm(`xdp flows=${i} cores=1 rate=max`, 9e6 - i * 1e5, 0));
  partOf(data, "rates").arms = [arm("socket", 1e5, 0.8, "80.00 % lost"), arm("tap", 2e5, 0.1, "10.00 % lost"), ...others];
  return data;
}

/** Check that the picture of every kind of page is on the first screen at 1280 pixels, fills the width, and says something to who can't see it. */
test("the picture is on the first screen", async (t) => {
  const pages = { "": golden(""), diff: golden("diff"), times: golden("times"), stages: golden("stages"), "times-diff": golden("times-diff"), "stages-diff": golden("stages-diff"), "clocks-diff": golden("clocks-diff"), bench, many: many(30), hundreds: many(300) };
  pages.figure = { ...golden(""), figures: [partOf(bench, "charts").charts[0]] };
  pages.figures = { ...bench, figures: partOf(bench, "charts").charts };
  for (const [name, data] of Object.entries(pages)) {
    const page = await open(t, data, { viewport: { width: 1280, height: SCREEN } });
    const box = await page.locator("#answer").boundingBox();
    assert.ok(box && box.height >= 40 && box.width > 1200, `${name}: ${JSON.stringify(box)}`);
    assert.ok(box.y + box.height <= SCREEN, `${name}: it ends at ${box.y + box.height}`);
    // Bars that are there to be seen.
    const drawn = await page.locator("#answer :is(.track > .bar, .plot .mark)").evaluateAll((all) => all.filter((e) => e.getBoundingClientRect().width > 3 && e.getBoundingClientRect().height > 3).length);
    assert.ok(drawn > 0, `${name}: ${drawn} bars or points`);
    assert.equal(await page.locator("#answer :is(figcaption, [aria-label])").count() > 0, true);
    // Above what folds: facts and trust.
    assert.ok((await page.locator(".where").boundingBox()).y >= box.y + box.height, name);
  }
});

/** Check that a page says its title, its question and what came of it first; that what differs and what was measured is folded, and comes with a key. */
test("facts and trust are folded, and reached by keyboard", async (t) => {
  const report = golden("");
  const page = await open(t, { ...report, title: "A title", question: "A question?" });
  assert.equal(await page.locator("h1").innerText(), "A title");
  assert.equal(await page.title(), "A title");
  const said = await page.locator("#overview").innerText();
  for (const words of ["A question?", report.headline[0], report.warnings[0]]) {
    assert.ok(said.includes(words), words);
  }
  assert.match(await page.locator("#claims").innerText(), /\u2717 does not hold/);
  // The gist is in sight, losses too; the rest is not.
  assert.match(await page.locator(".facts-fold > summary").innerText(), /How it was measured.*6\.1\.0-42-amd64/s);
  assert.match(await page.locator(".trust-fold > summary").innerText(), /How far to trust it.*1,234 returns without a call/s);
  assert.equal(await page.locator(".where dl:visible, .where ul:visible").count(), 0);
  for (const [fold, content, count] of [[".facts-fold", "dl.facts dt", report.facts.length], [".trust-fold", "dl.trust dt", report.trust.length]]) {
    await page.locator(`${fold} > summary`).focus();
    assert.equal(await page.evaluate(() => document.activeElement.tagName), "SUMMARY");
    await page.keyboard.press("Enter");
    await page.waitForFunction((selector) => document.querySelector(selector)?.getClientRects().length > 0, `${fold} dl`);
    assert.equal(await page.locator(`${fold} ${content}`).count(), count);
  }
  assert.equal(await page.locator(".trust-fold h2").innerText(), "How far to trust it");
  // Losses that are none are not shown as losses.
  const clean = await open(t, golden("stages"));
  assert.equal(await clean.locator(".trust-fold strong.gist").count(), 0);
});

/** Check that of a bench every arm's name stands on the page, those that lost packets first, marked beside bars that are as long as their rates; and that arms that have no rate say why. */
test("arms of a bench, losses first", async (t) => {
  const page = await open(t, bench);
  const { arms, notes } = partOf(bench, "rates");
  const names = await page.locator("#answer li .name").allInnerTexts();
  assert.deepEqual(names, arms.map((one) => one.name));
  assert.deepEqual(names.slice(0, 2), ["bridge", "socket"]);
  const rows = await page.locator("#answer li").evaluateAll((all) =>
    all.map((li) => {
      const wide = (selector) => li.querySelector(selector)?.getBoundingClientRect().width ?? 0;
      return { text: li.innerText, kind: li.className, bar: wide(".bar:not(.gone)"), gone: wide(".gone"), whisker: wide(".whisker") };
    }),
  );
  const [bridge, socket, xdp, raw, dpdk] = rows;
  assert.match(bridge.text, /invalid: rx0: 7 went missing/);
  assert.match(dpdk.text, /not installed/);
  assert.deepEqual([bridge.kind, socket.kind, dpdk.kind], ["invalid", "lost", "absent"]);
  // Of what was sent the lost part is as long as it is large.
  assert.ok(Math.abs(socket.gone / (socket.gone + socket.bar) - 0.803) < 0.01, JSON.stringify(socket));
  assert.match(socket.text, /80\.30 % lost/);
  assert.ok(Math.abs(xdp.bar / raw.bar - 16.4 / 4.5) < 0.05);
  assert.ok(Math.abs(xdp.whisker / xdp.bar - 0.2) < 0.01);
  // The same as a table, with what is to be said of some.
  assert.deepEqual(await page.locator("#rates .table").first().locator("tbody th").allInnerTexts(), arms.map((one) => one.name));
  const heads = await page.locator("#rates .table thead").first().innerText();
  for (const column of partOf(bench, "rates").columns) {
    assert.ok(heads.includes(column.title), column.title);
  }
  const footnotes = await page.locator(".footnotes li").allInnerTexts();
  assert.deepEqual(footnotes, notes.map((note) => `${note.arms.join(", ")}: ${note.text}`));
  // And what is in the latency.
  assert.match(await page.locator("#latency").innerText(), /xdp\s+4,000\s+1,850\s+3,900\s+61\.0us[\s\S]*waits until its batch is full/);
});

/** Check that thirty arms, and three hundred, stay in reach: all named, in a box that scrolls by keyboard, and filtered by their words. */
test("many arms", async (t) => {
  for (const count of [30, 300]) {
    const data = many(count);
    const page = await open(t, data);
    const names = partOf(data, "rates").arms.map((one) => one.name);
    assert.deepEqual(await page.locator("#answer li .name").allTextContents(), names);
    const table = page.locator("#rates .table").first();
    const words = page.locator("#answer").getByRole("searchbox", { name: "Arms" });
    if (count > 200) {
      await table.getByRole("button", { name: `Show all ${count}` }).click();
    }
    assert.equal(await table.locator("tbody tr").count(), count);
    const box = page.locator("#answer .rows");
    await box.focus();
    await page.keyboard.press("End");
    await page.waitForFunction(() => document.querySelector("#answer .rows").scrollTop > 0);
    await words.fill("LOST socket");
    assert.deepEqual(await page.locator("#answer li:visible .name").allInnerTexts(), ["socket"]);
    assert.equal(await page.locator("#answer .status").innerText(), `1 of ${count} arms`);
    await words.fill("");
    assert.equal(await page.locator("#answer .status").innerText(), `${count} arms`);
  }
});

/** Check that ledgers in which packets were lost are drawn first, unfolded; and that the others are named. */
test("flows with losses first", async (t) => {
  const data = structuredClone(bench);
  const hop = (entered, left) => ({ name: "rx0", entered, left, dropped: entered > left ? [["full", entered - left]] : [], missing: 0 });
  const flow = (title, left, invalid = "") => ({ title, invalid, hops: [hop(1000, left)] });
  partOf(data, "flows").flows = [flow("none", 1000), flow("few", 990), flow("most", 200), flow("invalid", 999, "1 went missing"), flow("clean", 1000)];
  const page = await open(t, data);
  const summaries = page.locator("#flows > details > summary");
  assert.deepEqual((await summaries.allInnerTexts()).map((text) => text.replace(/\s+/g, " ").trim()), ["invalid no measurement", "most 800 of 1,000 lost", "few 10 of 1,000 lost", "none nothing lost", "clean nothing lost"]);
  assert.deepEqual(await page.locator("#flows > details").evaluateAll((all) => all.map((one) => one.open)), [true, true, true, false, false]);
});

/** Check that on paper all is unfolded, drawn where it was not yet, and folded again afterwards. */
test("on paper all is unfolded", async (t) => {
  for (const data of [bench, golden(""), golden("diff")]) {
    const page = await open(t, data);
    const closed = () => page.locator("details:not([open]):not(.as-list, .as-list *)").count();
    const before = await closed();
    assert.ok(before > 0);
    await page.evaluate(() => window.dispatchEvent(new Event("beforeprint")));
    assert.equal(await closed(), 0);
    await page.emulateMedia({ media: "print" });
    const hidden = await page.locator("details:not(.as-list, .as-list *) > :not(summary)").evaluateAll((all) => all.filter((e) => e.getClientRects().length === 0 && !e.classList.contains("offscreen")).map((e) => e.outerHTML.slice(0, 80)));
    assert.deepEqual(hidden.filter((html) => !/class="(tools|more)/.test(html)), []);
    await page.evaluate(() => window.dispatchEvent(new Event("afterprint")));
    assert.equal(await closed(), before);
    const pdf = await page.pdf({ format: "A4" });
    assert.ok(pdf.length > 20_000);
  }
});

/** A bench of which nothing counts. */
function invalid() {
  const data = structuredClone(bench);
  const why = "invalid: rx0 to nft-raw: 789632 of 789632 went missing";
  partOf(data, "rates").arms = [arm("nft-raw", null, 0, why, "invalid"), arm("xdp", null, 0, "not measured: it accepts frames for any MAC address", "absent")];
  return data;
}

/** Check that on a phone the picture is no wider than the window, and that its bars have room. */
test("the first screen of a phone", async (t) => {
  for (const data of [bench, many(30), invalid(), golden(""), golden("diff"), golden("stages"), golden("stages-diff"), golden("times"), golden("clocks-diff")]) {
    const page = await open(t, data, { viewport: { width: 380, height: 800 } });
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 380);
    const tracks = await page.locator("#answer .track").evaluateAll((all) => Math.min(300, ...all.map((e) => e.getBoundingClientRect().width)));
    assert.ok(tracks >= 70, `${tracks}`);
    assert.ok((await page.locator("#answer").boundingBox()).y < 600);
    // No name is broken letter by letter, and no reason ends beyond the window.
    const cut = await page.locator("#answer li :is(.name, .mark-text)").evaluateAll((all) => all.filter((e) => e.getBoundingClientRect().height > 60 || e.getBoundingClientRect().right > 381).map((e) => e.textContent));
    assert.deepEqual(cut, []);
  }
});

/** Check that a comparison of many classes has them all beside the one that changed most, and a click shows each. */
test("many classes of a comparison", async (t) => {
  const diff = golden("diff");
  const data = { ...diff, classes: Array.from({ length: 20 }, (_, i) => ({ ...diff.classes[0], arm: `arm ${i}`, packets: diff.classes[0].packets + i })) };
  const page = await open(t, data, { viewport: { width: 1280, height: SCREEN } });
  assert.equal(await page.locator("#answer figure").count(), 2);
  assert.equal(await page.locator("#answer .diverging li").count(), 20);
  const box = await page.locator("#answer").boundingBox();
  assert.ok(box.y + box.height <= SCREEN, JSON.stringify(box));
  await page.locator("#answer").getByRole("button", { name: /arm 17$/ }).click();
  assert.match(await page.locator("#class-title").innerText(), /arm 17/);
});

/** Check that names made of HTML and of ten thousand letters stay text in the picture. */
test("hostile names in the picture", async (t) => {
  const evil = "<img src=x onerror=alert(1)>\u202e" + "x".repeat(10_000);
  const data = structuredClone(bench);
  for (const one of partOf(data, "rates").arms) {
    Object.assign(one, { name: evil, mark: evil });
    one.cells.forEach((cell) => (cell.text = evil));
  }
  partOf(data, "rates").columns.forEach((column) => Object.assign(column, { title: evil, hint: evil }));
  partOf(data, "rates").notes = [{ arms: [evil], text: evil }];
  const [table, note] = data.sections.find((one) => one.id === "latency").parts;
  note.sentences = [evil];
  table.caption = evil;
  table.columns.forEach((column) => Object.assign(column, { title: evil, hint: evil }));
  table.rows.flat().forEach((cell) => (cell.text = evil));
  Object.assign(data, { title: evil, headline: Array(30).fill(evil), warnings: Array(30).fill(evil) });
  const page = await open(t, data);
  assert.equal(await page.locator("img, iframe").count(), 0);
  assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 1280);
  // Nothing at all is no error either.
  const empty = await open(t, emptyPage({ bench: { rates: { title: "", columns: [], arms: [], notes: [] }, latency: null, charts: [], flows: [], costs: [] } }));
  assert.equal(await empty.locator("#answer").count(), 0);
});

/** Check that names within bars can be read on them, in both colours (WCAG AA, 4.5 to 1), and that bars and losses stand out from the paper (3 to 1). */
test("contrast of the picture", async (t) => {
  for (const [data, least] of [[golden(""), 5], [golden("stages"), 2], [bench, 0]]) {
    const page = await open(t, data);
    for (const theme of ["light", "dark"]) {
      const found = await page.evaluate((name) => {
        document.documentElement.dataset.theme = name;
        const brush = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
        const luminance = (colour) => {
          brush.fillStyle = colour;
          brush.fillRect(0, 0, 1, 1);
          const [r, g, b] = [...brush.getImageData(0, 0, 1, 1).data].map((v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
          return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        const ground = (element) => {
          const own = getComputedStyle(element).backgroundColor;
          return own === "rgba(0, 0, 0, 0)" ? ground(element.parentElement) : own;
        };
        const labels = [...document.querySelectorAll("#answer .label")].map((label) => ratio(luminance(getComputedStyle(label).color), luminance(ground(label))));
        const paper = luminance(getComputedStyle(document.body).backgroundColor);
        const style = getComputedStyle(document.documentElement);
        return { labels, inks: ["--work", "--mark", "--ink"].map((ink) => ratio(luminance(style.getPropertyValue(ink)), paper)) };
      }, theme);
      assert.ok(found.labels.length >= least && found.labels.every((one) => one >= 4.5), `${theme}: ${found.labels}`);
      assert.ok(Math.min(...found.inks) >= 3, `${theme}: ${found.inks}`);
    }
  }
});
