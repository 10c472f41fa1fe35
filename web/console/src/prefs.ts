/** What a person chose for this browser: language, theme. It is kept here and told to nobody. */

import { useSyncExternalStore } from "react";

export type Language = "en" | "zh";
export type Theme = "system" | "light" | "dark";

export interface Prefs {
  readonly language: Language;
  readonly theme: Theme;
  /** Whether single keys do things where nobody is writing. */
  readonly singleKeys: boolean;
}

const STORED = "antiphon.prefs";
const listeners = new Set<() => void>();

function usual(): Prefs {
  const wanted = typeof navigator === "undefined" ? "en" : navigator.language;
  return { language: wanted.startsWith("zh") ? "zh" : "en", theme: "system", singleKeys: true };
}

/** Return what is kept under `name`, or null where a browser keeps nothing for us. */
export function kept(name: string): string | null {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

/** Keep `value` under `name`; null forgets it. A browser that keeps nothing only forgets sooner. */
export function keep(name: string, value: string | null): void {
  try {
    if (value === null) localStorage.removeItem(name);
    else localStorage.setItem(name, value);
  } catch {
    // Private windows and full disks: the page works without.
  }
}

function read(): Prefs {
  try {
    const found = JSON.parse(kept(STORED) ?? "{}") as Partial<Prefs>;
    return { ...usual(), ...found };
  } catch {
    return usual();
  }
}

let prefs = read();

function show(): void {
  const root = document.documentElement;
  root.lang = prefs.language === "zh" ? "zh-CN" : "en";
  if (prefs.theme === "system") delete root.dataset["theme"];
  else root.dataset["theme"] = prefs.theme;
}

/** Put the choice into effect; once, before anything is drawn. */
export function applyPrefs(): void {
  show();
  addEventListener("storage", (event) => {
    if (event.key !== STORED) return;
    prefs = read();
    show();
    for (const listener of listeners) listener();
  });
}

export function choose(change: Partial<Prefs>): void {
  prefs = { ...prefs, ...change };
  keep(STORED, JSON.stringify(prefs));
  show();
  for (const listener of listeners) listener();
}

/** Return what holds now; for what is not drawn. */
export function currentPrefs(): Prefs {
  return prefs;
}

export function usePrefs(): Prefs {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    currentPrefs,
    currentPrefs,
  );
}
