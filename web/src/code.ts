/** Source lines and instructions of the functions that cost most: how often each was executed. */
import type { PageCode } from "./data";
import { choice, field, h } from "./dom";
import { short } from "./number";
import { plain, wordsOf } from "./table";

const MOST_LINES = 20;
const MOST_INSNS = 30;

/** A chooser of functions, and the tables of the chosen one. */
export function codeFigure(of: PageCode[]): HTMLElement[] {
  const arms = new Set(of.map((code) => code.arm));
  const holder = h("div", {});
  const draw = (index: number): void => {
    const { lines, instructions } = of[index];
    holder.replaceChildren(
      ...(lines ? [plain(lines, { limit: MOST_LINES, filter: wordsOf })] : []),
      plain(instructions, { limit: MOST_INSNS, filter: wordsOf }),
    );
  };
  const choose = choice(
    of.map((code, index): [string, string] => [String(index), short(`${arms.size > 1 ? `${code.arm}: ` : ""}${code.name}, ${code.each}`, 120)]),
    "0",
    (value) => draw(Number(value)),
  );
  draw(0);
  return [h("div", { class: "tools" }, field("Function", choose)), holder];
}
