/** The lines of the picture of a tree: in order, each as far in as it has forks above it. */

import type { Branches, Message } from "@antiphon/client";

export interface Node {
  readonly message: Message;
  /** How many forks stand above it. */
  readonly depth: number;
  /** Whether a branch begins here. */
  readonly first: boolean;
  readonly leaf: boolean;
}

/** Return every message but tool results, each branch in one piece, the older branch first. */
export function nodesOf(branches: Branches): readonly Node[] {
  const nodes: Node[] = [];
  const left: { message: Message; depth: number; first: boolean }[] = [];
  const push = (parent: string | null, depth: number): number => {
    const children = branches.children(parent);
    const forks = children.length > 1;
    for (const message of [...children].reverse()) {
      left.push({ message, depth: forks ? depth + 1 : depth, first: forks });
    }
    return children.length;
  };
  push(null, 0);
  for (let one = left.pop(); one !== undefined; one = left.pop()) {
    const leaf = push(one.message.id, one.depth) === 0;
    if (one.message.role !== "tool") nodes.push({ ...one, leaf });
  }
  return nodes;
}
