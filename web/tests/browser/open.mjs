// Pages with data of the tests' own, in a headless Chromium.
//
// The tests run where web/build.sh --with-tests put them, beside the page and the
// goldens of Rust.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { launch } from "../../scripts/chromium.mjs";
import { writePage } from "../../scripts/pages.mjs";

const here = fileURLToPath(new URL("../..", import.meta.url));
export const template = join(here, "dist/index.html");
/** The folder of goldens of crates/report. */
export const goldens = join(here, "testdata");

/** A golden, by its file's name. */
export const golden = (name) => JSON.parse(readFileSync(join(goldens, name), "utf8"));

/** What there is while tests run. */
export const shared = { browser: undefined, folder: undefined };

before(async () => {
  shared.folder = mkdtempSync(join(tmpdir(), "plumb-page-"));
  shared.browser = await launch();
});

after(async () => {
  await shared.browser?.close();
  rmSync(shared.folder, { recursive: true, force: true });
});

let count = 0;

/** Open a page with these data; when the test ends, nothing may have gone wrong in it. */
export async function open(t, data, options = {}) {
  const file = join(shared.folder, `page-${count++}.html`);
  writePage(template, data, file);
  const context = await shared.browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  const wrong = [];
  const requests = [];
  page.on("pageerror", (error) => wrong.push(String(error)));
  page.on("console", (message) => message.type() === "error" && wrong.push(message.text()));
  page.on("dialog", (dialog) => {
    wrong.push(`a dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on("request", (request) => requests.push(request.url()));
  t.after(async () => {
    await context.close();
    assert.deepEqual(wrong, []);
    const own = pathToFileURL(file).href;
    assert.deepEqual(requests.filter((url) => !url.startsWith(own) && !url.startsWith("data:")), []);
  });
  await page.goto(pathToFileURL(file).href);
  await page.waitForFunction(() => document.documentElement.dataset.ready !== undefined);
  return page;
}
