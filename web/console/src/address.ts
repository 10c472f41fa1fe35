/** Which page an address means. The server answers the same addresses: `antiphon/server/console`. */

import { useSyncExternalStore } from "react";

export type Place =
  | { readonly page: "new" }
  | { readonly page: "conversation"; readonly id: string }
  | { readonly page: "operations" }
  | { readonly page: "keys" };

export function placeOf(path: string): Place {
  const conversation = /^\/c\/([^/]+)$/.exec(path);
  if (conversation?.[1] !== undefined) return { page: "conversation", id: decodeURIComponent(conversation[1]) };
  if (path === "/operations") return { page: "operations" };
  if (path === "/keys") return { page: "keys" };
  return { page: "new" };
}

export function pathOf(place: Place): string {
  switch (place.page) {
    case "new":
      return "/";
    case "conversation":
      return `/c/${encodeURIComponent(place.id)}`;
    case "operations":
    case "keys":
      return `/${place.page}`;
  }
}

const listeners = new Set<() => void>();

function moved(): void {
  for (const listener of listeners) listener();
}

/** Go there; `replacing` leaves no way back to where we are. */
export function go(place: Place, replacing = false): void {
  const path = pathOf(place);
  if (path === location.pathname) return;
  history[replacing ? "replaceState" : "pushState"](null, "", path);
  moved();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  addEventListener("popstate", listener);
  return () => {
    listeners.delete(listener);
    removeEventListener("popstate", listener);
  };
}

/** Return where we are. */
export function usePlace(): Place {
  const path = useSyncExternalStore(subscribe, () => location.pathname);
  return placeOf(path);
}
