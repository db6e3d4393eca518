/**
 * The icicle: a calling-context tree drawn from the top down, each frame as wide
 * as its inclusive cost. On a canvas, and only visible frames are drawn, so that a
 * hundred thousand frames are no problem.
 */
import { changeFill, fillOf } from "./colour";
import { h } from "./dom";
import { short } from "./number";
import { certainOf, changeOf, layerOf, nameOf, type Found, type Tree } from "./tree";

const ROW = 19;
const FONT = 11.5;
/** The most that a sheet of paper has room for, pixels. */
const PAPER = 900;
/** Narrower than this, pixels, frames of one caller are drawn as one. */
const THIN = 0.4;
/** A share of the width: narrower rows are not readable without zooming. */
const READABLE = 0.01;

export type Colouring = "layer" | "inclusive" | "self";

export interface Callbacks {
  /** The details of a row: lines of a label and a value. */
  describe: (tree: Tree, row: number) => [string, string][];
  /** A row was chosen, by mouse or key. */
  chosen: (row: number) => void;
  /** The view has changed: the row, and an argument for `restore` to show the same again. */
  zoomed: (row: number, extent: string) => void;
}

export class Icicle {
  readonly element: HTMLElement;
  readonly canvas: HTMLCanvasElement;
  private tree: Tree;
  private readonly scroller: HTMLElement;
  private readonly spacer: HTMLElement;
  private readonly tip: HTMLElement;
  private from = 0;
  private to = 1;
  /** The row that fills the width, or the last one that did. */
  private focus = 0;
  private selected = 0;
  private found: Found | null = null;
  private colouring: Colouring;
  private largest = { inclusive: 0, self: 0 };
  /** The depth down to which rows can be read when the whole is shown. */
  private seen = 0;
  private pending = 0;
  private forPrint = false;
  /** Colours of layers, made once for each drawing. */
  private readonly fills = new Map<string, string>();

  constructor(tree: Tree, private readonly diff: boolean, private readonly callbacks: Callbacks) {
    this.tree = tree;
    this.colouring = diff ? "inclusive" : "layer";
    this.canvas = h("canvas", {
      tabindex: 0,
      role: "application",
      "aria-roledescription": "icicle",
      "aria-label":
        "Calling contexts. Arrow keys go to the caller, the callee and their neighbours, Enter zooms in, Escape out.",
      "aria-describedby": "frame",
      onkeydown: (event: KeyboardEvent) => this.key(event),
      onmousemove: (event: MouseEvent) => this.hover(event),
      onmouseleave: () => (this.tip.hidden = true),
      onclick: (event: MouseEvent) => this.click(event),
      onwheel: (event: WheelEvent) => this.wheel(event),
      onfocus: () => this.draw(),
      onblur: () => this.draw(),
    });
    this.spacer = h("div", { class: "spacer" });
    this.scroller = h("div", { class: "icicle", onscroll: () => this.draw() }, this.canvas, this.spacer);
    this.tip = h("div", { class: "tip", hidden: true, role: "presentation" });
    this.element = h("div", { class: "icicle-box" }, this.scroller, this.tip);
    new ResizeObserver(() => this.draw()).observe(this.scroller);
    this.setTree(tree);
  }

  /** Show another tree, all of it. */
  setTree(tree: Tree): void {
    this.tree = tree;
    this.found = null;
    this.largest = { inclusive: 0, self: 0 };
    this.seen = 0;
    for (let row = 0; row < tree.size; row++) {
      if (tree.width[row] >= tree.width[0] * READABLE) {
        this.seen = Math.max(this.seen, tree.depth[row]);
      }
      this.largest.inclusive = Math.max(this.largest.inclusive, Math.abs(changeOf(tree, row, "inclusive")));
      this.largest.self = Math.max(this.largest.self, Math.abs(changeOf(tree, row, "self")));
    }
    this.selected = 0;
    this.scroller.scrollTop = 0;
    this.zoom(0);
  }

  get current(): { tree: Tree; selected: number; focus: number; from: number; to: number } {
    return { tree: this.tree, selected: this.selected, focus: this.focus, from: this.from, to: this.to };
  }

  setFound(found: Found | null): void {
    this.found = found;
    this.draw();
  }

  setColouring(colouring: Colouring): void {
    this.colouring = colouring;
    this.draw();
  }

  /** Zoom so that a row fills the width. */
  zoom(row: number): void {
    this.focus = row;
    this.from = this.tree.left[row];
    this.to = this.from + Math.max(this.tree.width[row], Number.MIN_VALUE);
    this.callbacks.zoomed(row, this.extent);
    this.draw();
  }

  /** The view: none for the whole, a row that fills the width, or a range. */
  private get extent(): string {
    const { tree, focus, from, to } = this;
    const whole = tree.width[0] || 1;
    if (from === tree.left[focus] && to - from === tree.width[focus]) {
      return focus === 0 ? "" : String(focus);
    }
    return [from, to].map((at) => (at / whole).toFixed(7)).join("-");
  }

  /** Show an extent again; the whole where it is none. */
  restore(extent: string): void {
    const whole = this.tree.width[0] || 1;
    const ends = /^(0\.\d+)-([01]\.\d+)$/.exec(extent)?.slice(1).map((end) => Number(end) * whole);
    const row = /^\d+$/.test(extent) ? Number(extent) : 0;
    if (ends && ends[0] < ends[1] && ends[1] <= whole) {
      [this.from, this.to] = ends;
      this.callbacks.zoomed(0, this.extent);
      this.draw();
    } else if (row < this.tree.size) {
      this.zoom(row);
    }
  }

  /** One step out: to the nearest wider caller. */
  out(): void {
    let row = this.focus;
    const wide = this.to - this.from;
    while (row > 0 && this.tree.width[row] <= wide * 1.0001) {
      row = this.tree.parent[row];
    }
    this.zoom(row);
  }

  /** Zoom about a place, both from 0 to 1 of the width; below 1 is inwards. */
  zoomBy(factor: number, at = 0.5): void {
    const whole = this.tree.width[0] || 1;
    const wide = Math.min(Math.max((this.to - this.from) * factor, whole * 1e-6), whole);
    const middle = this.from + (this.to - this.from) * at;
    this.from = Math.min(Math.max(middle - wide * at, 0), whole - wide);
    this.to = this.from + wide;
    this.callbacks.zoomed(this.focus, this.extent);
    this.draw();
  }

  /** Go to a row: choose it, and make it visible. */
  select(row: number): void {
    this.selected = row;
    const left = this.tree.left[row];
    if (left >= this.to || left + this.tree.width[row] <= this.from) {
      this.zoom(this.tree.parent[row] >= 0 ? this.tree.parent[row] : row);
    }
    const top = this.tree.depth[row] * ROW;
    if (top < this.scroller.scrollTop) {
      this.scroller.scrollTop = top;
    } else if (top + ROW > this.scroller.scrollTop + this.scroller.clientHeight) {
      this.scroller.scrollTop = top + ROW - this.scroller.clientHeight;
    }
    this.callbacks.chosen(row);
    this.draw();
  }

  /** Draw in the colours of paper, or of the screen again. */
  print(on: boolean): void {
    this.forPrint = on;
    this.scroller.scrollTop = 0;
    this.draw(true);
  }

  /** With the next frame of the screen, or now. */
  draw(now = false): void {
    if (now) {
      cancelAnimationFrame(this.pending);
      this.pending = 0;
      this.paint();
    } else if (this.pending === 0) {
      this.pending = requestAnimationFrame(() => {
        this.pending = 0;
        this.paint();
      });
    }
  }

  private fill(row: number, dark: boolean): string {
    if (this.colouring === "layer") {
      if (this.tree.fn[row] < 0) {
        return changeFill(0, dark);
      }
      const layer = layerOf(this.tree, row);
      let fill = this.fills.get(layer);
      if (fill === undefined) {
        fill = fillOf(layer, dark);
        this.fills.set(layer, fill);
      }
      return fill;
    }
    return changeFill(certainOf(this.tree, row, this.colouring) / (this.largest[this.colouring] || 1), dark);
  }

  private paint(): void {
    const { tree, canvas, scroller } = this;
    const dark = !this.forPrint && isDark();
    this.fills.clear();
    const all = (tree.deepest + 1) * ROW;
    // As high as the readable part of the whole; deeper, thin rows are scrolled to.
    const high = Math.min(all, this.forPrint ? PAPER : Math.max(Math.min((this.seen + 2) * ROW, window.innerHeight * 0.78), 240));
    this.spacer.style.height = `${all}px`;
    scroller.style.height = `${high + 2}px`;
    const wide = scroller.clientWidth;
    if (wide === 0) {
      return;
    }
    const scale = window.devicePixelRatio || 1;
    if (canvas.width !== Math.round(wide * scale) || canvas.height !== Math.round(high * scale)) {
      canvas.width = Math.round(wide * scale);
      canvas.height = Math.round(high * scale);
      canvas.style.width = `${wide}px`;
      canvas.style.height = `${high}px`;
    }
    const context = canvas.getContext("2d");
    if (!context) {
      return;
    }
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, wide, high);
    context.font = `${FONT}px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace`;
    context.textBaseline = "middle";
    const letter = context.measureText("0").width;
    const ink = dark ? "#f2f3f5" : "#16181c";
    const paper = dark ? "#16181c" : "#ffffff";
    const hatch = this.hatch(context, dark);
    const perUnit = wide / (this.to - this.from);
    const top = this.forPrint ? 0 : scroller.scrollTop;
    const stack = [0];
    while (stack.length > 0) {
      const row = stack.pop() as number;
      const x = (tree.left[row] - this.from) * perUnit;
      const w = tree.width[row] * perUnit;
      if (x >= wide || x + w <= 0) {
        continue;
      }
      const y = tree.depth[row] * ROW - top;
      if (y >= high) {
        continue;
      }
      const begin = Math.max(x, 0);
      const end = Math.min(x + w, wide);
      if (y + ROW > 0) {
        const gap = end - begin > 3 ? 1 : 0;
        const dim = this.found !== null && this.found.rows[row] === 0;
        context.globalAlpha = dim ? 0.25 : 1;
        context.fillStyle = this.fill(row, dark);
        context.fillRect(begin, y, end - begin - gap, ROW - 1);
        const gone = this.diff && tree.inclusive[row] === 0 && tree.inclusiveBefore[row] > 0;
        if (gone && hatch) {
          context.fillStyle = hatch;
          context.fillRect(begin, y, end - begin - gap, ROW - 1);
        }
        if (this.found !== null && !dim) {
          context.strokeStyle = dark ? "#ffd24d" : "#b3007d";
          context.lineWidth = 1.5;
          context.strokeRect(begin + 0.75, y + 0.75, Math.max(end - begin - gap - 1.5, 0.5), ROW - 2.5);
        }
        const room = Math.floor((end - begin - 8) / letter);
        if (room >= 3) {
          const isNew = this.diff && tree.inclusiveBefore[row] === 0 && tree.inclusive[row] > 0;
          const text = short((isNew ? "+ " : gone ? "\u2212 " : "") + nameOf(tree, row), room);
          if (gone) {
            context.fillStyle = paper;
            context.globalAlpha = 0.75;
            context.fillRect(begin + 2, y + 2, text.length * letter + 4, ROW - 5);
            context.globalAlpha = dim ? 0.4 : 1;
          }
          context.globalAlpha = dim ? 0.55 : 1;
          context.fillStyle = ink;
          context.fillText(text, begin + 4, y + ROW / 2);
        }
        context.globalAlpha = 1;
      }
      for (let at = tree.begin[row + 1] - 1; at >= tree.begin[row]; at--) {
        const child = tree.children[at];
        if (tree.width[child] * perUnit >= THIN) {
          stack.push(child);
        }
      }
      this.paintThin(context, row, perUnit, y + ROW, dark);
    }
    this.outline(context, perUnit, top, dark);
  }

  /** The children of a row that are too thin to distinguish, as one. */
  private paintThin(
    context: CanvasRenderingContext2D,
    row: number,
    perUnit: number,
    y: number,
    dark: boolean,
  ): void {
    const { tree } = this;
    let low = tree.begin[row];
    let high = tree.begin[row + 1];
    // Children are in the order of their width.
    while (low < high) {
      const middle = (low + high) >> 1;
      if (tree.width[tree.children[middle]] * perUnit >= THIN) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    const last = tree.begin[row + 1] - 1;
    if (low > last) {
      return;
    }
    const begin = (tree.left[tree.children[low]] - this.from) * perUnit;
    const end = (tree.left[tree.children[last]] + tree.width[tree.children[last]] - this.from) * perUnit;
    if (end > 0) {
      context.fillStyle = dark ? "oklch(0.4 0 0)" : "oklch(0.85 0 0)";
      context.fillRect(begin, y, Math.max(end - begin, 0.5), ROW - 1);
    }
  }

  private outline(context: CanvasRenderingContext2D, perUnit: number, top: number, dark: boolean): void {
    const { tree, selected } = this;
    if (document.activeElement !== this.canvas || this.forPrint) {
      return;
    }
    const x = (tree.left[selected] - this.from) * perUnit;
    const begin = Math.max(x, 0);
    const end = Math.min(x + tree.width[selected] * perUnit, this.scroller.clientWidth);
    context.strokeStyle = dark ? "#ffffff" : "#000000";
    context.lineWidth = 2;
    context.strokeRect(begin + 1, tree.depth[selected] * ROW - top + 1, Math.max(end - begin - 2, 1), ROW - 3);
  }

  private hatch(context: CanvasRenderingContext2D, dark: boolean): CanvasPattern | null {
    if (!this.diff) {
      return null;
    }
    const tile = document.createElement("canvas");
    tile.width = 6;
    tile.height = 6;
    const brush = tile.getContext("2d");
    if (!brush) {
      return null;
    }
    brush.strokeStyle = dark ? "rgba(255,255,255,0.55)" : "rgba(0,0,0,0.5)";
    brush.lineWidth = 1.2;
    for (const shift of [-6, 0, 6]) {
      brush.moveTo(shift, 6);
      brush.lineTo(shift + 6, 0);
    }
    brush.stroke();
    return context.createPattern(tile, "repeat");
  }

  /** The row at a place of the canvas, or -1. */
  rowAt(x: number, y: number): number {
    const { tree } = this;
    const depth = Math.floor((y + this.scroller.scrollTop) / ROW);
    const at = this.from + (x / (this.scroller.clientWidth || 1)) * (this.to - this.from);
    let row = 0;
    if (depth < 0 || at < tree.left[0] || at >= tree.left[0] + tree.width[0]) {
      return -1;
    }
    while (tree.depth[row] < depth) {
      let next = -1;
      for (let i = tree.begin[row]; i < tree.begin[row + 1]; i++) {
        const child = tree.children[i];
        if (at >= tree.left[child] && at < tree.left[child] + tree.width[child]) {
          next = child;
          break;
        }
      }
      if (next < 0) {
        return -1;
      }
      row = next;
    }
    return row;
  }

  private place(event: MouseEvent): [number, number] {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  private hover(event: MouseEvent): void {
    const row = this.rowAt(...this.place(event));
    this.canvas.style.cursor = row >= 0 ? "pointer" : "default";
    if (row < 0) {
      this.tip.hidden = true;
      return;
    }
    const lines = this.callbacks.describe(this.tree, row);
    this.tip.replaceChildren(
      h("strong", {}, short(nameOf(this.tree, row), 120)),
      h("dl", {}, ...lines.flatMap(([label, value]) => [h("dt", {}, label), h("dd", {}, value)])),
    );
    this.tip.hidden = false;
    const room = document.documentElement.clientWidth;
    const x = Math.min(event.clientX + 14, room - this.tip.offsetWidth - 8);
    const below = event.clientY + 18;
    const over = below + this.tip.offsetHeight > window.innerHeight;
    this.tip.style.left = `${Math.max(x, 4)}px`;
    this.tip.style.top = `${over ? event.clientY - this.tip.offsetHeight - 10 : below}px`;
  }

  private click(event: MouseEvent): void {
    const row = this.rowAt(...this.place(event));
    if (row < 0) {
      return;
    }
    this.selected = row;
    this.callbacks.chosen(row);
    // On a row that already fills the width, it zooms back out.
    if (row === this.focus) {
      this.out();
    } else {
      this.zoom(row);
    }
  }

  private wheel(event: WheelEvent): void {
    // The wheel alone is for the page.
    if (!event.ctrlKey && !event.metaKey && !event.altKey) {
      return;
    }
    event.preventDefault();
    const [x] = this.place(event);
    this.zoomBy(Math.exp(event.deltaY * 0.003), x / (this.scroller.clientWidth || 1));
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) {
      return;
    }
    const { tree, selected } = this;
    const above = tree.parent[selected];
    const siblings = above >= 0 ? tree.children.subarray(tree.begin[above], tree.begin[above + 1]) : [selected];
    const at = Array.prototype.indexOf.call(siblings, selected);
    switch (event.key) {
      case "ArrowUp":
        this.select(Math.max(above, 0));
        break;
      case "ArrowDown":
        this.select(tree.begin[selected] < tree.begin[selected + 1] ? tree.children[tree.begin[selected]] : selected);
        break;
      case "ArrowLeft":
        this.select(siblings[Math.max(at - 1, 0)]);
        break;
      case "ArrowRight":
        this.select(siblings[Math.min(at + 1, siblings.length - 1)]);
        break;
      case "Enter":
      case " ":
        this.zoom(selected);
        break;
      case "Escape":
      case "Backspace":
        this.out();
        this.select(this.focus);
        break;
      case "Home":
        this.zoom(0);
        this.select(0);
        break;
      case "+":
      case "=":
        this.zoomBy(1 / 1.5, this.middleOf(selected));
        break;
      case "-":
        this.zoomBy(1.5, this.middleOf(selected));
        break;
      default:
        return;
    }
    event.preventDefault();
  }

  private middleOf(row: number): number {
    const middle = this.tree.left[row] + this.tree.width[row] / 2;
    return Math.min(Math.max((middle - this.from) / (this.to - this.from), 0), 1);
  }
}

/** Whether the page is dark now. */
export function isDark(): boolean {
  const set = document.documentElement.dataset.theme;
  return set ? set === "dark" : window.matchMedia("(prefers-color-scheme: dark)").matches;
}
