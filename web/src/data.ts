/**
 * The data of a page: the twin of crates/report/src/page.rs, which documents
 * each field.
 */

import { short } from "./number";

/** The schema that this page reads. */
export const SCHEMA = 4;

export interface Page {
  schema: number;
  views?: string[];
  diff: boolean;
  title: string;
  question: string;
  headline: string[];
  warnings: string[];
  unit: string;
  facts: Fact[];
  trust: Note[];
  claims: PageClaim[];
  figures: PageChart[];
  functions: PageFunction[];
  summary?: PageTable | null;
  classes: PageClass[];
  sampled?: PageSection[];
  shares?: PageSection[];
  threads?: PageThreads | null;
  traced?: PageTraced[];
  code?: PageCode[];
  events?: PageTable[];
  events_called?: string;
  heat?: PageHeat | null;
  timed?: PageTimed | null;
  bench?: PageBench | null;
}

/** The executed code of a function. */
export interface PageCode {
  arm: string;
  function: number;
  name: string;
  each: string;
  instructions: PageTable;
  lines?: PageTable | null;
}

/** A table and sentences below it. */
export interface PageSection {
  table: PageTable;
  sentences: string[];
}

/** Traced calls of a block. */
export interface PageTraced {
  sentences: string[];
  calls: PageCall[];
  left: number;
}

/** A call: lines in columns of equal length. */
export interface PageCall {
  number: number;
  whose: string;
  unit: string;
  left: number;
  depth: number[];
  name: string[];
  total: number[];
  own: number[];
  times: number[];
  remarks: string[];
}

/** Times between events over time: cells of columns of time and four buckets of a histogram. */
export interface PageHeat {
  title: string;
  column_ns: number;
  cells: { column: number; bucket: number; count: number }[];
}

/** Samples by thread, and over time. */
export interface PageThreads {
  table: PageTable;
  piece_ns: number;
  unit: string;
  lines: { name: string; costs: number[] }[];
  processes: PageProcess[];
}

/** A process: what its threads did, for one to be shown alone. */
export interface PageProcess {
  name: string;
  pid: number;
  threads: { name: string; tid: number; parts: PageThreadPart[] }[];
}

/** A thread's part of a class's tree: columns of equal length. */
export interface PageThreadPart {
  class: number;
  context: number;
  row: number[];
  calls: number[];
  self_insns: number[];
}

export interface PageBench {
  rates: PageRates;
  latency: PageLatency | null;
  charts: PageChart[];
  flows: PageFlow[];
  costs: PageCosts[];
}

export interface PageRates {
  title: string;
  columns: PageColumn[];
  arms: PageArm[];
  notes: { arms: string[]; text: string }[];
}

/** An arm; they are in the order in which they are shown. */
export interface PageArm {
  name: string;
  state: "measured" | "invalid" | "absent";
  pps: number | null;
  low: number | null;
  high: number | null;
  lost: number;
  mark: string;
  cells: PageCell[];
}

/** A column of a table, as the report declares it. */
export interface PageColumn {
  key?: string;
  title: string;
  hint: string;
  unit?: string;
  /** Whether it is of names: code. */
  code?: boolean;
  /** Whether it is of words, not figures. */
  words?: boolean;
  /** Whether it is drawn here, as by summing up over the tree that is shown; rows have no cell of it then. */
  own?: boolean;
}

export interface PageCell {
  text: string;
  value: number | null;
}

/** A table that is drawn as it is: by row, a cell for each column that is not drawn here. */
export interface PageTable {
  caption: string;
  columns: PageColumn[];
  rows: PageCell[][];
}

/** The row of a function: a cell for each column that is not from the tree. */
export interface PageRow {
  function: number;
  cells: PageCell[];
}

export interface PageLatency {
  table: PageTable;
  note: string;
}

/** A note of the footer: its topic, in a word, and its text. */
export interface Note {
  topic: string;
  text: string;
  /** Whether it reports that something is missing or wrong. */
  warning?: boolean;
}

/** The cost of a packet along paths, in one unit; figures are in the order of the paths. */
export interface PageCosts {
  title: string;
  unit: string;
  paths: string[];
  parts: { name: string; layer: string; each: number[] }[];
  layers: PageTable;
  functions: PageTable;
}

export interface PageChart {
  title: string;
  note: string;
  x: PageAxis;
  y: PageAxis;
  series: PageSeries[];
}

export interface PageAxis {
  label: string;
  unit: string;
  log: boolean;
  /** Of values that are words: 0 is the first. */
  names?: string[];
}

export interface PageSeries {
  name: string;
  kind: "line" | "points" | "ideal" | "published";
  points: PagePoint[];
}

export interface PagePoint {
  x: number;
  y: number;
  low: number | null;
  high: number | null;
  label: string;
}

export interface PageFlow {
  title: string;
  invalid: string;
  hops: PageHop[];
}

export interface PageHop {
  name: string;
  entered: number;
  left: number;
  dropped: [string, number][];
  missing: number;
}

export interface Fact {
  key: string;
  value: string;
  before: string | null;
}

export interface PageClaim {
  says: string;
  verdict: string;
  because: string;
}

export interface PageFunction {
  name: string;
  module: string | null;
  layer: string;
  was: string | null;
  source: string | null;
}

export interface PageClass {
  arm: string;
  class: string;
  per: string;
  sentence: string;
  could_not_act?: string[];
  packets: number;
  packets_before: number;
  contexts: PageTree[];
  layers?: PageTable | null;
  published: PagePublished | null;
  moves: PageMove[];
  columns?: PageColumn[];
  rows?: PageRow[];
  count?: number | null;
  times?: PageTimes | null;
}

export interface PageTimed {
  packets: PageLedger[];
  seen: PageTable;
  drops: PageTable;
  calibration: PageTable;
  losses: PageTable;
  not_measured: PageTable;
}

export interface PageLedger {
  arm: string;
  offered: number;
  delivered: number;
  dropped: [string, number][];
  closes: boolean;
}

export interface PageTimes {
  raw_ns: number;
  total_ns: number;
  functions: PageTimedFunction[];
  stages: PageStage[];
  open: string;
  compared: PageCompared[];
  both?: PageTable | null;
  /** Of what is compared. */
  columns?: PageColumn[];
  stage_columns?: PageColumn[];
  /** The unit that a time is for, if not a packet. */
  each?: string;
  notes: string[];
}

/** Of a histogram: bucket and count. */
export type Bucket = [number, number];

export interface PageTimedFunction {
  function: number;
  small: boolean;
  shift_ns: number;
  buckets: Bucket[];
  cells: PageCell[];
}

export interface PageStage {
  name: string;
  kind: string;
  buckets: Bucket[];
  cells: PageCell[];
}

export interface PageCompared {
  what: string;
  ratio: [number, number, number] | null;
  way: string;
  cells: PageCell[];
}

export interface PageTree {
  context: string;
  parent: number[];
  function: number[];
  calls: number[];
  self_insns: number[];
  calls_before: number[];
  self_insns_before: number[];
}

export interface PagePublished {
  figure: string;
  layer: string | null;
  total_us: number;
  top_function: string;
  top_us: number;
}

export interface PageMove {
  from: number;
  to: number;
  insns_per_packet: number;
  why: string;
}

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
  // Left out where there is none.
  page.figures ??= [];
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
  for (const part of (page.threads?.processes ?? []).flatMap((process) => process.threads).flatMap((thread) => thread.parts)) {
    const tree = page.classes[part.class]?.contexts[part.context];
    const all = tree !== undefined && part.row.length === part.calls.length && part.row.length === part.self_insns.length;
    if (!all || part.row.some((row) => !(row >= 0 && row < tree.parent.length))) {
      throw new Error("a thread's samples refer to what there is not");
    }
  }
  return page;
}
