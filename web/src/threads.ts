/** Samples by thread: a table, and when each thread ran, as a heat map of the time. */
import { partOf, type Page, type PageClass, type PageThreadPart, type PageThreads } from "./data";
import { h, s } from "./dom";
import { costIn, nsUnit, percent, share, short, thousands } from "./number";
import { plain, wordsOf } from "./table";

const MOST_ROWS = 15;
const NAME_LETTERS = 32;
/** Processes, and threads, that the chooser offers. */
const MOST_CHOICES = 60;

/** How dark a piece is: 0 is empty, the largest is full; small ones are still visible. */
export const darkness = (cost: number, most: number): number => (cost > 0 && most > 0 ? Math.max(0.12, Math.sqrt(cost / most)) : 0);

/** For nanoseconds the part of a CPU that was busy; else the cost. */
export function costText(of: PageThreads, cost: number): string {
  return of.unit === "ns" ? `${percent((cost * 100) / of.piece_ns)} of a CPU` : `${thousands(cost)} ${of.unit}`;
}

/** Whether a page is of samples above all: they have threads and times, and nothing is compared or drawn beside them. */
export const isProfile = (page: Page): boolean => partOf(page, "threads") !== undefined && !page.diff && page.figures.length === 0;

/** The threads: when each ran, and their table. */
export function threadsFigure(of: PageThreads): HTMLElement[] {
  const table = plain(of.table, { limit: MOST_ROWS, filter: wordsOf });
  return of.lines.some((line) => line.costs.length > 1) ? [map(of), table] : [table];
}

type Work = { name: string; tid: number; parts: PageThreadPart[] };

/** Processes and threads that can be shown alone, by their keys in the address: `pid-12`, `tid-13`. */
function alone(page: Page): Map<string, { name: string; threads: Work[] }> {
  const out = new Map<string, { name: string; threads: Work[] }>();
  const processes = partOf(page, "threads")?.processes ?? [];
  for (const { pid, name, threads } of processes) {
    out.set(`pid-${pid}`, { name: `${name} ${pid}`, threads });
  }
  for (const thread of processes.flatMap((process) => process.threads)) {
    out.set(`tid-${thread.tid}`, { name: `${thread.name} ${thread.tid}`, threads: [...(out.get(`tid-${thread.tid}`)?.threads ?? []), thread] });
  }
  return out;
}

/** A chooser of a process or a thread to show alone; none where there is only one. */
export function chooser(page: Page, chosen: string, pick: (key: string) => void): HTMLSelectElement | null {
  const all = [...alone(page)];
  if (all.length < 2) {
    return null;
  }
  const group = (label: string, start: string): HTMLElement =>
    h("optgroup", { label }, ...all.filter(([key]) => key.startsWith(start)).slice(0, MOST_CHOICES).map(([value, { name }]) => h("option", { value, selected: value === chosen }, short(name, NAME_LETTERS))));
  const select = h("select", { onchange: () => pick(select.value) }, h("option", { value: "", selected: chosen === "" }, "all"), group("Processes", "pid-"), group("Threads", "tid-"));
  return select;
}

/** A class with the samples of one process or thread alone; unchanged if the key is of none. */
export function only(page: Page, index: number, key: string): PageClass {
  const group = page.classes[index];
  const of = alone(page).get(key);
  if (!of) {
    return group;
  }
  const contexts = group.contexts.map((tree) => ({ ...tree, calls: tree.calls.map(() => 0), self_insns: tree.self_insns.map(() => 0) }));
  const parts = of.threads.flatMap((thread) => thread.parts).filter((part) => part.class === index);
  for (const part of parts) {
    part.row.forEach((row, i) => {
      contexts[part.context].calls[row] += part.calls[i];
      contexts[part.context].self_insns[row] += part.self_insns[i];
    });
  }
  const sum = (trees: { self_insns: number[] }[]): number => trees.reduce((all, tree) => tree.self_insns.reduce((a, b) => a + b, all), 0);
  const whole = sum(group.contexts);
  const cost = sum(contexts);
  const samples = contexts.reduce((all, tree) => tree.calls.reduce((a, b) => a + b, all), 0);
  const arm = `${short(of.name, NAME_LETTERS)}${group.arm === "" ? "" : `, ${group.arm}`}`;
  const sentence = `${costIn(page.unit)(cost / (group.packets || 1))} per ${group.per}, ${percent(share(cost, whole))} of all, in ${thousands(samples)} samples of ${thousands(of.threads.length)} thread${of.threads.length === 1 ? "" : "s"}.`;
  // Results in the report cover all threads.
  return { ...group, arm, sentence, contexts, layers: null, rows: [], columns: (group.columns ?? []).filter((column) => column.own), published: null, moves: [] };
}

function map(of: PageThreads): HTMLElement {
  const most = Math.max(...of.lines.flatMap((line) => line.costs), 0);
  const count = Math.max(...of.lines.map((line) => line.costs.length), 1);
  const at = (piece: number): string => nsUnit(piece * of.piece_ns);
  const row = (line: PageThreads["lines"][number]): HTMLElement[] => [
    h("span", { class: "name", title: short(line.name, 200) }, short(line.name, NAME_LETTERS)),
    h(
      "div",
      {},
      s(
        "svg",
        { viewBox: `0 0 ${count} 1`, preserveAspectRatio: "none", role: "img", "aria-label": `${short(line.name, 200)}: at most ${costText(of, Math.max(...line.costs, 0))}` },
        ...line.costs.map((cost, piece) =>
          cost > 0
            ? s("rect", { x: piece, y: 0, width: 1.02, height: 1, "fill-opacity": darkness(cost, most).toFixed(3) }, s("title", {}, `${at(piece)} to ${at(piece + 1)}: ${costText(of, cost)}`))
            : null,
        ),
      ),
    ),
  ];
  return h(
    "figure",
    { class: "heat" },
    h("figcaption", {}, `When each thread ran; the darkest is ${costText(of, most)}, in pieces of ${nsUnit(of.piece_ns)}`),
    h("div", { class: "heat-rows" }, ...of.lines.flatMap(row), h("span", {}), h("div", { class: "heat-axis" }, h("span", {}, "0"), h("span", {}, at(count / 2)), h("span", {}, at(count)))),
  );
}
