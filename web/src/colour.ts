/**
 * Colours. A layer has a hue: the layers of the path go round the wheel in the
 * order in which a packet passes them, shared ones are paler. A change is blue
 * where it is less and orange where it is more, which the colour-blind can
 * distinguish too.
 */

/** Layers in the order of the path, from the application down. */
export const PATH = ["application", "syscall", "filesystem", "block", "socket", "transport", "network", "netfilter", "link", "driver", "bus"];
const PATH_HUES = [350, 325, 30, 5, 295, 262, 225, 190, 155, 120, 90];
/** Layers that the whole path shares. */
export const SHARED = [
  "memory", "copy", "locking", "scheduling", "timer", "interrupt",
  "security", "bpf", "tracing", "mitigation", "library",
];
const SHARED_HUES = [60, 35, 10, 335, 95, 45, 130, 175, 205, 20, 275];

export interface Tone {
  hue: number;
  chroma: number;
}

/** The hue and strength of a layer. */
export function tone(layer: string): Tone {
  const path = PATH.indexOf(layer);
  if (path >= 0) {
    return { hue: PATH_HUES[path], chroma: 0.1 };
  }
  const shared = SHARED.indexOf(layer);
  if (shared >= 0) {
    return { hue: SHARED_HUES[shared], chroma: 0.055 };
  }
  if (layer === "" || layer.startsWith("(")) {
    return { hue: 0, chroma: 0 };
  }
  let hash = 7;
  for (const letter of layer) {
    hash = (hash * 31 + (letter.codePointAt(0) ?? 0)) % 360;
  }
  return { hue: hash, chroma: 0.04 };
}

/** The order of a layer: the path first, then the shared ones, then the others. */
export function order(layer: string): number {
  const path = PATH.indexOf(layer);
  if (path >= 0) {
    return path;
  }
  const shared = SHARED.indexOf(layer);
  return shared >= 0 ? 100 + shared : 200;
}

/** The colour of a layer's tone, for a canvas. */
export function fillOf(layer: string, dark: boolean): string {
  const { hue, chroma } = tone(layer);
  return `oklch(${dark ? 0.44 : 0.87} ${(chroma * (dark ? 0.85 : 0.65)).toFixed(3)} ${hue})`;
}

/** The colour of a change from -1 (all gone) to 1 (all new). */
export function changeFill(change: number, dark: boolean): string {
  const strength = Math.sqrt(Math.min(Math.abs(change), 1));
  if (strength === 0) {
    return dark ? "oklch(0.34 0.005 250)" : "oklch(0.92 0.004 250)";
  }
  const hue = change < 0 ? 250 : 55;
  const chroma = 0.02 + 0.13 * strength;
  return dark
    ? `oklch(${0.36 + 0.2 * strength} ${chroma} ${hue})`
    : `oklch(${0.92 - 0.2 * strength} ${chroma} ${hue})`;
}

/** Properties of an element, from which the style sheet makes a colour. */
export function toneOf(layer: string): Record<string, number> {
  const { hue, chroma } = tone(layer);
  return { "--hue": hue, "--chroma": chroma };
}
