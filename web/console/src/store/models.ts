/** The models that there are; asked once, since a server's models change when it is started anew. */

import type { Model } from "@antiphon/client";
import { useEffect, useSyncExternalStore } from "react";
import { noteError, server } from "../server";

const listeners = new Set<() => void>();
let known: readonly Model[] = [];
let asked = false;

async function ask(): Promise<void> {
  if (asked) return;
  asked = true;
  try {
    known = (await server.models.list()).data;
    for (const listener of listeners) listener();
  } catch (error) {
    asked = false; // whoever needs them next asks again
    noteError(error);
  }
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Return the models, the default one first; none before the server has answered. */
export function useModels(): readonly Model[] {
  useEffect(() => void ask(), []);
  return useSyncExternalStore(subscribe, () => known);
}
