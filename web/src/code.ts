/** Source lines and instructions of the functions that cost most: how often each was executed. */
import type { PageCode } from "./data";
import { choice, field, h, section } from "./dom";
import { short } from "./number";
import { plain } from "./table";

const MOST_LINES = 20;
const MOST_INSNS = 30;

/** The section; nothing where instructions were not counted. */
export function codePart(of: PageCode[]): HTMLElement | null {
  if (of.length === 0) {
    return null;
  }
  const arms = new Set(of.map((code) => code.arm));
  const holder = h("div", {});
  const draw = (index: number): void => {
    const { lines, instructions } = of[index];
    holder.replaceChildren(
      ...(lines ? [plain(lines, { limit: MOST_LINES, filter: (row) => row.map((cell) => cell.text).join(" ") })] : []),
      plain(instructions, { limit: MOST_INSNS, filter: (row) => row.map((cell) => cell.text).join(" ") }),
    );
  };
  const choose = choice(
    of.map((code, index): [string, string] => [String(index), short(`${arms.size > 1 ? `${code.arm}: ` : ""}${code.name}, ${code.each}`, 120)]),
    "0",
    (value) => draw(Number(value)),
  );
  draw(0);
  return section("code", "Source and instructions", h("div", { class: "tools" }, field("Function", choose)), holder);
}
