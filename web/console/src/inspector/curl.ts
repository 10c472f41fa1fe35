/** A request as a command that can be typed. Keys are never in it: they are added at the socket. */

import type { Sent } from "@antiphon/client";

/** Headers that carry a key, with where people usually keep it. */
const KEYED: readonly (readonly [host: RegExp, header: string])[] = [
  [/anthropic\.com$/, "x-api-key: $ANTHROPIC_API_KEY"],
  [/googleapis\.com$/, "x-goog-api-key: $GEMINI_API_KEY"],
  [/openai\.com$/, "authorization: Bearer $OPENAI_API_KEY"],
];

export function curlOf(sent: Sent): string {
  const { hostname } = new URL(sent.url);
  const key = KEYED.find(([host]) => host.test(hostname))?.[1];
  const lines = [`curl --request ${sent.method} ${quoted(sent.url)}`];
  for (const [name, value] of Object.entries(sent.headers)) lines.push(`  --header ${quoted(`${name}: ${value}`)}`);
  if (key !== undefined) lines.push(`  --header "${key}"`);
  lines.push(`  --data-raw ${quoted(sent.body)}`);
  return lines.join(" \\\n");
}

/** Return `text` as one word of a shell. */
export function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
