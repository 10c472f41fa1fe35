/** Keys that do things, where nobody is writing. */

import { useEffect, useRef } from "react";
import { currentPrefs } from "./prefs";

export interface Shortcuts {
  readonly next?: () => void;
  readonly previous?: () => void;
  readonly olderVersion?: () => void;
  readonly newerVersion?: () => void;
  readonly edit?: () => void;
  readonly regenerate?: () => void;
  readonly why?: () => void;
  readonly stop?: () => void;
  readonly tree?: () => void;
  readonly write?: () => void;
  readonly begin?: () => void;
  readonly find?: () => void;
  readonly palette?: () => void;
  readonly help?: () => void;
}

/** Each with its key, in the order in which the help shows them. */
export const KEYS: readonly (readonly [key: string, does: keyof Shortcuts])[] = [
  ["j", "next"],
  ["k", "previous"],
  ["[", "olderVersion"],
  ["]", "newerVersion"],
  ["e", "edit"],
  ["r", "regenerate"],
  ["w", "why"],
  ["s", "stop"],
  ["t", "tree"],
  ["c", "write"],
  ["n", "begin"],
  ["/", "find"],
  ["?", "help"],
];

export const PALETTE_KEY = "Ctrl K";

const BY_KEY = new Map(KEYS);

/** Do these things on their keys, as long as the caller is drawn. */
export function useShortcuts(shortcuts: Shortcuts): void {
  const now = useRef(shortcuts);
  now.current = shortcuts;
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.defaultPrevented || event.isComposing || event.altKey) return;
      if (event.ctrlKey || event.metaKey) {
        if (event.key.toLowerCase() !== "k" || now.current.palette === undefined) return;
        event.preventDefault();
        now.current.palette();
        return;
      }
      if (!currentPrefs().singleKeys || isWritten(event.target) || document.querySelector("dialog[open], [popover]:popover-open") !== null) return;
      const does = BY_KEY.get(event.key.length === 1 ? event.key.toLowerCase() : event.key);
      const action = does === undefined ? undefined : now.current[does];
      if (action === undefined) return;
      event.preventDefault();
      action();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
}

function isWritten(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}
