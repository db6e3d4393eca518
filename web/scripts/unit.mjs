// The unit tests: tests/*.test.ts, bundled, and run by Node.js itself.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const web = fileURLToPath(new URL("..", import.meta.url));
const out = mkdtempSync(join(tmpdir(), "plumb-unit-"));
try {
  const tests = readdirSync(join(web, "tests")).filter((name) => name.endsWith(".test.ts"));
  await build({
    entryPoints: tests.map((name) => join(web, "tests", name)),
    outdir: out,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    platform: "node",
    target: "node18",
    format: "esm",
    logLevel: "warning",
  });
  const files = readdirSync(out).map((name) => join(out, name));
  const { status } = spawnSync(process.execPath, ["--test", "--test-reporter=tap", ...files], {
    stdio: "inherit",
    // Bundled, they no longer lie beside it.
    env: { ...process.env, PLUMB_TESTDATA: join(web, "testdata") },
  });
  process.exitCode = status ?? 1;
} finally {
  rmSync(out, { recursive: true, force: true });
}
