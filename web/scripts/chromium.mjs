// The browser that tests and pictures use: one that is installed, never one that
// is downloaded.
import { existsSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const PLACES = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/** Where it is; undefined if there is none. */
export function whereIs() {
  return process.env.CHROMIUM ?? PLACES.find((place) => existsSync(place));
}

/** A browser without a window. */
export function launch(args = []) {
  const executablePath = whereIs();
  if (!executablePath) {
    throw new Error("there is no chromium (apt-get install chromium), and $CHROMIUM names none");
  }
  return chromium.launch({
    executablePath,
    // As root, Chromium has no sandbox of its own; what it opens here is our own.
    chromiumSandbox: process.getuid?.() !== 0,
    args: ["--disable-gpu", "--disable-dev-shm-usage", ...args],
  });
}

// As a command: say where it is.
if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  console.log(whereIs() ?? "");
}
