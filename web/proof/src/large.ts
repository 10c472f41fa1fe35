/** A conversation of 5,000 messages with 200 branches, brought into the server as any export is. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { PYTHON } from "./server.ts";
import { antiphon } from "./stage.ts";

export const MESSAGES = 5_000;
export const BRANCHES = 200;

/** What the newest message of the line says, and nothing else on the page. */
export const NEWEST = `m${MESSAGES - BRANCHES - 1}:`;

const PROSE = [
  "some words ".repeat(12),
  "A **list** of things:\n\n1. one with `code` in it\n2. another, with a [link](https://example.com)\n\nand some words after it.",
  "```py\ndef answer(question: str) -> str:\n    return question[::-1]\n```\n\nThat is all there is to it.",
  "| name | length |\n|---|---:|\n| Rhine | 1,233 km |\n| Rhône | 813 km |",
];

/** Bring it; return its id. */
export async function brought(): Promise<string> {
  const id = "conv_0000000000000000000000size";
  const messages: object[] = [];
  let parent: string | null = null;
  const say = (name: string, below: string | null, role: string) => {
    const text = `${role} ${name}: ${PROSE[role === "user" ? 0 : messages.length % PROSE.length]}`;
    messages.push({ kind: "message", id: name, parent_id: below, role, blocks: [{ kind: "text", text }] });
  };
  for (let n = 0; n < MESSAGES - BRANCHES; n++) {
    const name = `m${n}`;
    say(name, parent, n % 2 === 0 ? "user" : "assistant");
    // Branches all along the line, its newest end included.
    if (n % 2 === 1 && (n - 1) % 24 === 0) say(`b${n}`, parent, "assistant");
    parent = name;
  }
  const head = { kind: "conversation", id, title: "Large", head: parent, messages: messages.length };
  const lines = [{ kind: "export", version: 1 }, head, ...messages].map((line) => JSON.stringify(line));
  const file = join(antiphon.folder, "large.jsonl");
  writeFileSync(file, lines.join("\n") + "\n");
  await antiphon.kill(); // an import works on the file itself
  const done = spawnSync(PYTHON, ["-m", "antiphon", "import", file, "--db", `sqlite:///${join(antiphon.folder, "a.db")}`, "--json"], { encoding: "utf8" });
  assert.equal(done.status, 0, done.stderr + done.stdout);
  await antiphon.start();
  return id;
}
