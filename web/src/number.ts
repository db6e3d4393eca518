/** Numbers as people read them, as crates/report/src/number.rs has them. */

const MINUS = "\u2212";

/** With a comma for each thousand. */
export function thousands(n: number): string {
  return Math.round(n).toString().replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}

/** So many of them. */
export function plural(n: number, one: string): string {
  return `${thousands(n)} ${one}${n === 1 ? "" : "s"}`;
}

/** A cost for each packet: whole where it is, else to one decimal, or to two below ten. */
export function cost(value: number): string {
  if (!Number.isFinite(value)) {
    return "-";
  }
  if (value < 0) {
    return MINUS + cost(-value);
  }
  if (Number.isInteger(value)) {
    return thousands(value);
  }
  if (value < 10) {
    return value.toFixed(2);
  }
  const tenths = Math.round(value * 10);
  return `${thousands(Math.floor(tenths / 10))}.${tenths % 10}`;
}

/** A change, with its sign. */
export function change(value: number): string {
  return value > 0 ? `+${cost(value)}` : cost(value);
}

/** A part of a whole, in percent; of nothing, none. */
export function share(part: number, whole: number): number {
  return whole > 0 ? (part * 100) / whole : 0;
}

/** In percent, to one decimal. */
export function percent(value: number): string {
  return Number.isFinite(value) ? `${value.toFixed(1).replace("-", MINUS)}%` : "-";
}

/** A change in percent of what was before, with its sign; of nothing, "new". */
export function changePercent(before: number, after: number): string {
  if (before === after) {
    return "0.0%";
  }
  if (before === 0) {
    return "new";
  }
  if (after === 0) {
    return "gone";
  }
  const value = ((after - before) * 100) / before;
  return value > 0 ? `+${percent(value)}` : percent(value);
}

/** The end of a path, which tells it from others: from a folder on, if there is room. */
export function pathEnd(path: string, limit: number): string {
  const all = short(path, 4096);
  const letters = [...all];
  if (letters.length <= limit) {
    return all;
  }
  const end = letters.slice(letters.length - limit + 1).join("");
  const folder = end.indexOf("/");
  return `\u2026${folder > 0 ? end.slice(folder) : end}`;
}

/** At most `limit` characters, on one line, with nothing in it that is no letter. */
export function short(text: string, limit: number): string {
  let out = "";
  let count = 0;
  for (const letter of text) {
    if (++count > limit) {
      return `${out.slice(0, -1)}\u2026`;
    }
    // Control characters, and those that turn the direction of the text around.
    out += /[\p{Cc}\p{Cf}\u2028\u2029]/u.test(letter) ? "\ufffd" : letter;
  }
  return out;
}
