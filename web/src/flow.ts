/** A ledger as a picture: packets from hop to hop, and down where they go missing. */
import type { PageFlow, PageHop } from "./data";
import { h, s, type Child } from "./dom";
import { percent, share, short, thousands } from "./number";
import { fitted } from "./plot";

const BAND = 84;
const NODE = 7;
const TOP = 40;
const ROW = 19;
/** As wide as letters are on the average where they are wide. */
const LETTER = 7;
const CAUSE_LETTERS = 60;
/** What nobody knows where it went. */
export const MISSING = "nobody knows where";

/** Where some packets leave the way. */
export interface Branch {
  cause: string;
  count: number;
  missing: boolean;
  /** Where it leaves, and how wide it is. */
  x: number;
  y: number;
  wide: number;
  /** Where it goes down, and to. */
  turn: number;
  end: number;
}

export interface Layout {
  wide: number;
  tall: number;
  /** Where packets are counted: how many, and how high that is. */
  nodes: { x: number; count: number; tall: number }[];
  /** From each node to the next: how many get there. */
  links: { from: number; to: number; tall: number; count: number; name: string }[];
  branches: Branch[];
}

/** Everything that did not get on, the largest last: those leave next to what goes on. */
function leaving(hop: PageHop): { cause: string; count: number; missing: boolean }[] {
  const all = hop.dropped.map(([cause, count]) => ({ cause, count, missing: false }));
  if (hop.missing > 0) {
    all.push({ cause: MISSING, count: hop.missing, missing: true });
  }
  return all.sort((a, b) => a.count - b.count);
}

/** Where everything goes, in a picture so wide. */
export function layout(flow: PageFlow, wide: number): Layout {
  const hops = flow.hops;
  const most = Math.max(1, ...hops.map((hop) => Math.max(hop.entered, hop.left)));
  const high = (count: number): number => (count <= 0 ? 0 : Math.max((count * BAND) / most, 1));
  const column = (wide - NODE) / Math.max(hops.length, 1);
  const counts = hops.length > 0 ? [...hops.map((hop) => hop.entered), hops[hops.length - 1].left] : [];
  const nodes = counts.map((count, i) => ({ x: i * column, count, tall: high(count) }));
  const links = hops.map((hop, i) => ({
    from: nodes[i].x + NODE,
    to: nodes[i + 1].x,
    tall: high(Math.min(hop.left, hop.entered)),
    count: hop.left,
    name: hop.name,
  }));
  const branches: Branch[] = [];
  const total = hops.reduce((sum, hop) => sum + leaving(hop).length, 0);
  // Those further left go further down, so that no line crosses a label.
  let row = total;
  hops.forEach((hop, i) => {
    let bottom = TOP + nodes[i].tall;
    let turn = nodes[i].x + NODE + 8;
    for (const { cause, count, missing } of leaving(hop)) {
      const thick = Math.max((count * BAND) / most, 1.5);
      bottom -= (count * BAND) / most;
      branches.push({
        cause,
        count,
        missing,
        x: nodes[i].x + NODE,
        y: bottom + ((count * BAND) / most) / 2,
        wide: thick,
        turn: turn + thick / 2,
        end: TOP + BAND + 16 + row * ROW,
      });
      turn += thick + 5;
      row--;
    }
  });
  return { wide, tall: TOP + BAND + 26 + total * ROW, nodes, links, branches };
}

/** The share of its packets that did not come out at the end, by whatever cause. */
export function lostOf(flow: PageFlow): number {
  const [came, left] = [flow.hops[0]?.entered ?? 0, flow.hops.at(-1)?.left ?? 0];
  return came > 0 ? Math.max(1 - left / came, 0) : 0;
}

/** What it says, for who does not see it. */
export function described(flow: PageFlow): string {
  return flow.hops
    .map((hop) => {
      const gone = leaving(hop).reverse().map(({ cause, count }) => `${thousands(count)} ${short(cause, CAUSE_LETTERS)}`);
      return `${short(hop.name, CAUSE_LETTERS)}: ${thousands(hop.left)} of ${thousands(hop.entered)}${gone.length > 0 ? `; gone: ${gone.join(", ")}` : ""}`;
    })
    .join(". ");
}

function picture(flow: PageFlow, wide: number): SVGElement {
  const { nodes, links, branches, tall } = layout(flow, wide);
  const parts: Child[] = [];
  for (const link of links) {
    parts.push(s("path", { class: "on", d: `M${link.from} ${TOP}H${link.to}V${TOP + link.tall}H${link.from}Z` }));
  }
  for (const b of branches) {
    const bend = Math.max(b.turn - b.x, 1);
    parts.push(
      s(
        "path",
        { class: b.missing ? "gone missing" : "gone", "stroke-width": b.wide.toFixed(1), d: `M${b.x} ${b.y.toFixed(1)}Q${(b.x + bend).toFixed(1)} ${b.y.toFixed(1)} ${b.turn.toFixed(1)} ${(b.y + bend).toFixed(1)}V${(b.end - 4).toFixed(1)}` },
        s("title", {}, `${short(b.cause, CAUSE_LETTERS)}: ${thousands(b.count)}`),
      ),
    );
  }
  nodes.forEach((node, i) => {
    const last = i === nodes.length - 1;
    parts.push(
      s("rect", { class: "node", x: node.x, y: TOP, width: NODE, height: Math.max(node.tall, 1) }),
      s("text", { x: last ? node.x + NODE : node.x, y: TOP - 7, "text-anchor": last ? "end" : "start", class: "count" }, thousands(node.count)),
    );
  });
  // Names are between the counts, on a line of their own.
  for (const link of links) {
    const letters = Math.max(4, Math.floor((link.to - link.from) / LETTER));
    parts.push(s("text", { x: link.from - NODE, y: 12, class: "name" }, short(link.name, letters), s("title", {}, short(link.name, 200))));
  }
  for (const b of branches) {
    const offered = flow.hops[0]?.entered ?? 0;
    const text = `${thousands(b.count)} (${percent(share(b.count, offered))}) ${b.cause}`;
    const from = b.turn + Math.max(b.wide / 2, 2) + 4;
    // Where there is no room on its right, it ends at the edge, over what comes down.
    const fits = from + text.length * LETTER <= wide;
    const letters = Math.max(12, Math.floor(wide / LETTER));
    parts.push(
      s(
        "text",
        { x: fits ? from : wide, y: b.end, "text-anchor": fits ? "start" : "end", class: b.missing ? "cause missing" : "cause" },
        short(text, letters),
        s("title", {}, short(text, 200)),
      ),
    );
  }
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
  const { holder } = fitted(1000, (holder, wide) => holder.replaceChildren(picture(flow, wide)));
  return h(
    "figure",
    { class: "flow" },
    h("figcaption", { class: "offscreen" }, short(flow.title, 200)),
    flow.invalid !== "" ? h("p", { class: "warnings" }, `No measurement: ${short(flow.invalid, 600)}`) : null,
    holder,
    h("details", {}, h("summary", {}, "As a table"), asTable(flow)),
  );
}
