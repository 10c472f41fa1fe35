/** What differs between two texts, line by line. Pure. */

export interface DiffLine {
  readonly sign: " " | "+" | "-";
  readonly text: string;
}

/** More comparisons than this, and what lies between the ends that are alike counts as replaced. */
const MOST = 4_000_000;

/** Return the lines of `before` and `after`, each once where they are alike. */
export function diff(before: string, after: string): readonly DiffLine[] {
  const old = before.split("\n");
  const now = after.split("\n");
  let head = 0;
  while (head < old.length && head < now.length && old[head] === now[head]) head += 1;
  let tail = 0;
  while (tail < Math.min(old.length, now.length) - head && old[old.length - 1 - tail] === now[now.length - 1 - tail]) tail += 1;
  const left = old.slice(head, old.length - tail);
  const right = now.slice(head, now.length - tail);
  return [
    ...same(old.slice(0, head)),
    ...(left.length * right.length > MOST ? [...signed("-", left), ...signed("+", right)] : between(left, right)),
    ...same(tail === 0 ? [] : old.slice(-tail)),
  ];
}

/** The longest common subsequence, walked from its end. */
function between(left: readonly string[], right: readonly string[]): readonly DiffLine[] {
  const width = right.length + 1;
  const lengths = new Uint32Array((left.length + 1) * width);
  for (let a = left.length - 1; a >= 0; a--) {
    for (let b = right.length - 1; b >= 0; b--) {
      lengths[a * width + b] =
        left[a] === right[b]
          ? lengths[(a + 1) * width + b + 1]! + 1
          : Math.max(lengths[(a + 1) * width + b]!, lengths[a * width + b + 1]!);
    }
  }
  const lines: DiffLine[] = [];
  let a = 0;
  let b = 0;
  while (a < left.length && b < right.length) {
    if (left[a] === right[b]) {
      lines.push({ sign: " ", text: left[a]! });
      a += 1;
      b += 1;
    } else if (lengths[(a + 1) * width + b]! >= lengths[a * width + b + 1]!) lines.push({ sign: "-", text: left[a++]! });
    else lines.push({ sign: "+", text: right[b++]! });
  }
  return [...lines, ...signed("-", left.slice(a)), ...signed("+", right.slice(b))];
}

function signed(sign: DiffLine["sign"], lines: readonly string[]): readonly DiffLine[] {
  return lines.map((text) => ({ sign, text }));
}

function same(lines: readonly string[]): readonly DiffLine[] {
  return signed(" ", lines);
}

/** Return `lines` with no more than `around` of those that are alike beside each that is not; null stands for a gap. */
export function folded(lines: readonly DiffLine[], around = 3): readonly (DiffLine | null)[] {
  const shown = new Set<number>();
  lines.forEach((line, at) => {
    if (line.sign === " ") return;
    for (let near = at - around; near <= at + around; near++) shown.add(near);
  });
  const out: (DiffLine | null)[] = [];
  lines.forEach((line, at) => {
    if (shown.has(at)) out.push(line);
    else if (out.length > 0 && out.at(-1) !== null) out.push(null);
    else if (out.length === 0) out.push(null);
  });
  return out;
}

/** Return how many bytes two bodies begin with alike: what a provider can have cached. */
export function commonBytes(before: string, after: string): number {
  const old = new TextEncoder().encode(before);
  const now = new TextEncoder().encode(after);
  let at = 0;
  while (at < old.length && at < now.length && old[at] === now[at]) at += 1;
  return at;
}
