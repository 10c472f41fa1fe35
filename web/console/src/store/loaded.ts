/** Something read from the server for a page: what came, or what went wrong, and how to ask again. */

import type { AntiphonError } from "@antiphon/client";
import { type DependencyList, useCallback, useEffect, useState } from "react";
import { noteError } from "../server";

export interface Loaded<T> {
  readonly value: T | null;
  readonly error: AntiphonError | null;
  readonly loading: boolean;
  readonly again: () => void;
}

/** Read with `load`, again whenever `of` changes; what comes too late is dropped. */
export function useLoaded<T>(load: () => Promise<T>, of: DependencyList): Loaded<T> {
  const [count, setCount] = useState(0);
  const [held, setHeld] = useState<Omit<Loaded<T>, "again">>({ value: null, error: null, loading: true });
  useEffect(() => {
    let late = false;
    setHeld((before) => ({ ...before, loading: true }));
    load().then(
      (value) => {
        if (!late) setHeld({ value, error: null, loading: false });
      },
      (error: unknown) => {
        if (!late) setHeld((before) => ({ ...before, error: noteError(error), loading: false }));
      },
    );
    return () => {
      late = true;
    };
    // The caller says what it depends on.
  }, [...of, count]);
  const again = useCallback(() => setCount((before) => before + 1), []);
  return { ...held, again };
}
