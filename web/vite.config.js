import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { defineConfig } from "vite";

/** What a Content-Security-Policy calls a script or a style sheet that it lets in. */
const hash = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;

/** Packages that are in a script beside our own: they have to be named wherever it goes. */
function carried(modules) {
  const names = Object.entries(modules).flatMap(([id, { renderedLength }]) => {
    const name = /.*\/node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(id)?.[1];
    return name && renderedLength > 0 ? [name] : [];
  });
  return [...new Set(names)].sort();
}

/** The licences of these, as a comment. */
function licences(names) {
  const texts = names.map((name) => {
    const text = readFileSync(new URL(`node_modules/${name}/LICENSE`, import.meta.url), "utf8");
    return `${name}\n\n${text.trim()}`;
  });
  return `<!--\nNetplumb's page: MIT OR Apache-2.0. In its script are:\n\n${texts.join("\n\n").replaceAll("--", "- -")}\n-->`;
}

/**
 * Puts the script and the style sheet into the page, and into its policy their
 * hashes: nothing else may run, nothing may be fetched.
 */
function oneFile() {
  return {
    name: "one-file",
    enforce: "post",
    generateBundle(_options, bundle) {
      let script = "";
      let style = "";
      let page;
      const names = [];
      for (const [name, item] of Object.entries(bundle)) {
        if (item.type === "chunk") {
          script += item.code;
          names.push(...carried(item.modules));
        } else if (name.endsWith(".css")) {
          style += item.source;
        } else if (name.endsWith(".html")) {
          page = item;
          continue;
        }
        delete bundle[name];
      }
      // In a script, these would end it or begin a comment of HTML.
      script = script.replaceAll("</script", "<\\/script").replaceAll("<!--", "<\\!--").trim();
      style = style.trim();
      const policy = [
        "default-src 'none'",
        `script-src ${hash(script)}`,
        `style-src ${hash(style)}`,
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
      ].join("; ");
      const replaced = (text, marker, by) => {
        if (text.split(marker).length !== 2) {
          throw new Error(`index.html has not one ${marker}`);
        }
        return text.replace(marker, () => by);
      };
      let text = String(page.source)
        .replace(/\s*<script type="module"[^>]*><\/script>/, "")
        .replace(/\s*<link rel="stylesheet"[^>]*>/, "");
      text = replaced(text, "PLUMB_POLICY", policy);
      text = replaced(text, "<!-- style -->", `<style>${style}</style>`);
      // As text that the parser has seen all of, it runs when the data are there.
      text = replaced(text, "<!-- script -->", `<script type="module">${script}</script>`);
      text = replaced(text, "<!-- licences -->", licences(names));
      page.source = text;
    },
  };
}

export default defineConfig({
  base: "./",
  logLevel: "warn",
  plugins: [oneFile()],
  build: {
    target: "es2022",
    modulePreload: false,
    cssCodeSplit: false,
    assetsInlineLimit: Number.MAX_SAFE_INTEGER,
    reportCompressedSize: false,
    emptyOutDir: true,
  },
});
