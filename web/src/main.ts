/** Puts the page together. */
import "./style.css";
import { decode, type Page } from "./data";
import { detail, type Detail } from "./detail";
import { choice, field, h } from "./dom";
import { overview, summary } from "./head";
import { short } from "./number";
import { glances, titleOf } from "./tree";

const PARTS: [string, string][] = [
  ["overview", "Overview"], ["classes", "Classes"], ["layers", "Layers"], ["bars", "Shares"],
  ["frames", "Contexts"], ["graph", "Call graph"], ["functions", "Functions"],
];

/** Arms and classes that the first screen has room for. */
const FEW = 12;

/** The class that the address asks for (`#class=3`), or the first. */
function asked(count: number): number {
  const found = /(?:^#|&)class=(\d+)/.exec(location.hash);
  const index = found ? Number(found[1]) - 1 : 0;
  return index >= 0 && index < count ? index : 0;
}

function themeButton(redraw: () => void): HTMLElement {
  const root = document.documentElement;
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const dark = (): boolean => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const button = h("button", {
    type: "button",
    class: "theme",
    onclick: () => {
      root.dataset.theme = dark() ? "light" : "dark";
      name();
      redraw();
    },
  });
  const name = (): void => {
    button.textContent = dark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Change to ${dark() ? "light" : "dark"} colours`);
  };
  system.addEventListener("change", () => {
    name();
    redraw();
  });
  name();
  return button;
}

function build(page: Page): void {
  document.title = short(page.title || "Netplumb", 200);
  const all = glances(page);
  let current = asked(all.length);
  let shown: Detail | null = null;
  const holder = h("div", { id: "class" });
  const choose = choice(
    all.map((g): [string, string] => [String(g.index), short(titleOf(g.group), 80)]),
    String(current),
    (value) => open(Number(value), false),
  );
  const draw = (): void => {
    // Left out of a page with nothing in it.
    if (all.length === 0) {
      holder.replaceChildren(h("p", {}, "Nothing was measured."));
      return;
    }
    shown = detail(page, all[current]);
    holder.replaceChildren(shown.element);
  };
  const table = all.length > 0 ? summary(page, all, () => current, (index) => open(index, true)) : null;

  function open(index: number, go: boolean): void {
    current = index;
    choose.value = String(index);
    history.replaceState(null, "", `#class=${index + 1}`);
    draw();
    table?.querySelectorAll("tr[aria-current]").forEach((row) => row.removeAttribute("aria-current"));
    if (go) {
      document.getElementById("class-title")?.scrollIntoView({ block: "start" });
      document.getElementById("class-title")?.focus({ preventScroll: true });
    }
  }

  const bar = h(
    "header",
    { class: "bar" },
    h("span", { class: "brand" }, "netplumb"),
    h("nav", { "aria-label": "Parts" }, ...PARTS.map(([id, title]) => h("a", { href: `#${id}`, onclick: (event: Event) => jump(event, id) }, title))),
    h("span", { class: "spring" }),
    all.length > 1 ? field("Class", choose) : null,
    themeButton(draw),
  );
  // A short table is for the first screen, where no claims are in its place.
  const beside = page.claims.length === 0 && all.length <= FEW;
  const main = h("main", { id: "main" }, overview(page, beside ? table : null), beside ? null : table, holder);
  const app = document.getElementById("app") as HTMLElement;
  app.replaceChildren(bar, main, h("footer", {}, "Made by Netplumb."));
  draw();
  window.addEventListener("beforeprint", () => shown?.icicle.print(true));
  window.addEventListener("afterprint", () => shown?.icicle.print(false));
  window.addEventListener("hashchange", () => {
    const index = asked(all.length);
    if (location.hash.includes("class=") && index !== current) {
      open(index, false);
    }
  });
}

/** Without losing from the address which class it is. */
function jump(event: Event, id: string): void {
  event.preventDefault();
  document.getElementById(id)?.scrollIntoView({ block: "start" });
}

async function start(): Promise<void> {
  const data = document.getElementById("plumb-data");
  try {
    const page = await decode(data?.textContent ?? "");
    // What is unpacked need not be kept packed.
    data?.remove();
    build(page);
    document.documentElement.dataset.ready = String(Math.round(performance.now()));
  } catch (error) {
    document.documentElement.dataset.ready = "failed";
    document.getElementById("app")?.replaceChildren(
      h("main", { id: "main", class: "failed", role: "alert" }, h("h1", {}, "This page can't be shown"), h("p", {}, String(error instanceof Error ? error.message : error))),
    );
  }
}

void start();
