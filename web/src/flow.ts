/** A ledger as a picture: packets from hop to hop, and to the side where they go missing. */
import { max } from "d3-array";
import { scaleLinear } from "d3-scale";
import type { PageFlow, PageHop } from "./data";
import { fold, h, s, type Child } from "./dom";
import { percent, share, short, thousands } from "./number";
import { fitted } from "./plot";

/** The width of all packets together. */
const BAND = 100;
/** The height of a place where they are counted. */
const NODE = 7;
/** Where all text begins, and how much further in that of causes does. */
const TEXT = BAND + 26;
const INDENT = 12;
const LINE = 15;
const GAP = 8;
/** The mean width of letters, rounded up. */
const LETTER = 7;
const CAUSE_LETTERS = 60;
/** Where it wraps. */
const TEXT_LETTERS = 160;
/** The cause of unaccounted packets. */
export const MISSING = "nobody knows where";

/** Text in lines; the first is at this height. */
interface Lines {
  lines: string[];
  y: number;
}

/** Where some packets leave the way. */
export interface Branch extends Lines {
  cause: string;
  count: number;
  missing: boolean;
  /** Where it leaves, how wide it is, and where it turns to its text. */
  x: number;
  from: number;
  wide: number;
  turn: number;
}

export interface Layout {
  tall: number;
  /** Where packets are counted: how many, and how wide that is; with what comes next. */
  nodes: (Lines & { top: number; count: number; wide: number })[];
  /** From each node to the next: how many get there. */
  links: { from: number; to: number; wide: number }[];
  branches: Branch[];
}

/** All losses, the largest first: these leave furthest from the packets that continue. */
function leaving(hop: PageHop): { cause: string; count: number; missing: boolean }[] {
  const all = hop.dropped.map(([cause, count]) => ({ cause, count, missing: false }));
  if (hop.missing > 0) {
    all.push({ cause: MISSING, count: hop.missing, missing: true });
  }
  return all.sort((a, b) => b.count - a.count);
}

/** Words in lines of this many letters; a longer word is cut. */
export function wrapped(text: string, letters: number): string[] {
  const lines: string[] = [];
  for (const word of text.split(" ").map((word) => short(word, letters))) {
    const last = lines[lines.length - 1];
    if (last !== undefined && last.length + 1 + word.length <= letters) {
      lines[lines.length - 1] = `${last} ${word}`;
    } else {
      lines.push(word);
    }
  }
  return lines;
}

/** The layout in a picture of this width: down the page, with losses to the right. */
export function layout({ hops }: PageFlow, wide: number): Layout {
  const most = max(hops, (hop) => Math.max(hop.entered, hop.left)) || 1;
  const across = scaleLinear([0, most], [0, BAND]);
  const offered = hops[0]?.entered ?? 0;
  const letters = Math.floor((wide - TEXT - INDENT) / LETTER);
  const found: Layout = { tall: 0, nodes: [], links: [], branches: [] };
  let y = 2;
  const node = (count: number, name: string): void => {
    const lines = wrapped(`${thousands(count)} ${short(name, TEXT_LETTERS)}`.trim(), letters);
    found.nodes.push({ top: y, count, wide: across(count), lines, y: y + NODE / 2 + 4 });
    y += Math.max(lines.length * LINE, NODE + GAP);
  };
  for (const hop of hops) {
    const from = y + NODE;
    let right = across(hop.entered);
    node(hop.entered, hop.name);
    for (const { cause, count, missing } of leaving(hop)) {
      const lines = wrapped(`${thousands(count)} (${percent(share(count, offered))}) ${short(cause, TEXT_LETTERS)}`, letters);
      const tall = Math.max(lines.length * LINE, across(count)) + GAP / 2;
      const turn = y + tall / 2;
      right -= across(count);
      found.branches.push({ cause, count, missing, x: right + across(count) / 2, from, wide: Math.max(across(count), 1.5), turn, lines, y: turn + 4 - ((lines.length - 1) * LINE) / 2 });
      y += tall;
    }
    y += GAP;
    found.links.push({ from, to: y, wide: across(Math.min(hop.left, hop.entered)) });
  }
  if (hops.length > 0) {
    node(hops[hops.length - 1].left, "");
  }
  return { ...found, tall: y + 2 };
}

/** The share of its packets that did not come out at the end, by whatever cause. */
export function lostOf(flow: PageFlow): number {
  const [came, left] = [flow.hops[0]?.entered ?? 0, flow.hops.at(-1)?.left ?? 0];
  return came > 0 ? Math.max(1 - left / came, 0) : 0;
}

/** The picture in words, for screen readers. */
export function described(flow: PageFlow): string {
  return flow.hops
    .map((hop) => {
      const gone = leaving(hop).map(({ cause, count }) => `${thousands(count)} ${short(cause, CAUSE_LETTERS)}`);
      return `${short(hop.name, CAUSE_LETTERS)}: ${thousands(hop.left)} of ${thousands(hop.entered)}${gone.length > 0 ? `; gone: ${gone.join(", ")}` : ""}`;
    })
    .join(". ");
}

/** Text of some lines; the first word of a node is its count. */
const text = ({ lines, y }: Lines, x: number, kind: string, whole: string): SVGElement =>
  s(
    "text",
    { class: kind },
    ...lines.map((line, i) => {
      const [count, ...words] = kind === "name" && i === 0 ? line.split(" ") : ["", line];
      return s("tspan", { x, y: y + i * LINE }, count === "" ? null : s("tspan", { class: "count" }, count, " "), words.join(" "));
    }),
    s("title", {}, short(whole, 200)),
  );

function picture(flow: PageFlow, wide: number): SVGElement {
  const { nodes, links, branches, tall } = layout(flow, wide);
  const parts: Child[] = links.map((link) => s("rect", { class: "on", x: 0, y: link.from, width: link.wide > 0 ? Math.max(link.wide, 1) : 0, height: link.to - link.from }));
  for (const b of branches) {
    const bend = Math.min(b.wide / 2 + 6, b.turn - b.from);
    parts.push(
      s(
        "path",
        { class: b.missing ? "gone missing" : "gone", "stroke-width": b.wide.toFixed(1), d: `M${b.x} ${b.from}V${b.turn - bend}Q${b.x} ${b.turn} ${b.x + bend} ${b.turn}H${TEXT}` },
        s("title", {}, `${short(b.cause, CAUSE_LETTERS)}: ${thousands(b.count)}`),
      ),
      text(b, TEXT + INDENT / 2, b.missing ? "cause missing" : "cause", `${thousands(b.count)} ${b.cause}`),
    );
  }
  nodes.forEach((node, i) => {
    parts.push(s("rect", { class: "node", x: 0, y: node.top, width: Math.max(node.wide, 1), height: NODE }), text(node, TEXT, "name", `${thousands(node.count)} ${flow.hops[i]?.name ?? ""}`));
  });
  return s("svg", { viewBox: `0 0 ${wide} ${tall}`, role: "img", "aria-label": described(flow) }, ...parts);
}

function asTable(flow: PageFlow): HTMLElement {
  const row = (cells: string[], kind = ""): HTMLElement =>
    h("tr", { class: kind }, h("th", { scope: "row" }, cells[0]), ...cells.slice(1).map((cell) => h("td", { class: "number" }, cell)));
  const offered = flow.hops[0]?.entered ?? 0;
  const of = (count: number): string[] => [thousands(count), percent(share(count, offered))];
  return h(
    "table",
    { class: "bins" },
    h("caption", {}, short(flow.title, 200)),
    h("thead", {}, h("tr", {}, ...["", "packets", "of all"].map((name, i) => h("th", { scope: "col", class: i > 0 ? "number" : "" }, name)))),
    h(
      "tbody",
      {},
      ...flow.hops.flatMap((hop) => [
        row([`${short(hop.name, CAUSE_LETTERS)}: came`, ...of(hop.entered)], "total"),
        ...hop.dropped.map(([cause, count]) => row([short(cause, CAUSE_LETTERS), ...of(count)])),
        ...(hop.missing !== 0 ? [row([hop.missing > 0 ? MISSING : "more left than came", ...of(Math.abs(hop.missing))], "warn")] : []),
        row([`${short(hop.name, CAUSE_LETTERS)}: got on`, ...of(hop.left)], "total"),
      ]),
    ),
  );
}

/** A ledger with its picture and its table. */
export function flowFigure(flow: PageFlow): HTMLElement {
  const { holder } = fitted(720, (holder, wide) => holder.replaceChildren(picture(flow, wide)));
  return h(
    "figure",
    { class: "flow" },
    h("figcaption", { class: "offscreen" }, short(flow.title, 200)),
    flow.invalid !== "" ? h("p", { class: "warnings" }, `No measurement: ${short(flow.invalid, 600)}`) : null,
    holder,
    h("details", {}, h("summary", {}, "As a table"), asTable(flow)),
  );
}

/** The most unfolded ledgers, of those with losses. */
const FEW = 4;

/** Ledgers that don't add up first, as they explain missing figures; then the largest losses. */
export function byLoss(flows: PageFlow[]): PageFlow[] {
  const rank = (flow: PageFlow): number => (flow.invalid === "" ? lostOf(flow) : 2);
  return [...flows].sort((a, b) => rank(b) - rank(a));
}

/** A ledger under its name, with the losses. */
export function foldedFlow(flow: PageFlow, at: number): HTMLElement {
  const lost = lostOf(flow);
  const [sent, left] = [flow.hops[0]?.entered ?? 0, flow.hops.at(-1)?.left ?? 0];
  const said = flow.invalid !== "" ? "no measurement" : lost > 0 ? `${thousands(sent - left)} of ${thousands(sent)} lost` : "nothing lost";
  return fold(
    [h("span", { class: "name" }, short(flow.title, 200)), " ", h("span", { class: flow.invalid !== "" || lost > 0 ? "more" : "dim" }, said)],
    () => [flowFigure(flow)],
    { class: "flow-fold", open: at < FEW && (flow.invalid !== "" || lost > 0) },
  );
}
