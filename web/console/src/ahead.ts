/**
 * What the first conversation will need, made ready while its messages are on their way: browsers
 * take long to make a format of numbers, and to compile what Markdown is recognised by. Each is a
 * task of its own, so that none of them keeps a person waiting.
 */

import { marked } from "marked";
import { currentPrefs } from "./prefs";
import { timesOf } from "./words";

/** Something of everything, so that every rule has been tried. */
const SAMPLE = "# a\n\n> b *c* **d** `e` [f](g) ~~h~~\n\n- i\n- [ ] j\n\n1. k\n\n| l |\n|---|\n| m |\n\n```n\no\n```\n\n***\np <q>\\\nr\n";

export function readyAhead(): void {
  const times = timesOf(currentPrefs().language);
  const steps = [
    () => marked.lexer(SAMPLE, { gfm: true }),
    () => times.number(0),
    () => times.money({ micros: 1, currency: "USD", prices_of: null }),
  ];
  const next = () => {
    steps.shift()?.();
    if (steps.length > 0) setTimeout(next);
  };
  setTimeout(next);
}
