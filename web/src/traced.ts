/** Traced calls: each a tree of the calls below it, in the order in which they were made, that folds line by line. */
import type { PageCall, PageTraced } from "./data";
import { fold, h } from "./dom";
import { short, thousands } from "./number";

const NAME_LETTERS = 300;
/** Deeper lines are folded at first. */
const OPEN_DEPTH = 3;

/** The line after the subtree of a line. */
export function endOf(depth: number[], line: number): number {
  let end = line + 1;
  while (end < depth.length && depth[end] > depth[line]) {
    end++;
  }
  return end;
}

/** The visible lines, where some are folded. */
export function seen(depth: number[], folded: (line: number) => boolean): number[] {
  const lines: number[] = [];
  for (let line = 0; line < depth.length; ) {
    lines.push(line);
    line = folded(line) ? endOf(depth, line) : line + 1;
  }
  return lines;
}

function tree(call: PageCall): HTMLElement {
  const { depth } = call;
  const has = depth.map((own, line) => line + 1 < depth.length && depth[line + 1] > own);
  const folded = depth.map((own, line) => has[line] && own >= OPEN_DEPTH);
  const list = h("ul", { "aria-label": `Call ${call.number}` });
  const item = (line: number): HTMLElement => {
    const notes = [call.times[line] > 1 ? `${thousands(call.times[line])} times` : "", call.remarks[line]].filter((text) => text !== "").join("; ");
    const name = h("span", { class: "code" }, short(call.name[line], NAME_LETTERS));
    return h(
      "li",
      { "--depth": Math.min(depth[line], 40), title: `${short(call.name[line], 400)}: ${thousands(call.total[line])} ${call.unit}, of its own ${thousands(call.own[line])}` },
      h("span", { class: "figure" }, thousands(call.total[line])),
      h("span", { class: "figure dim" }, thousands(call.own[line])),
      h(
        "span",
        { class: "what" },
        has[line] ? h("button", { type: "button", "aria-expanded": String(!folded[line]), "data-line": line }, name) : name,
        notes === "" ? null : h("span", { class: "dim" }, ` ${notes}`),
      ),
    );
  };
  const draw = (): void => list.replaceChildren(...seen(depth, (line) => folded[line]).map(item));
  list.addEventListener("click", (event) => {
    const button = (event.target as Element).closest<HTMLElement>("button[data-line]");
    if (button) {
      const line = Number(button.dataset.line);
      folded[line] = !folded[line];
      draw();
      list.querySelector<HTMLElement>(`button[data-line="${line}"]`)?.focus();
    }
  });
  draw();
  const all = (fold: boolean): void => {
    has.forEach((is, line) => (folded[line] = is && fold && depth[line] > 0));
    draw();
  };
  return h(
    "div",
    { class: "traced" },
    h("div", { class: "tools" }, h("button", { type: "button", onclick: () => all(false) }, "Unfold all"), h("button", { type: "button", onclick: () => all(true) }, "Fold all")),
    h("div", { class: "traced-head dim" }, h("span", { class: "figure" }, call.unit), h("span", { class: "figure" }, "self"), h("span", {}, "function")),
    list,
    call.left > 0 ? h("p", { class: "dim" }, `and ${thousands(call.left)} lines more: see \`plumb report FILE --call ${call.number}\``) : null,
  );
}

/** The traced calls of a block. */
export function tracedFigure(of: PageTraced): HTMLElement[] {
  return [
    ...of.sentences.map((sentence) => h("p", {}, short(sentence, 600))),
    ...of.calls.map((call, at) =>
      fold(
        [`Call ${thousands(call.number)}, ${short(call.whose, 200)}: ${thousands(call.total[0] ?? 0)} ${call.unit}`],
        () => [tree(call)],
        at === 0 ? { open: true } : {},
      ),
    ),
    ...(of.left > 0 ? [h("p", { class: "dim" }, `and ${thousands(of.left)} calls more in the recording`)] : []),
  ];
}
