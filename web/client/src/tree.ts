/** The tree of messages, for a screen: which line is looked at, what stands beside it. */

import type { View } from "./live.ts";
import { isOpen, type Message } from "./rows.ts";

/**
 * Where the line to be looked at ends: at the head, or, where a run is at work that the head will
 * follow, where that run is. Its preview belongs below.
 */
export function leafOf({ conversation, messages, runs }: View): string | null {
  const head = conversation?.head ?? null;
  let leaf = head;
  for (const run of runs.values()) {
    if (!isOpen(run.status) || run.status === "queued" || run.leaf === null || !messages.has(run.leaf)) continue;
    const left = run.head_left;
    // A row may be read before the event that moves the head comes.
    if (left === head || left === run.leaf || (left !== null && !messages.has(left))) leaf = run.leaf;
  }
  return leaf;
}

/** An index over the messages of one conversation; make another when they change. */
export class Branches {
  readonly #messages: ReadonlyMap<string, Message>;
  readonly #deleted: ReadonlySet<string>;
  readonly #children = new Map<string | null, Message[]>();

  constructor(messages: ReadonlyMap<string, Message>, deletions: Iterable<string> = []) {
    this.#messages = messages;
    this.#deleted = new Set(deletions);
    for (const message of messages.values()) {
      if (this.#deleted.has(message.id)) continue;
      const parent = this.#visible(message.parent);
      const children = this.#children.get(parent);
      if (children === undefined) this.#children.set(parent, [message]);
      else children.push(message);
    }
  }

  /** The messages below one, or the roots; what is deleted is skipped, and its children count as its parent's. */
  children(parent: string | null): readonly Message[] {
    return this.#children.get(parent) ?? [];
  }

  /** The messages from the root to `leaf`, without the deleted ones, whatever their status. */
  line(leaf: string | null): readonly Message[] {
    const path: Message[] = [];
    let at = this.#visible(leaf);
    for (let left = this.#messages.size; at !== null && left > 0; left--) {
      const message = this.#messages.get(at);
      if (message === undefined) break;
      path.push(message);
      at = this.#visible(message.parent);
    }
    return path.reverse();
  }

  /** The alternatives to a message, itself included, in the order in which they came. */
  siblings(message: Message): readonly Message[] {
    const children = this.children(this.#visible(message.parent));
    return children.length === 1 ? children : children.filter((other) => other.role === message.role);
  }

  /** Where a line through `message` ends: always on by the newest child. */
  leafBelow(message: string): string {
    let at = message;
    for (let left = this.#messages.size; left > 0; left--) {
      const last = this.children(at).at(-1);
      if (last === undefined) break;
      at = last.id;
    }
    return at;
  }

  #visible(message: string | null): string | null {
    let at = message;
    while (at !== null && this.#deleted.has(at)) at = this.#messages.get(at)?.parent ?? null;
    return at;
  }
}
