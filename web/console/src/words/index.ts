/** What the console says, in the language that a person chose. */

import type { Cost } from "@antiphon/client";
import { useEffect } from "react";
import { type Language, usePrefs } from "../prefs";
import { dictionary } from "./dictionary";

type Dictionary = typeof dictionary;
type Said<P> = P extends readonly [infer English, unknown] ? (English extends string ? string : English) : never;

/** Every phrase in one language. */
export type Words = { readonly [Name in keyof Dictionary]: Said<Dictionary[Name]> };

const spoken = new Map<Language, Words>();

export function wordsOf(language: Language): Words {
  let words = spoken.get(language);
  if (words === undefined) {
    const at = language === "en" ? 0 : 1;
    words = Object.fromEntries(Object.entries(dictionary).map(([name, pair]) => [name, pair[at]])) as Words;
    spoken.set(language, words);
  }
  return words;
}

export function useWords(): Words {
  return wordsOf(usePrefs().language);
}

export interface Times {
  /** How long ago, in a few letters. */
  ago(ms: number, nowMs: number): string;
  /** Day and time. */
  full(ms: number): string;
  clock(ms: number): string;
  number(value: number): string;
  /** A part of a whole, in percent. */
  share(part: number): string;
  /** An amount of money, as finely as it takes to see it. */
  money(cost: Cost): string;
  /** A span of time, as short as it can be said. */
  span(ms: number): string;
}

const written = new Map<Language, Times>();

/** Return how times and numbers are written. */
export function useTimes(): Times {
  const { language } = usePrefs();
  return timesOf(language);
}

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

export function timesOf(language: Language): Times {
  let times = written.get(language);
  if (times === undefined) written.set(language, (times = made(language)));
  return times;
}

/** Make something when it is first wanted, and once: browsers take long to make a format. */
function once<T>(make: () => T): () => T {
  let held: { readonly value: T } | undefined;
  return () => (held ??= { value: make() }).value;
}

// The same in both languages, and for every message on the screen: written by hand, which costs next to nothing.
const two = (value: number) => String(value).padStart(2, "0");
const clockOf = (at: Date) => `${two(at.getHours())}:${two(at.getMinutes())}`;
const dateOf = (at: Date) => `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;

function made(language: Language): Times {
  const locale = language === "zh" ? "zh-CN" : "en";
  const number = once(() => new Intl.NumberFormat(locale));
  const percent = once(() => new Intl.NumberFormat(locale, { style: "percent", maximumFractionDigits: 1 }));
  const [h, min, sec, milli] = language === "zh" ? ["小时", "分", "秒", "毫秒"] : ["h", "min", "s", "ms"];
  return {
    ago(ms, nowMs) {
      const past = nowMs - ms;
      const words = wordsOf(language);
      if (past < MINUTE) return words.justNow;
      if (past < HOUR) return words.minutesAgo(Math.floor(past / MINUTE));
      if (past < DAY) return words.hoursAgo(Math.floor(past / HOUR));
      if (past < 7 * DAY) return words.daysAgo(Math.floor(past / DAY));
      return dateOf(new Date(ms));
    },
    full: (ms) => `${dateOf(new Date(ms))} ${clockOf(new Date(ms))}`,
    clock: (ms) => clockOf(new Date(ms)),
    number: (value) => number().format(value),
    share: (part) => (part > 0 && part < 0.001 ? `< ${percent().format(0.001)}` : percent().format(part)),
    money({ micros, currency }) {
      const amount = micros / 1_000_000;
      const digits = amount >= 10 ? 2 : amount >= 0.01 ? 4 : 6;
      const style = { minimumFractionDigits: 2, maximumFractionDigits: digits };
      try {
        return new Intl.NumberFormat(locale, { ...style, style: "currency", currency }).format(amount);
      } catch {
        return `${new Intl.NumberFormat(locale, style).format(amount)} ${currency}`; // a unit of the operator's own
      }
    },
    span(ms) {
      if (ms < 1000) return `${Math.round(ms)} ${milli}`;
      if (ms < MINUTE) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} ${sec}`;
      if (ms < HOUR) return `${Math.floor(ms / MINUTE)} ${min} ${Math.floor((ms % MINUTE) / 1000)} ${sec}`;
      return `${Math.floor(ms / HOUR)} ${h} ${Math.floor((ms % HOUR) / MINUTE)} ${min}`;
    },
  };
}

/** Name the window after what is in it. */
export function useTitle(page: string): void {
  const words = useWords();
  useEffect(() => {
    document.title = page === "" ? words.product : words.titled(page);
  }, [page, words]);
}
