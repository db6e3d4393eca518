/** All arms and classes in one table. */
import type { Page } from "./data";
import { toneOf, order } from "./colour";
import { h, section } from "./dom";
import { change, changePercent, cost, short } from "./number";
import { table, type Column } from "./table";
import { titleOf, type Glance } from "./tree";

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
