/** The state of the page in its address (`#class=2&zoom=17&search=copy`): a link leads to the same view. */

/** Keys of the address. */
export type Key = "view" | "class" | "of" | "zoom" | "search" | "frame" | "callers";

/** The values in it, without missing ones. */
export function said(key: Key): string | null {
  return new URLSearchParams(location.hash.slice(1)).get(key);
}

/** Its number, from 1 on, as an index below `count`; else the first. */
export function index(key: Key, count: number): number {
  const at = Number(said(key) ?? 1) - 1;
  return Number.isInteger(at) && at >= 0 && at < count ? at : 0;
}

/** Set values, without a step in the history; `null` removes a key. */
export function say(changes: Partial<Record<Key, string | null>>): void {
  const all = new URLSearchParams(location.hash.slice(1));
  for (const [key, value] of Object.entries(changes)) {
    if (value === null || value === "") {
      all.delete(key);
    } else if (value !== undefined) {
      all.set(key, value);
    }
  }
  history.replaceState(null, "", `#${all.toString()}`);
}
