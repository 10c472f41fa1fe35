/** The list of conversations: pages of it, searched or not, read again when something has changed. */

import type { AntiphonError, Conversation, RunStatus } from "@antiphon/client";
import { useCallback, useEffect, useRef, useState } from "react";
import { noteError, server } from "../server";

/** A conversation of the list, and the status of the open run in it that most wants somebody. */
export interface Listed {
  readonly row: Conversation;
  readonly open: RunStatus | null;
}

export interface Listing {
  readonly rows: readonly Listed[] | null;
  readonly error: AntiphonError | null;
  readonly more: (() => void) | null;
  readonly refresh: () => void;
}

const listeners = new Set<() => void>();

/** Say that conversations came, went, or have another title. */
export function conversationsChanged(): void {
  for (const listener of listeners) listener();
}

const SETTLE_MS = 180;
const LOOK_MS = 20_000;

export function useListing(words: string): Listing {
  const [rows, setRows] = useState<readonly Listed[] | null>(null);
  const [cursor, setCursor] = useState<string | null>(null);
  const [error, setError] = useState<AntiphonError | null>(null);
  const turn = useRef(0);
  const held = useRef(0);

  const read = useCallback(
    async (after: string | null): Promise<void> => {
      const mine = (turn.current += 1);
      try {
        const limit = after === null ? Math.min(200, Math.max(50, held.current)) : 50;
        const page = await server.conversations.list({
          limit,
          ...(words === "" ? {} : { q: words }),
          ...(after === null ? {} : { cursor: after }),
        });
        if (mine !== turn.current) return;
        const read = page.data.map((row): Listed => ({ row, open: page.open?.[row.id] ?? null }));
        setRows((before) => {
          const next = after === null ? read : [...(before ?? []), ...read];
          held.current = next.length;
          return next;
        });
        setCursor(page.cursor);
        setError(null);
      } catch (problem) {
        if (mine === turn.current) setError(noteError(problem));
      }
    },
    [words],
  );

  useEffect(() => {
    held.current = 0;
    const refresh = () => void read(null);
    const first = setTimeout(refresh, words === "" ? 0 : SETTLE_MS);
    // Other tabs and clients write too. Looking again is cheap, and nobody looks at a hidden page.
    const timer = setInterval(() => {
      if (document.visibilityState === "visible") refresh();
    }, LOOK_MS);
    listeners.add(refresh);
    document.addEventListener("visibilitychange", refresh);
    return () => {
      clearTimeout(first);
      clearInterval(timer);
      listeners.delete(refresh);
      document.removeEventListener("visibilitychange", refresh);
    };
  }, [read, words]);

  return {
    rows,
    error,
    more: cursor === null ? null : () => void read(cursor),
    refresh: () => void read(null),
  };
}
