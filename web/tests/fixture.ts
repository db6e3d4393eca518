/** The pages that Rust wrote: what it writes is what is read here. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { check, type Page } from "../src/data";

const folder = process.env.PLUMB_TESTDATA ?? "";

/** The bytes of a golden of crates/report. */
export function bytes(name: string): Buffer {
  return readFileSync(join(folder, name));
}

/** A page of crates/report/testdata. */
export function fixture(name: string): Page {
  return check(JSON.parse(bytes(name).toString("utf8")) as Page);
}
