/** The question and the results, in words. */
import type { Page } from "./data";
import { fold, h } from "./dom";
import { plural, short } from "./number";

const TEXT_LETTERS = 2000;
/** The most sentences and warnings above the picture; the others are folded. */
const MOST_SENTENCES = 3;
const MOST_WARNINGS = 2;

// Not a plain object: a verdict could be called "constructor".
const VERDICTS = new Map<string, [string, string]>([
  ["holds", ["holds", "\u2713 holds"]],
  ["does not hold", ["fails", "\u2717 does not hold"]],
  ["not shown", ["unknown", "\u2248 not shown"]],
  ["answer", ["answer", "\u2192 answer"]],
  ["not measured", ["unknown", "? not measured"]],
]);

/** The top of the page, with its picture. */
export function overview(page: Page, picture: HTMLElement | null): HTMLElement {
  return h(
    "section",
    { id: "overview", "aria-labelledby": "title" },
    h("p", { class: "kind" }, page.diff ? "Comparison" : "Report"),
    h("h1", { id: "title" }, short(page.title, 400)),
    page.question ? h("p", { class: "question" }, short(page.question.trim(), TEXT_LETTERS)) : null,
    lines(page.headline, MOST_SENTENCES, "sentence", { class: "headline" }),
    lines(page.warnings, MOST_WARNINGS, "warning", { class: "warnings", role: "note", "aria-label": "Warnings" }),
    picture,
  );
}

/** Lines; only the first few are not folded. */
function lines(all: string[], most: number, one: string, properties: Record<string, string>): HTMLElement | null {
  if (all.length === 0) {
    return null;
  }
  const item = (line: string): HTMLElement => h("li", {}, short(line, TEXT_LETTERS));
  // One line takes no more room than the control that would unfold it.
  const shown = all.length <= most + 1 ? all : all.slice(0, most);
  const rest = all.slice(shown.length);
  return h(
    "div",
    properties,
    h("ul", {}, ...shown.map(item)),
    rest.length > 0 ? fold([`${plural(rest.length, `more ${one}`)}`], () => [h("ul", {}, ...rest.map(item))]) : null,
  );
}

/** Claims and their verdicts. */
export function claims(page: Page): HTMLElement | null {
  if (page.claims.length === 0) {
    return null;
  }
  return h(
    "section",
    { id: "claims", class: "claims", "aria-labelledby": "claims-title" },
    h("h2", { id: "claims-title" }, "Claims"),
    h(
      "ul",
      {},
      ...page.claims.map((claim) => {
        const [kind, verdict] = VERDICTS.get(claim.verdict) ?? ["unknown", short(claim.verdict, 40)];
        return h(
          "li",
          { class: kind },
          h("strong", { class: "verdict" }, verdict),
          h(
            "div",
            {},
            h("span", { class: "says" }, short(claim.says, TEXT_LETTERS)),
            h("span", { class: "because" }, short(claim.because, TEXT_LETTERS)),
          ),
        );
      }),
    ),
  );
}
