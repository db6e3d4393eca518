/**
 * Elements. Text is inserted as text: nothing in this page is ever parsed as HTML,
 * which its policy (require-trusted-types-for) enforces.
 */

export type Child = Node | string | null | undefined | false;
type Value = string | number | boolean | null | undefined | ((event: never) => void);

const SVG = "http://www.w3.org/2000/svg";

function fill(element: Element, properties: Record<string, Value>, children: Child[]): void {
  for (const [key, value] of Object.entries(properties)) {
    if (typeof value === "function") {
      element.addEventListener(key.slice(2), value as EventListener);
    } else if (key.startsWith("--")) {
      (element as HTMLElement).style.setProperty(key, String(value));
    } else if (value === true) {
      element.setAttribute(key, "");
    } else if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(key, String(value));
    }
  }
  for (const child of children) {
    if (child !== null && child !== undefined && child !== false) {
      element.append(child);
    }
  }
}

/** An element of HTML: `on...` are listeners, `--...` are set as its style. */
export function h<K extends keyof HTMLElementTagNameMap>(
  name: K,
  properties: Record<string, Value> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(name);
  fill(element, properties, children);
  return element;
}

/** An element of SVG. */
export function s<K extends keyof SVGElementTagNameMap>(
  name: K,
  properties: Record<string, Value> = {},
  ...children: Child[]
): SVGElementTagNameMap[K] {
  const element = document.createElementNS(SVG, name);
  fill(element, properties, children);
  return element;
}

/** A section with its heading, for navigation between the page's parts. */
export function section(id: string, title: string, ...children: Child[]): HTMLElement {
  return h("section", { id, "aria-labelledby": `${id}-title` }, h("h2", { id: `${id}-title` }, title), ...children);
}

/**
 * A part that is folded, and made only when it is unfolded: by a click, a key, or
 * [`unfoldAll`] for paper.
 */
export function fold(summary: Child[], make: () => Child[], properties: Record<string, Value> = {}): HTMLDetailsElement {
  const folded = h("details", properties, h("summary", {}, ...summary));
  let made = false;
  const fill = (): void => {
    if (!made) {
      made = true;
      folded.append(...make().filter((child): child is Node | string => Boolean(child)));
    }
  };
  folded.addEventListener("toggle", () => folded.open && fill());
  folded.addEventListener("unfold", fill);
  if (folded.open) {
    fill();
  }
  return folded;
}

/** Unfold all folded parts, except ones as long as a tree; returns the unfolded ones. */
export function unfoldAll(within: Element): HTMLDetailsElement[] {
  const unfolded: HTMLDetailsElement[] = [];
  for (;;) {
    const folded = [...within.querySelectorAll<HTMLDetailsElement>("details:not([open])")].filter((one) => !one.closest(".as-list"));
    if (folded.length === 0) {
      return unfolded;
    }
    for (const one of folded) {
      // Its own event comes too late.
      one.dispatchEvent(new Event("unfold"));
      one.open = true;
      unfolded.push(one);
    }
  }
}

/** Mark the edges beyond which a scrolled element continues, for the style sheet. */
export function cued<E extends HTMLElement>(element: E): E {
  const look = (): void => {
    const right = element.scrollWidth - element.clientWidth - element.scrollLeft > 1;
    const sides = [element.scrollLeft > 1 ? "left" : "", right ? "right" : ""].join(" ").trim();
    if (sides === "") {
      delete element.dataset.beyond;
    } else {
      element.dataset.beyond = sides;
    }
  };
  element.addEventListener("scroll", look, { passive: true });
  const observer = new ResizeObserver(look);
  [element, ...element.children].forEach((one) => observer.observe(one));
  new MutationObserver(look).observe(element, { childList: true });
  return element;
}

/** A labelled control. */
export function field(label: string, control: HTMLElement): HTMLElement {
  return h("label", { class: "field" }, h("span", {}, label), control);
}

/** A chooser. */
export function choice(options: [string, string][], chosen: string, pick: (value: string) => void): HTMLSelectElement {
  const select = h("select", { onchange: () => pick(select.value) });
  for (const [value, text] of options) {
    select.append(h("option", { value, selected: value === chosen }, text));
  }
  return select;
}

/** Copy to the clipboard; where a browser has no such API for files, by the old command. */
export async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = h("textarea", { class: "offscreen", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}
