/** Where and how it was measured, and how far to trust it: folded, with the gist in sight. */
import type { Fact, Note, Page } from "./data";
import { cued, fold, h, type Child } from "./dom";
import { plural, short } from "./number";

/** The main facts, in this order; the others come after them. */
const KEY_FACTS = [
  "kernel.release", "kernel.mitigations", "vm.qemu", "vm.cpu", "clock", "plumb.version", "plumb.argv",
];
/** Those that the folded line names. */
const GIST = ["kernel.release", "lab", "clock", "plumb.argv"];
const TEXT_LETTERS = 2000;
const GIST_LETTERS = 160;

/** Both, one below the other. */
export function folds(page: Page): HTMLElement {
  return h("section", { id: "measured", class: "where", "aria-label": "How it was measured" }, measured(page), trusted(page));
}

function measured(page: Page): HTMLElement | null {
  const rank = (fact: Fact): number => (KEY_FACTS.indexOf(fact.key) + KEY_FACTS.length + 1) % (KEY_FACTS.length + 1);
  const sorted = [...page.facts].sort((a, b) => rank(a) - rank(b));
  const differing = sorted.filter((fact) => fact.before !== null);
  const alike = sorted.filter((fact) => fact.before === null);
  if (sorted.length === 0) {
    return null;
  }
  const gist = page.diff
    ? `${differing.length === 0 ? "no fact differs" : `${plural(differing.length, "fact")} differ${differing.length === 1 ? "s" : ""}`}, ${alike.length} the same`
    : GIST.flatMap((key) => sorted.find((fact) => fact.key === key)?.value ?? []).map((value) => short(value, GIST_LETTERS)).join(" \u00b7 ");
  return fold(
    [h("h2", {}, "How it was measured"), " ", h("span", { class: "gist" }, gist)],
    () => [differing.length > 0 ? sides(differing) : null, differing.length > 0 && alike.length > 0 ? h("h3", {}, "The same on both sides") : null, list(alike)],
    { class: "facts-fold" },
  );
}

/** Facts that are not the same before and after. */
function sides(facts: Fact[]): HTMLElement {
  const cell = (text: string | null): HTMLElement => h("td", {}, short(text ?? "", TEXT_LETTERS));
  return cued(h(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": "Facts that differ" },
    h(
      "table",
      { class: "sides" },
      h("caption", {}, "Facts that differ"),
      h("thead", {}, h("tr", {}, ...["fact", "before", "after"].map((title) => h("th", { scope: "col" }, title)))),
      h("tbody", {}, ...facts.map((fact) => h("tr", {}, h("th", { scope: "row" }, short(fact.key, 80)), cell(fact.before), cell(fact.value)))),
    ),
  ));
}

function list(facts: Fact[]): HTMLElement {
  return h("dl", { class: "facts" }, ...facts.flatMap((fact) => [h("dt", {}, short(fact.key, 80)), h("dd", {}, short(fact.value, TEXT_LETTERS))]));
}

function trusted(page: Page): HTMLElement | null {
  if (page.trust.length === 0) {
    return null;
  }
  const line = (note: Note): string => short(`${note.topic} ${note.text}`, GIST_LETTERS);
  const warnings = page.trust.filter((note) => note.warning);
  const gist: Child[] =
    warnings.length > 0
      ? [h("strong", { class: "gist" }, `warnings: ${warnings.map(line).join("; ")}`)]
      : [h("span", { class: "gist" }, line(page.trust[0]))];
  return fold([h("h2", {}, "How far to trust it"), " ", ...gist], () => [h("dl", { class: "facts trust" }, ...page.trust.flatMap(entry))], { class: "trust-fold" });
}

function entry(note: Note): HTMLElement[] {
  return [h("dt", { class: note.warning ? "warning" : null }, short(note.topic, 20)), h("dd", {}, short(note.text, TEXT_LETTERS))];
}
