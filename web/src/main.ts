/** Puts the page together. */
import "./style.css";
import "./bench.css";
import { index, said, say } from "./address";
import { answer, chartsOf, isWaterfall } from "./answer";
import { chartFigure } from "./chart";
import { summary } from "./classes";
import { decode, type Page } from "./data";
import { detail, type Detail } from "./detail";
import { choice, cued, field, h, section, unfoldAll } from "./dom";
import { folds } from "./facts";
import { claims, overview } from "./head";
import { short } from "./number";
import { sectionOf } from "./sections";
import { looks } from "./series";
import { chooser, isProfile, only } from "./threads";
import { glanceOf, glances, titleOf } from "./tree";

/** What every page may have, beside its own sections. */
const PARTS: [string, string][] = [
  ["overview", "Overview"], ["figures", "Figures"], ["claims", "Claims"], ["measured", "Measured"], ["classes", "Classes"], ["stages", "Stages"], ["verdicts", "Changes"], ["layers", "Layers"],
  ["bars", "Shares"], ["frames", "Contexts"], ["graph", "Call graph"], ["calltext", "Call graph as text"], ["functions", "Functions"],
];

/** The shown page of a file, and the way to show another. */
interface Views {
  names: string[];
  current: number;
  choose: (index: number) => void;
  /** Aborted when another one is shown. */
  shown: AbortSignal;
}

function themeButton(redraw: () => void, shown: AbortSignal): HTMLElement {
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
  system.addEventListener(
    "change",
    () => {
      name();
      redraw();
    },
    { signal: shown },
  );
  name();
  return button;
}

function build(page: Page, views: Views): void {
  document.title = short(page.title || "Netplumb", 200);
  const all = glances(page);
  const drawn = isWaterfall(page, all);
  const profile = isProfile(page);
  let current = index("class", all.length);
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
      holder.replaceChildren(page.sections.length > 0 ? "" : h("p", {}, "Nothing was measured."));
    } else {
      const key = said("of") ?? "";
      const select = profile ? chooser(page, key, (of) => {
        // Rows cover all threads; the zoomed row may have no samples of this one.
        say({ of, zoom: null, frame: null, callers: null });
        draw();
      }) : null;
      const glance = profile ? glanceOf(page, only(page, current, key), current) : all[current];
      shown = detail(page, glance, drawn && !profile, select ? field("Process or thread", select) : null);
      holder.replaceChildren(shown.element);
    }
    if (all.length === 0 && page.sections.length === 0) {
      return;
    }
    // In the order in which they are on the page.
    const place = (id: string): number => document.getElementById(id)?.offsetTop ?? Number.POSITIVE_INFINITY;
    for (const [id, link] of links) {
      link.hidden = document.getElementById(id) === null;
    }
    nav.replaceChildren(...[...links].sort(([a], [b]) => place(a) - place(b) || 0).map(([, link]) => link));
  };
  const own = page.sections.map(({ id, title }): [string, string] => [id, short(title, 60)]);
  const links = [...PARTS, ...own].map(([id, title]): [string, HTMLElement] => [id, h("a", { href: `#${id}`, onclick: (event: Event) => jump(event, id) }, title)]);
  const nav = cued(h("nav", { "aria-label": "Parts" }));
  // All classes in one table, if there is anything to say of them together.
  const table = page.summary && all.length > 0 ? summary(page, page.summary, all, () => current, (index) => open(index, true)) : null;

  function open(at: number, go: boolean): void {
    current = at;
    choose.value = String(at);
    say({ class: String(at + 1), of: null, zoom: null, search: null, frame: null, callers: null });
    draw();
    markCurrent();
    if (go) {
      document.getElementById("class-title")?.scrollIntoView({ block: "start" });
      document.getElementById("class-title")?.focus({ preventScroll: true });
    }
  }

  function markCurrent(): void {
    table?.querySelectorAll("tr[aria-current]").forEach((row) => row.removeAttribute("aria-current"));
  }

  const view = choice(
    views.names.map((name, index): [string, string] => [String(index), short(name, 80)]),
    String(views.current),
    (value) => views.choose(Number(value)),
  );
  const bar = h(
    "header",
    { class: "bar" },
    h("span", { class: "brand" }, "netplumb"),
    nav,
    h("span", { class: "spring" }),
    views.names.length > 1 ? field("View", view) : null,
    all.length > 1 ? field("Class", choose) : null,
    themeButton(draw, views.shown),
  );
  // Threads of a profile are beside its tree.
  const sections = (leads: boolean): HTMLElement[] =>
    page.sections.filter((one) => one.leads === leads && !(profile && one.id === "threads")).map((one) => sectionOf(one, page.figures.length === 0));
  const rest = page.figures.slice(chartsOf(page));
  const marks = looks(page.figures);
  const main = h(
    "main",
    { id: "main" },
    overview(page, profile ? null : answer(page, all, (at) => open(at, true))),
    rest.length > 0 ? section("figures", "Figures", h("div", { class: "charts" }, ...rest.map((chart) => chartFigure(chart, marks)))) : null,
    claims(page),
    ...sections(true),
    folds(page),
    profile && all.length === 1 ? null : table,
    holder,
    ...sections(false),
  );
  const app = document.getElementById("app") as HTMLElement;
  app.replaceChildren(bar, main, h("footer", {}, "Made by Netplumb."));
  draw();
  let unfolded: HTMLDetailsElement[] = [];
  const whileShown = { signal: views.shown };
  window.addEventListener(
    "beforeprint",
    () => {
      unfolded = unfoldAll(main);
      shown?.icicle?.print(true);
    },
    whileShown,
  );
  window.addEventListener(
    "afterprint",
    () => {
      unfolded.splice(0).forEach((one) => (one.open = false));
      shown?.icicle?.print(false);
    },
    whileShown,
  );
  window.addEventListener(
    "hashchange",
    () => {
      if (index("view", views.names.length) === views.current) {
        current = index("class", all.length);
        choose.value = String(current);
        draw();
        markCurrent();
      }
    },
    whileShown,
  );
}

/** Jump to a part, keeping the class in the address. */
function jump(event: Event, id: string): void {
  event.preventDefault();
  document.getElementById(id)?.scrollIntoView({ block: "start" });
}

async function start(): Promise<void> {
  const data = document.getElementById("plumb-data");
  // Several pages are separated by white space.
  const packed = (data?.textContent ?? "").trim().split(/\s+/);
  // The packed data are no longer needed.
  data?.remove();
  const root = document.documentElement.dataset;
  let names: string[] = [];
  let current = -1;
  let shown = new AbortController();

  async function show(at: number): Promise<void> {
    try {
      delete root.ready;
      const page = await decode(packed[at]);
      names = page.views.length > 0 ? page.views : names;
      shown.abort();
      shown = new AbortController();
      current = at;
      build(page, { names, current, choose, shown: shown.signal });
      root.ready = String(Math.round(performance.now()));
    } catch (error) {
      root.ready = "failed";
      document.getElementById("app")?.replaceChildren(
        h("main", { id: "main", class: "failed", role: "alert" }, h("h1", {}, "This page can't be shown"), h("p", {}, String(error instanceof Error ? error.message : error))),
      );
    }
  }

  function choose(at: number): void {
    history.replaceState(null, "", `#view=${at + 1}`);
    void show(at);
    window.scrollTo(0, 0);
  }

  // The first one has the names of all.
  const wanted = index("view", packed.length);
  if (wanted > 0) {
    names = (await decode(packed[0]).catch(() => null))?.views ?? [];
  }
  await show(wanted);
  window.addEventListener("hashchange", () => {
    const at = index("view", packed.length);
    if (packed.length > 1 && at !== current) {
      void show(at);
    }
  });
}

void start();
