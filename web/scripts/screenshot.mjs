// A picture of a page, or of a part of it.
//
//   node web/scripts/screenshot.mjs OUT.png FILE.html [--width 1400] [--height 900]
//        [--theme light|dark] [--section ID] [--class N] [--full]
//
// Run it where playwright-core is installed (target/web, by `make page`); the
// browser is Debian's chromium, or what $CHROMIUM names.
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { launch } from "./chromium.mjs";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    width: { type: "string", default: "1400" },
    height: { type: "string", default: "900" },
    theme: { type: "string", default: "light" },
    section: { type: "string" },
    class: { type: "string" },
    full: { type: "boolean", default: false },
  },
});
const [out, file] = positionals;
if (!out || !file) {
  console.error("usage: screenshot.mjs OUT.png FILE.html [--width N] [--height N] [--theme light|dark] [--section ID] [--class N] [--full]");
  process.exit(2);
}
const browser = await launch();
try {
  const page = await browser.newPage({
    viewport: { width: Number(values.width), height: Number(values.height) },
    colorScheme: values.theme === "dark" ? "dark" : "light",
    deviceScaleFactor: 1,
  });
  const hash = values.class ? `#class=${values.class}` : "";
  await page.goto(pathToFileURL(file).href + hash);
  await page.waitForFunction(() => document.documentElement.dataset.ready !== undefined);
  await page.waitForTimeout(200);
  if (values.section) {
    // What stays at the top of the window would be on the picture.
    await page.evaluate(() => document.querySelector(".bar")?.remove());
    await page.locator(`#${values.section}`).screenshot({ path: out });
  } else {
    await page.screenshot({ path: out, fullPage: values.full });
  }
} finally {
  await browser.close();
}
