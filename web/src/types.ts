/** The data of a page: made of crates/report/src/page.rs, by its test in types.rs. */

/**
 * One fact of the environment.
 */
export type Fact = { 
/**
 * Dotted key.
 */
key: string, 
/**
 * Its value; of a comparison, after.
 */
value: string, 
/**
 * The value before, if it differs.
 */
before: string | null, };

/**
 * A note of a footer.
 */
export type Note = { 
/**
 * The subject, in a word.
 */
topic: string, 
/**
 * The note itself, without the topic.
 */
text: string, 
/**
 * Whether it reports that something is missing or wrong.
 */
warning?: boolean, };

/**
 * Everything on a page.
 */
export type Page = { 
/**
 * [`SCHEMA`].
 */
schema: number, 
/**
 * The names of all pages, in the first of several in one file.
 */
views: Array<string>, 
/**
 * Whether there are two sides, before and after; if not, `after` is all.
 */
diff: boolean, 
/**
 * The heading of the page.
 */
title: string, 
/**
 * The question that was asked; may be empty.
 */
question: string, 
/**
 * The results in sentences: the first thing to read.
 */
headline: Array<string>, 
/**
 * What must be known before the figures are believed: differences of kernels,
 * clocks or machines, a run cut short.
 */
warnings: Array<string>, 
/**
 * The unit of cost: "instructions".
 */
unit: string, 
/**
 * Where and how it was measured.
 */
facts: Array<Fact>, 
/**
 * The trust footer.
 */
trust: Array<Note>, 
/**
 * Claims and their verdicts.
 */
claims: Array<PageClaim>, 
/**
 * The experiment's main figures, drawn before all else.
 */
figures: Array<PageChart>, 
/**
 * Every function that a tree names, by index.
 */
functions: Array<PageFunction>, 
/**
 * A line for each class, in their order; none where their figures can't be compared.
 */
summary: PageTable | null, 
/**
 * Each arm and class by itself.
 */
classes: Array<PageClass>, 
/**
 * What else was measured.
 */
sections: Array<PageSection>, };

/**
 * An arm of a bench, as a bar and a row.
 */
export type PageArm = { 
/**
 * The arm's name.
 */
name: string, 
/**
 * Whether it has a rate.
 */
state: PageArmState, 
/**
 * Handled packets per second.
 */
pps: number | null, 
/**
 * The lower end of its interval.
 */
low: number | null, 
/**
 * The upper end.
 */
high: number | null, 
/**
 * The share of lost packets; 0 without losses.
 */
lost: number, 
/**
 * The text beside its bar: a loss, a doubt, why there is none. May be empty.
 */
mark: string, 
/**
 * By column.
 */
cells: Array<PageCell>, };

/**
 * The outcome of an arm.
 */
export type PageArmState = "measured" | "invalid" | "absent";

/**
 * An axis of a chart, with its scale.
 */
export type PageAxis = { 
/**
 * The knob or quantity: "rate".
 */
label: string, 
/**
 * The unit: "packets/s"; may be empty.
 */
unit: string, 
/**
 * Whether it is logarithmic; then values that are not above 0 are only in the table.
 */
log: boolean, 
/**
 * The names of values that are not numbers: 0 is the first.
 */
names: Array<string>, };

/**
 * A call: lines in columns of equal length.
 */
export type PageCall = { 
/**
 * Its number, from 1.
 */
number: number, 
/**
 * The thread, where known, and the context.
 */
whose: string, 
/**
 * The unit of its figures.
 */
unit: string, 
/**
 * The number of lines that are not shown.
 */
left: number, 
/**
 * The number of calls above it.
 */
depth: Array<number>, 
/**
 * The function, with its arguments and what it returned, where these are known.
 */
name: Array<string>, 
/**
 * Its inclusive cost.
 */
total: Array<number>, 
/**
 * Its own part of `total`.
 */
own: Array<number>, 
/**
 * How many equal calls in a row it stands for.
 */
times: Array<number>, 
/**
 * Other facts, in words.
 */
remarks: Array<string>, };

/**
 * A cell, as shown and as sorted.
 */
export type PageCell = { 
/**
 * The text shown.
 */
text: string, 
/**
 * The figure to sort by; none for words, which sort by their text.
 */
value: number | null, 
/**
 * Whether it is marked as wrong.
 */
off?: boolean, };

/**
 * Lines and points over two axes.
 */
export type PageChart = { 
/**
 * The chart's heading.
 */
title: string, 
/**
 * What must be known beside it: how the setting differs from the published
 * one's; may be empty.
 */
note: string, 
/**
 * The varied knob.
 */
x: PageAxis, 
/**
 * The measured quantity.
 */
y: PageAxis, 
/**
 * A series of each, in the order of the legend.
 */
series: Array<PageSeries>, };

/**
 * A claim, judged.
 */
export type PageClaim = { 
/**
 * The claim's statement, as in the experiment file.
 */
says: string, 
/**
 * "holds", "does not hold", "not shown", "answer", "not measured".
 */
verdict: string, 
/**
 * Why.
 */
because: string, };

/**
 * One arm and class.
 */
export type PageClass = { 
/**
 * The arm; of a comparison "before → after".
 */
arm: string, 
/**
 * Protocol and direction ("udp tx").
 */
class: string, 
/**
 * What the costs are divided by ("packet", "run").
 */
per: string, 
/**
 * The class in a sentence.
 */
sentence: string, 
/**
 * Of a comparison: settings that differ and could not act, in words.
 */
could_not_act: Array<string>, 
/**
 * The number of these, after.
 */
packets: number, 
/**
 * The number before.
 */
packets_before: number, 
/**
 * The costs, one tree for each context.
 */
contexts: Array<PageTree>, 
/**
 * Cost by layer.
 */
layers: PageTable | null, 
/**
 * A published figure for it.
 */
published: PagePublished | null, 
/**
 * Of a comparison: cost that went from one function to another.
 */
moves: Array<PageMove>, 
/**
 * The columns of the table of functions.
 */
columns: Array<PageColumn>, 
/**
 * Cells of the table that are not computed from trees.
 */
rows: Array<PageRow>, 
/**
 * The divisor of costs where it is not a whole number: seconds.
 */
count: number | null, 
/**
 * Data beside costs, in a recording of times.
 */
times: PageTimes | null, };

/**
 * The executed code of a function.
 */
export type PageCode = { 
/**
 * The arm's name.
 */
arm: string, 
/**
 * Index of the function.
 */
function: number, 
/**
 * Its name, and its module.
 */
name: string, 
/**
 * Its own cost, in words.
 */
each: string, 
/**
 * One instruction a row.
 */
instructions: PageTable, 
/**
 * One source line a row, where lines are known.
 */
lines: PageTable | null, };

/**
 * A column, as it is declared.
 */
export type PageColumn = { 
/**
 * The key by which the page identifies it; may be empty.
 */
key: string, 
/**
 * The heading of the column.
 */
title: string, 
/**
 * An explanation of the column, in a line.
 */
hint: string, 
/**
 * Its unit; may be empty.
 */
unit: string, 
/**
 * Whether its cells are names, shown as code.
 */
code: boolean, 
/**
 * Whether its cells are words, not figures.
 */
words: boolean, 
/**
 * Whether the page draws it by itself, and rows have no cell of it.
 */
own: boolean, };

/**
 * A quantity before and after: the data drawn beside its row.
 */
export type PageCompared = { 
/**
 * "whole", "stage", "function" or "inclusive": a function with all that it calls.
 */
what: string, 
/**
 * The ratio, and its 95 % interval.
 */
ratio: [number, number, number] | null, 
/**
 * "less", "more" or nothing: which way it differs.
 */
way: string, 
/**
 * Its row of the table, but for what the page draws by itself.
 */
cells: Array<PageCell>, };

/**
 * A part of the cost of a packet.
 */
export type PageCostPart = { 
/**
 * As shown: a layer, or other work.
 */
name: string, 
/**
 * The layer; empty for work outside the path.
 */
layer: string, 
/**
 * By path.
 */
each: Array<number>, };

/**
 * The cost of a packet along paths, in one unit.
 */
export type PageCosts = { 
/**
 * The quantity, and where it was measured.
 */
title: string, 
/**
 * "instructions" or "ns", of each packet.
 */
unit: string, 
/**
 * The paths: each list of figures is in this order.
 */
paths: Array<string>, 
/**
 * Layers of the path, and work outside it.
 */
parts: Array<PageCostPart>, 
/**
 * The same as a table.
 */
layers: PageTable, 
/**
 * Functions of the paths, the most expensive first.
 */
functions: PageTable, };

/**
 * A ledger: packets from hop to hop, and the causes of those dropped.
 */
export type PageFlow = { 
/**
 * The heading, which names the arm.
 */
title: string, 
/**
 * Why it is invalid; empty if it balances.
 */
invalid: string, 
/**
 * The hops, in the order of the path.
 */
hops: Array<PageHop>, };

/**
 * A function, which trees and tables refer to by index.
 */
export type PageFunction = { 
/**
 * Its symbol; of a comparison, after.
 */
name: string, 
/**
 * Module, or the ELF file of a user function.
 */
module: string | null, 
/**
 * Layer, or "(no layer)".
 */
layer: string, 
/**
 * In a comparison: its symbol before, if that differs.
 */
was: string | null, 
/**
 * Where it is defined, as `FILE:LINE`; of a comparison, after.
 */
source: string | null, };

/**
 * Times between events over time.
 */
export type PageHeat = { 
/**
 * The events, from the first to the last.
 */
title: string, 
/**
 * How long a column is.
 */
column_ns: number, 
/**
 * All cells that are not empty.
 */
cells: Array<PageHeatCell>, };

/**
 * How many times of about one length are in a column.
 */
export type PageHeatCell = { 
/**
 * Index of the column, in time.
 */
column: number, 
/**
 * The length: four buckets of a histogram, by the number of the first.
 */
bucket: number, 
/**
 * The number of times.
 */
count: number, };

/**
 * One hop of a ledger.
 */
export type PageHop = { 
/**
 * "generator to tx0".
 */
name: string, 
/**
 * Packets that entered it.
 */
entered: number, 
/**
 * Packets that left it for the next one.
 */
left: number, 
/**
 * Packets dropped here, by cause, the most first.
 */
dropped: Array<[string, number]>, 
/**
 * Unaccounted: entered, but neither left nor dropped; negative where more left than entered.
 */
missing: number, };

/**
 * The packets that an arm's workload sent and received.
 */
export type PageLedger = { 
/**
 * The arm's name.
 */
arm: string, 
/**
 * Packets sent.
 */
offered: number, 
/**
 * Packets received.
 */
delivered: number, 
/**
 * Packets dropped, by cause.
 */
dropped: Array<[string, number]>, 
/**
 * Whether these add up.
 */
closes: boolean, };

/**
 * Cost that left one function and turned up in another.
 */
export type PageMove = { 
/**
 * Index of the function that lost it.
 */
from: number, 
/**
 * Index of the function that has it now.
 */
to: number, 
/**
 * Instructions per packet.
 */
insns_per_packet: number, 
/**
 * Why it is treated as the same cost ("inlined into its caller").
 */
why: string, };

/**
 * A footnote to the table of rates.
 */
export type PageNote = { 
/**
 * The arms that it is about.
 */
arms: Array<string>, 
/**
 * The text of the footnote.
 */
text: string, };

/**
 * A part of a section.
 */
export type PagePart = { "kind": "sentences", 
/**
 * In order.
 */
sentences: Array<string>, } | { "kind": "table" } & PageTable | { "kind": "rates" } & PageRates | { "kind": "charts", 
/**
 * In the order in which they are shown.
 */
charts: Array<PageChart>, } | { "kind": "costs" } & PageCosts | { "kind": "flows", 
/**
 * A picture each.
 */
flows: Array<PageFlow>, } | { "kind": "ledgers", 
/**
 * By arm.
 */
ledgers: Array<PageLedger>, } | { "kind": "heat" } & PageHeat | { "kind": "threads" } & PageThreads | { "kind": "code", 
/**
 * Each function of an arm.
 */
functions: Array<PageCode>, } | { "kind": "traced" } & PageTraced;

/**
 * A point, in the units of the axes.
 */
export type PagePoint = { 
/**
 * Where.
 */
x: number, 
/**
 * How much.
 */
y: number, 
/**
 * The interval's lower end, if there is one.
 */
low: number | null, 
/**
 * And its upper one.
 */
high: number | null, 
/**
 * The text beside it; may be empty. Always shown for published points, for others
 * while they are pointed at.
 */
label: string, };

/**
 * A process that has samples.
 */
export type PageProcess = { 
/**
 * The name of its first thread, else of the largest.
 */
name: string, 
/**
 * Its number; 0 is the idle task.
 */
pid: number, 
/**
 * All of its threads, the largest first.
 */
threads: Array<PageThreadWork>, };

/**
 * A figure that somebody published.
 */
export type PagePublished = { 
/**
 * Where it was published.
 */
figure: string, 
/**
 * The layer that it is about; none for the whole path.
 */
layer: string | null, 
/**
 * The layer's total, microseconds.
 */
total_us: number, 
/**
 * The function with the largest time.
 */
top_function: string, 
/**
 * Its time, microseconds.
 */
top_us: number, };

/**
 * The rates of all arms: bars, and a table of the same.
 */
export type PageRates = { 
/**
 * The heading of the bars.
 */
title: string, 
/**
 * Of the table.
 */
columns: Array<PageColumn>, 
/**
 * Arms without a valid block first, then those that lost packets, the most first,
 * then the others, the fastest first; arms that could not be measured are last.
 */
arms: Array<PageArm>, 
/**
 * Footnotes about some of them.
 */
notes: Array<PageNote>, };

/**
 * The row of a function.
 */
export type PageRow = { 
/**
 * Index of the function.
 */
function: number, 
/**
 * A cell for each column that the page does not draw by itself.
 */
cells: Array<PageCell>, };

/**
 * A section of the page.
 */
export type PageSection = { 
/**
 * Its anchor.
 */
id: string, 
/**
 * Its heading, and its name among the links.
 */
title: string, 
/**
 * Whether it comes before the classes.
 */
leads: boolean, 
/**
 * What is in it, in order.
 */
parts: Array<PagePart>, };

/**
 * Points that belong together. The same name has the same colour in all charts.
 */
export type PageSeries = { 
/**
 * The name in the legend: "xdp".
 */
name: string, 
/**
 * How it is drawn.
 */
kind: PageSeriesKind, 
/**
 * By `x`.
 */
points: Array<PagePoint>, };

/**
 * How a series is drawn.
 */
export type PageSeriesKind = "line" | "points" | "ideal" | "published";

/**
 * A stage of a packet's path, or "total".
 */
export type PageStage = { 
/**
 * The name of the stage, as in the recording.
 */
name: string, 
/**
 * "work", "wait", "unaccounted" or "total".
 */
kind: string, 
/**
 * Its times, for packets that went through it: bucket and count.
 */
buckets: Array<[number, number]>, 
/**
 * Its row of the table, but for what the page draws by itself.
 */
cells: Array<PageCell>, };

/**
 * A table that the page draws as it is.
 */
export type PageTable = { 
/**
 * What it shows.
 */
caption: string, 
/**
 * One for each cell of a row, and those that the page draws by itself.
 */
columns: Array<PageColumn>, 
/**
 * By row, a cell for each column that the page does not draw by itself.
 */
rows: Array<Array<PageCell>>, };

/**
 * A thread over time.
 */
export type PageThreadLine = { 
/**
 * Its name, and its number.
 */
name: string, 
/**
 * The cost that its samples stand for, in each piece.
 */
costs: Array<number>, };

/**
 * A thread's part of a tree: columns of equal length.
 */
export type PageThreadPart = { 
/**
 * Index of the class.
 */
class: number, 
/**
 * Index of the context in the class.
 */
context: number, 
/**
 * Rows of the tree.
 */
row: Array<number>, 
/**
 * Samples of each.
 */
calls: Array<number>, 
/**
 * The cost that these samples stand for.
 */
self_insns: Array<number>, };

/**
 * The work of a thread.
 */
export type PageThreadWork = { 
/**
 * As in `comm`.
 */
name: string, 
/**
 * The kernel's thread ID.
 */
tid: number, 
/**
 * Its parts of the trees in which it has samples.
 */
parts: Array<PageThreadPart>, };

/**
 * Samples by thread, and over time.
 */
export type PageThreads = { 
/**
 * Threads.
 */
table: PageTable, 
/**
 * The length of a piece of time.
 */
piece_ns: number, 
/**
 * The unit of costs.
 */
unit: string, 
/**
 * The largest threads, and all others together.
 */
lines: Array<PageThreadLine>, 
/**
 * The largest processes, with what their threads did, for the page to show one alone.
 */
processes: Array<PageProcess>, };

/**
 * A function that was timed.
 */
export type PageTimedFunction = { 
/**
 * Index of the function.
 */
function: number, 
/**
 * Whether its own time is less than the correction may be off by.
 */
small: boolean, 
/**
 * The mean correction subtracted from each call.
 */
shift_ns: number, 
/**
 * Its calls as read: bucket and count.
 */
buckets: Array<[number, number]>, 
/**
 * Its row of the table, but for what the page draws by itself.
 */
cells: Array<PageCell>, };

/**
 * The times of one arm and class.
 */
export type PageTimes = { 
/**
 * Own time of all functions for each packet, as read.
 */
raw_ns: number, 
/**
 * The same, corrected.
 */
total_ns: number, 
/**
 * The functions that were timed, the largest own time first.
 */
functions: Array<PageTimedFunction>, 
/**
 * The way's stages, in their order; the one of kind "total" is the whole.
 */
stages: Array<PageStage>, 
/**
 * Why the stages are not the whole way; empty if they add up.
 */
open: string, 
/**
 * Of a comparison: its rows.
 */
compared: Array<PageCompared>, 
/**
 * Of a comparison of two instruments: the functions that both saw.
 */
both: PageTable | null, 
/**
 * The columns of a comparison's rows.
 */
columns: Array<PageColumn>, 
/**
 * What a stage's times are of, if not of packets.
 */
each: string | null, 
/**
 * The columns of stages.
 */
stage_columns: Array<PageColumn>, 
/**
 * Notes under the tables.
 */
notes: Array<string>, };

/**
 * Traced calls of a block.
 */
export type PageTraced = { 
/**
 * The calls in sentences.
 */
sentences: Array<string>, 
/**
 * The shown calls.
 */
calls: Array<PageCall>, 
/**
 * The number of kept calls that are not shown.
 */
left: number, };

/**
 * The calling-context tree of one context, in columns of equal length.
 */
export type PageTree = { 
/**
 * Whose time it was ("task", "softirq:NET_RX").
 */
context: string, 
/**
 * Row of the parent, -1 for none; less than the row's own.
 */
parent: Array<number>, 
/**
 * Index of the function.
 */
function: Array<number>, 
/**
 * Times entered, after.
 */
calls: Array<number>, 
/**
 * Instructions of its own, after.
 */
self_insns: Array<number>, 
/**
 * Times entered, before; empty unless this is a comparison.
 */
calls_before: Array<number>, 
/**
 * Instructions of its own, before; empty unless this is a comparison.
 */
self_insns_before: Array<number>, };
