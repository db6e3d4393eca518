/** Numbers as people read them, as crates/report/src/number.rs has them. */

const MINUS = "\u2212";

/** With a comma for each thousand. */
export function thousands(n: number): string {
  return Math.round(n).toString().replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}

/** A count with its noun. */
export function plural(n: number, one: string): string {
  return `${thousands(n)} ${one}${n === 1 ? "" : "s"}`;
}

/** The unit of costs in words: percentages are of samples, all others per packet, run or second. */
export function unitOf(unit: string, per: string): string {
  return unit === "percent" ? "percent of samples" : `${unit} per ${per}`;
}

/** A cost per packet: without decimals if it is whole, else with one, or two below ten. */
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

/** A time as crates/report/src/times/number.rs has it: nanoseconds, then 12.3us. */
export function ns(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) {
    return "-";
  }
  const sign = value < 0 ? MINUS : "";
  const size = Math.abs(value);
  const scaled = (unit: number, name: string): string => {
    const of = size / unit;
    return `${sign}${of < 99.95 ? of.toFixed(1) : thousands(of)}\u202f${name}`;
  };
  if (size < 9.95) {
    const text = size.toFixed(1).replace(/\.0$/, "");
    return text === "0" ? "0" : sign + text;
  }
  if (size < 9999.5) {
    return sign + thousands(size);
  }
  return size < 9_999_500 ? scaled(1e3, "us") : size < 9_999_500_000 ? scaled(1e6, "ms") : scaled(1e9, "s");
}

/** The same with its unit, whatever its size: for a sentence. */
export function nsUnit(value: number | null | undefined): string {
  const text = ns(value);
  return text === "-" || text === "0" || text.endsWith("s") ? text : `${text}\u202fns`;
}

/** The format of a cost of a unit: with the unit, where figures of several sizes have different ones. */
export function costIn(unit: string): (value: number) => string {
  return unit === "ns" ? nsUnit : unit === "percent" ? (value) => `${cost(value)}%` : cost;
}

/** A ratio as a change: +12.3%. */
export function ratioPercent(ratio: number): string {
  const change = (ratio - 1) * 100;
  return change > 0 ? `+${percent(change)}` : percent(change);
}

/** A change, with its sign. */
export function change(value: number, show: (value: number) => string = cost): string {
  return value > 0 ? `+${show(value)}` : show(value);
}

/** A part of a whole, in percent; 0 if the whole is 0. */
export function share(part: number, whole: number): number {
  return whole > 0 ? (part * 100) / whole : 0;
}

/** In percent, to one decimal. */
export function percent(value: number): string {
  return Number.isFinite(value) ? `${value.toFixed(1).replace("-", MINUS)}%` : "-";
}

/** A change in percent of the value before, with its sign; "new" if that was 0. */
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

/** The distinctive end of a path: from a folder on, if there is room. */
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

/** At most `limit` characters, on one line, without active characters. */
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
