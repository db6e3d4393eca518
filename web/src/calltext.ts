/**
 * The call graph as text, in the form of perf's: callees indented below their caller, each with its share. Of a
 * comparison both sides, beside each other.
 */
import { choice, field, h } from "./dom";
import { short, thousands } from "./number";
import { nameOf, type Tree } from "./tree";

/** The most rows of a side. */
export const MOST_ROWS = 400;
const NAME_LETTERS = 60;
const LIMITS = ["0.1", "0.5", "1", "2", "5", "10"];
const LIMIT = "1";

/** A side of a tree: costs and their divisor. */
export interface Side {
  inclusive: Float64Array;
  packets: number;
}

/** The sides of a tree: before and after, or the one there is. */
export function sidesOf(tree: Tree, diff: boolean): [string, Side][] {
  const after: Side = { inclusive: tree.inclusive, packets: tree.packets };
  const before: Side = { inclusive: tree.inclusiveBefore, packets: tree.packetsBefore };
  return diff ? [["Before", before], ["After", after]] : [["", after]];
}

export interface Line {
  row: number;
  depth: number;
  /** In percent. */
  share: number;
}

/**
 * The lines of a side of at least `limit` percent, the largest callee first; and how many are left out. `whole` is
 * what a share of all is: the cost of the root, or 100 where costs are percentages already.
 */
export function linesOf(tree: Tree, side: Side, limit: number, whole: number): { lines: Line[]; hidden: number } {
  const lines: Line[] = [];
  let hidden = 0;
  const share = (row: number): number => (whole > 0 ? (side.inclusive[row] / side.packets / whole) * 100 : 0);
  // The last is taken first.
  const open: Line[] = [{ row: 0, depth: 0, share: share(0) }];
  for (let line = open.pop(); line; line = open.pop()) {
    if (line.share < limit || lines.length >= MOST_ROWS) {
      hidden += side.inclusive[line.row] > 0 ? 1 : 0;
      continue;
    }
    lines.push(line);
    const below = [...tree.children.subarray(tree.begin[line.row], tree.begin[line.row + 1])];
    below.sort((a, b) => side.inclusive[a] - side.inclusive[b] || b - a);
    for (const row of below) {
      open.push({ row, depth: line.depth + 1, share: share(row) });
    }
  }
  return { lines, hidden };
}

/** The same in words, as perf prints it. */
export function textOf(tree: Tree, lines: Line[]): string {
  return lines.map((line) => `${line.share.toFixed(2).padStart(6)}%  ${"  ".repeat(line.depth)}${nameOf(tree, line.row)}\n`).join("");
}

/** The sides, with a choice of the threshold. */
export function callText(tree: Tree, diff: boolean, unit: string): HTMLElement {
  const holder = h("div", { class: diff ? "calltext both" : "calltext" });
  // A function is found on the other side by pointing at it.
  const point = (row: string | undefined): void => {
    holder.querySelectorAll<HTMLElement>("li").forEach((item) => item.classList.toggle("pointed", row !== undefined && item.dataset.row === row));
  };
  const draw = (limit: number): void => {
    holder.replaceChildren(...sidesOf(tree, diff).map(([title, side]) => sideOf(tree, title, side, limit, unit)));
  };
  holder.addEventListener("pointerover", (event) => point((event.target as Element).closest<HTMLElement>("li")?.dataset.row));
  holder.addEventListener("pointerleave", () => point(undefined));
  draw(Number(LIMIT));
  const limits = LIMITS.map((limit): [string, string] => [limit, `${limit}%`]);
  return h("div", {}, h("div", { class: "tools" }, field("From", choice(limits, LIMIT, (value) => draw(Number(value))))), holder);
}

function sideOf(tree: Tree, title: string, side: Side, limit: number, unit: string): HTMLElement {
  const each = (row: number): number => side.inclusive[row] / side.packets;
  const { lines, hidden } = linesOf(tree, side, limit, unit === "percent" ? 100 : each(0));
  const item = (line: Line): HTMLElement =>
    h(
      "li",
      { "data-row": line.row, "--depth": Math.min(line.depth, 40), "--share": `${Math.min(line.share, 100)}%`, title: `${short(nameOf(tree, line.row), 400)}: ${tree.show(each(line.row))}${["ns", "percent"].includes(unit) ? "" : ` ${unit}`}` },
      h("span", { class: "share" }, `${line.share.toFixed(2)}%`),
      h("span", { class: "code" }, short(nameOf(tree, line.row), NAME_LETTERS)),
    );
  return h(
    "div",
    {},
    title === "" ? null : h("h3", {}, title),
    lines.length > 0 ? h("ul", { "aria-label": title === "" ? "Call graph" : `Call graph, ${title.toLowerCase()}` }, ...lines.map(item)) : h("p", {}, "Nothing of it on this side."),
    hidden > 0 ? h("p", { class: "dim" }, `and ${thousands(hidden)} more of less than ${limit}%`) : null,
  );
}
