/** The first screen: what was asked, what came of it, and what to think of that. */
import type { Page } from "./data";
import { toneOf, order } from "./colour";
import { h, section } from "./dom";
import { change, changePercent, cost, short } from "./number";
import { table, type Column } from "./table";
import { titleOf, type Glance } from "./tree";

/** Facts that everybody looks for; the others are folded away. */
const KEY_FACTS = [
  "kernel.release", "kernel.mitigations", "vm.qemu", "vm.cpu", "clock", "plumb.version", "plumb.argv",
];
/** Two kernels, or two links, may differ in dozens. */
const MOST_FACTS = 12;
const TEXT_LETTERS = 2000;

// No plain object: a verdict could be called "constructor".
const VERDICTS = new Map<string, [string, string]>([
  ["holds", ["holds", "\u2713 holds"]],
  ["does not hold", ["fails", "\u2717 does not hold"]],
  ["answer", ["answer", "\u2192 answer"]],
  ["not measured", ["unknown", "? not measured"]],
]);

/** The top of the page; and what there is room for beside how it was measured. */
export function overview(page: Page, beside: HTMLElement | null): HTMLElement {
  return h(
    "section",
    { id: "overview", "aria-labelledby": "title" },
    h("p", { class: "kind" }, page.diff ? "Comparison" : "Report"),
    h("h1", { id: "title" }, short(page.title, 400)),
    page.question ? h("p", { class: "question" }, short(page.question.trim(), TEXT_LETTERS)) : null,
    h("div", { class: "first" }, h("div", {}, ...said(page), beside), where(page)),
  );
}

/** What came of it, the claims too. */
function said(page: Page): (HTMLElement | null)[] {
  return [
    page.headline.length > 0
      ? h("ul", { class: "headline" }, ...page.headline.map((line) => h("li", {}, short(line, TEXT_LETTERS))))
      : null,
    page.warnings.length > 0
      ? h(
          "ul",
          { class: "warnings", role: "note", "aria-label": "Warnings" },
          ...page.warnings.map((line) => h("li", {}, short(line, TEXT_LETTERS))),
        )
      : null,
    claims(page),
  ];
}

/** Where and how it was measured, and how far that can be trusted. */
function where(page: Page): HTMLElement {
  const facts = page.facts.map((fact) => ({
    key: KEY_FACTS.includes(fact.key) || fact.before !== null,
    // What differs is first of all.
    rank: KEY_FACTS.indexOf(fact.key) + (fact.before === null ? 0 : KEY_FACTS.includes(fact.key) ? -100 : -50),
    element: [
      h("dt", {}, short(fact.key, 80)),
      h(
        "dd",
        {},
        ...(fact.before === null
          ? [short(fact.value, TEXT_LETTERS)]
          : [h("del", {}, short(fact.before, TEXT_LETTERS)), " \u2192 ", h("ins", {}, short(fact.value, TEXT_LETTERS))]),
      ),
    ],
  }));
  const wanted = facts.filter((fact) => fact.key).sort((a, b) => a.rank - b.rank);
  const first = wanted.slice(0, MOST_FACTS);
  const more = [...wanted.slice(MOST_FACTS), ...facts.filter((fact) => !fact.key)];
  return h(
    "aside",
    { class: "where", "aria-label": "How it was measured" },
    h("h2", {}, "Measured"),
    h("dl", { class: "facts" }, ...first.flatMap((fact) => fact.element)),
    more.length > 0
      ? h(
          "details",
          {},
          h("summary", {}, `${more.length} more facts`),
          h("dl", { class: "facts" }, ...more.flatMap((fact) => fact.element)),
        )
      : null,
    h("h2", {}, "How far to trust it"),
    h("dl", { class: "facts trust" }, ...page.trust.flatMap(trustLine)),
  );
}

/** A footer line is a word and what there is to say of it. */
function trustLine(line: string): HTMLElement[] {
  const parts = /^(\S+)\s+(.*)$/s.exec(line);
  const [word, text] = parts ? [parts[1], parts[2]] : ["", line];
  return [h("dt", { class: `trust-${word}` }, short(word, 20)), h("dd", {}, short(text, TEXT_LETTERS))];
}

function claims(page: Page): HTMLElement | null {
  if (page.claims.length === 0) {
    return null;
  }
  return h(
    "div",
    { class: "claims" },
    h("h2", {}, "Claims"),
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

/** One line for each arm and class. */
export function summary(page: Page, glances: Glance[], current: () => number, open: (index: number) => void): HTMLElement {
  const most = Math.max(...glances.map((g) => Math.max(g.after, g.before)), 1e-9);
  const name = (g: Glance): string => (g.topFunction < 0 ? "" : page.functions[g.topFunction].name);
  const columns: Column<Glance>[] = [
    {
      title: "class",
      value: (g) => g.group.class,
      show: (g) =>
        h("button", { type: "button", class: "link", onclick: () => open(g.index) }, short(g.group.class, 60)),
    },
  ];
  // A column in which every row is the same says nothing.
  const per = new Set(glances.map((g) => g.group.per));
  if (glances.some((g) => titleOf(g.group) !== g.group.class)) {
    columns.push({ title: "arm", value: (g) => g.group.arm, show: (g) => short(g.group.arm, 80), class: "arm" });
  }
  if (page.diff) {
    columns.push(
      { title: "before", value: (g) => g.before, show: (g) => cost(g.before) },
      { title: "after", value: (g) => g.after, show: (g) => cost(g.after) },
      { title: "change", value: (g) => g.after - g.before, show: (g) => changeCell(g.before, g.after) },
      {
        title: "%",
        value: (g) => (g.before > 0 ? ((g.after - g.before) * 100) / g.before : 0),
        show: (g) => changePercent(g.before, g.after),
      },
      { title: "most changed function", value: name, show: (g) => topCell(name(g), change(g.topSelf)) },
    );
  } else {
    columns.push(
      {
        title: page.unit || "cost",
        hint: "for each packet, or what the class is counted by",
        value: (g) => g.after,
        show: (g) => cost(g.after),
      },
      ...(per.size > 1 ? [{ title: "per", value: (g: Glance) => g.group.per, class: "per" }] : []),
      { title: "", value: () => "", show: (g) => stack(g, most), class: "stack-cell" },
      {
        title: "largest layer",
        value: (g) => largest(g)[0],
        show: (g) => topCell(largest(g)[0], cost(largest(g)[1])),
        class: "wide",
      },
      { title: "largest function", value: name, show: (g) => topCell(name(g), cost(g.topSelf)), class: "wide" },
    );
  }
  const arms = new Set(glances.map((g) => g.group.arm)).size;
  const several = arms > 1 ? `, ${arms} arms` : "";
  const each = per.size === 1 ? `; ${page.unit || "cost"} per ${[...per][0]}` : "";
  const figures = columns.findIndex((c) => c.title === (page.diff ? "change" : page.unit || "cost"));
  const body = table({
    caption: `Every arm and class${several}${each}`,
    columns,
    rows: glances,
    sort: figures,
    bySize: page.diff,
    filter: (g) => `${g.group.arm} ${g.group.class} ${name(g)} ${largest(g)[0]}`,
    limit: 40,
    current: (g) => g.index === current(),
  });
  return section("classes", "Arms and classes", body);
}

export function changeCell(before: number, after: number): HTMLElement {
  const delta = after - before;
  return h("span", { class: delta < 0 ? "less" : delta > 0 ? "more" : "" }, change(delta));
}

function largest(g: Glance): [string, number] {
  let best: [string, number] = ["", 0];
  for (const [layer, [after]] of g.layers) {
    if (after > best[1]) {
      best = [layer, after];
    }
  }
  return best;
}

function topCell(name: string, figure: string): HTMLElement {
  return h("span", { class: "top" }, h("span", { class: "code" }, short(name || "-", 36)), " ", h("span", { class: "dim" }, figure));
}

/** The layers of a class as one bar, as long as its cost. */
function stack(g: Glance, most: number): HTMLElement {
  const layers = [...g.layers].filter(([, [after]]) => after > 0).sort(([a], [b]) => order(a) - order(b));
  return h(
    "span",
    { class: "stack", "aria-hidden": "true" },
    ...layers.map(([layer, [after]]) =>
      h("span", { title: `${short(layer, 40)} ${cost(after)}`, "--wide": `${(after * 100) / most}%`, ...toneOf(layer) }),
    ),
  );
}
