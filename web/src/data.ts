/** The data of a page, as it was packed: `types.ts` declares it. */
import { short } from "./number";
import type { Page, PagePart } from "./types";

/** The schema that this page reads. */
export const SCHEMA = 5;

export type * from "./types";

/** A part of a section, by its kind. */
export type PartOf<Kind extends PagePart["kind"]> = Extract<PagePart, { kind: Kind }>;

/** All parts of a kind. */
export function partsOf<Kind extends PagePart["kind"]>(page: Page, kind: Kind): PartOf<Kind>[] {
  return page.sections.flatMap((section) => section.parts).filter((part): part is PartOf<Kind> => part.kind === kind);
}

/** The only part of a kind. */
export function partOf<Kind extends PagePart["kind"]>(page: Page, kind: Kind): PartOf<Kind> | undefined {
  return partsOf(page, kind)[0];
}

/** Of a histogram: bucket and count. */
export type Bucket = [number, number];

/** The page's own data: base64 of gzip of JSON. */
export async function decode(base64: string): Promise<Page> {
  if (typeof DecompressionStream === "undefined") {
    throw new Error("this browser is too old to unpack the data: it needs Chrome 80, Firefox 113 or Safari 16.4");
  }
  const binary = atob(base64.trim());
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) {
    bytes[i] = binary.charCodeAt(i);
  }
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return check(JSON.parse(await new Response(unpacked).text()) as Page);
}

/** The most letters of a word in sentences and captions. */
const WORD_LETTERS = 60;

/**
 * Check that the data have the schema, and that trees only refer to existing
 * functions; and bound words, which are used in many places.
 */
export function check(page: Page): Page {
  if (page.schema !== SCHEMA) {
    throw new Error(`the data are of schema ${page.schema}, and the page reads ${SCHEMA}`);
  }
  page.unit = short(page.unit, WORD_LETTERS);
  for (const f of page.functions) {
    f.layer = short(f.layer, WORD_LETTERS);
  }
  for (const group of page.classes) {
    group.class = short(group.class, WORD_LETTERS);
    group.per = short(group.per, WORD_LETTERS);
    // Where nobody counted packets: seconds.
    group.packets = group.count ?? group.packets;
    for (const f of [...(group.times?.functions ?? []), ...(group.rows ?? [])]) {
      if (!(f.function >= 0 && f.function < page.functions.length)) {
        throw new Error(`a function of ${group.class} is none of the page's`);
      }
    }
    for (const tree of group.contexts) {
      const rows = tree.parent.length;
      const columns = [tree.function, tree.calls, tree.self_insns];
      if (page.diff) {
        columns.push(tree.calls_before, tree.self_insns_before);
      }
      if (columns.some((column) => column.length !== rows)) {
        throw new Error(`the columns of ${group.class}, ${tree.context} are not of one length`);
      }
      for (let row = 0; row < rows; row++) {
        const parent = tree.parent[row];
        const index = tree.function[row];
        if (!(parent >= -1 && parent < row) || !(index >= 0 && index < page.functions.length)) {
          throw new Error(`row ${row} of ${group.class}, ${tree.context} refers to what there is not`);
        }
      }
    }
  }
  for (const part of partsOf(page, "threads").flatMap((threads) => threads.processes).flatMap((process) => process.threads).flatMap((thread) => thread.parts)) {
    const tree = page.classes[part.class]?.contexts[part.context];
    const all = tree !== undefined && part.row.length === part.calls.length && part.row.length === part.self_insns.length;
    if (!all || part.row.some((row) => !(row >= 0 && row < tree.parent.length))) {
      throw new Error("a thread's samples refer to what there is not");
    }
  }
  return page;
}
