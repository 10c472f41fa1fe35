/** What the conversation around a row holds, for those that show more than their own message. */

import type { Branches, Explanation, Run } from "@antiphon/client";
import { createContext, useContext } from "react";

export interface Held {
  readonly branches: Branches;
  /** Whether every message has been read: only then is it known where another version leads. */
  readonly whole: boolean;
  readonly runs: ReadonlyMap<string, Run>;
  readonly details: ReadonlyMap<string, Explanation>;
}

export const HeldContext = createContext<Held | null>(null);

export function useHeld(): Held {
  const held = useContext(HeldContext);
  if (held === null) throw new Error("There is no conversation around this.");
  return held;
}
