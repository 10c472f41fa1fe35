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

/** Return how times and numbers are written: made once, since browsers take long to make a format. */
export function useTimes(): Times {
  const { language } = usePrefs();
  let times = written.get(language);
  if (times === undefined) written.set(language, (times = timesOf(language)));
  return times;
}

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

export function timesOf(language: Language): Times {
  const locale = language === "zh" ? "zh-CN" : "en";
  const full = new Intl.DateTimeFormat(locale, { dateStyle: "medium", timeStyle: "short" });
  const clock = new Intl.DateTimeFormat(locale, { hour: "2-digit", minute: "2-digit" });
  const day = new Intl.DateTimeFormat(locale, { month: "short", day: "numeric" });
  const number = new Intl.NumberFormat(locale);
  const percent = new Intl.NumberFormat(locale, { style: "percent", maximumFractionDigits: 1 });
  const [h, min, sec, milli] = language === "zh" ? ["小时", "分", "秒", "毫秒"] : ["h", "min", "s", "ms"];
  const relative = new Intl.RelativeTimeFormat(locale, { numeric: "auto", style: "narrow" });
  return {
    ago(ms, nowMs) {
      const past = nowMs - ms;
      if (past < MINUTE) return wordsOf(language).justNow;
      if (past < HOUR) return relative.format(-Math.floor(past / MINUTE), "minute");
      if (past < DAY) return relative.format(-Math.floor(past / HOUR), "hour");
      if (past < 7 * DAY) return relative.format(-Math.floor(past / DAY), "day");
      return day.format(ms);
    },
    full: (ms) => full.format(ms),
    clock: (ms) => clock.format(ms),
    number: (value) => number.format(value),
    share: (part) => (part > 0 && part < 0.001 ? `< ${percent.format(0.001)}` : percent.format(part)),
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
