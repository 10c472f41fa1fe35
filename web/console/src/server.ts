/** The one way to the server: the client, with the key that a person gave. */

import { type AntiphonError, type Client, connect, sharing } from "@antiphon/client";
import { useSyncExternalStore } from "react";
import { keep, kept } from "./prefs";

const STORED = "antiphon.key";

let key = kept(STORED);
let refused = false;
const listeners = new Set<() => void>();

function tell(): void {
  for (const listener of listeners) listener();
}

export const server: Client = connect({ key: () => key, fetch: sharing() });

/** Use `secret` from now on; null forgets it. It stays in this browser. */
export function takeKey(secret: string | null): void {
  key = secret;
  refused = false;
  keep(STORED, secret);
  tell();
}

/** Return whether there is a key to forget. */
export function hasKey(): boolean {
  return key !== null;
}

/** Take note of what went wrong; where the server wants a key, the page asks for one. */
export function noteError(error: unknown): AntiphonError {
  const told = error as AntiphonError;
  if (told.status === 401 && !refused) {
    refused = true;
    tell();
  }
  return told;
}

/** Return whether the server wants a key that we do not have. */
export function useRefused(): boolean {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => refused,
  );
}

/** Return the key in use; only for what the client has no call for. */
export function keyNow(): string {
  return key ?? "";
}
