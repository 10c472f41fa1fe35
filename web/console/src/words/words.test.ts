import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parseSync } from "vite";
import { describe, expect, it } from "vitest";
import { dictionary } from "./dictionary";

const SOURCES = new URL("..", import.meta.url).pathname;

/** Attributes that people read or hear. */
const HEARD = new Set(["aria-label", "aria-description", "title", "placeholder", "alt", "label"]);

const LETTERS = /\p{L}/u;

type Node = { readonly type: string; readonly start: number } & Readonly<Record<string, unknown>>;

function* nodesIn(value: unknown): Generator<Node> {
  if (Array.isArray(value)) for (const one of value) yield* nodesIn(one);
  else if (typeof value === "object" && value !== null) {
    if ("type" in value) yield value as Node;
    for (const part of Object.values(value)) yield* nodesIn(part);
  }
}

/** Return the strings that an expression may come to be. */
function stringsIn(node: Node): readonly string[] {
  switch (node.type) {
    case "Literal":
      return typeof node["value"] === "string" ? [node["value"]] : [];
    case "ConditionalExpression":
      return [...stringsIn(node["consequent"] as Node), ...stringsIn(node["alternate"] as Node)];
    case "LogicalExpression":
      return [...stringsIn(node["left"] as Node), ...stringsIn(node["right"] as Node)];
    default:
      return [];
  }
}

/** Return what a source says by itself: text between tags, and what attributes say. */
function bareIn(name: string, source: string): readonly string[] {
  const { program, errors } = parseSync(name, source);
  expect(errors).toEqual([]);
  const bare: string[] = [];
  for (const node of nodesIn(program)) {
    if (node.type === "JSXText" && LETTERS.test(node["value"] as string)) bare.push((node["value"] as string).trim());
    if (node.type === "JSXElement") {
      for (const child of node["children"] as readonly Node[]) {
        if (child.type !== "JSXExpressionContainer") continue;
        for (const said of stringsIn(child["expression"] as Node)) if (LETTERS.test(said)) bare.push(said);
      }
    }
    if (node.type === "JSXAttribute") {
      const attribute = (node["name"] as { name: string }).name;
      const value = node["value"] as Node | null;
      if (HEARD.has(attribute) && value?.type === "Literal") bare.push(`${attribute}=${String(value["value"])}`);
    }
  }
  return bare;
}

/** Names of languages, which are the same in each; of units and formats. */
const SAME_EVERYWHERE = new Set(["English", "中文"]);

describe("what the console says", () => {
  const files = readdirSync(SOURCES, { recursive: true, encoding: "utf-8" }).filter((name) => name.endsWith(".tsx"));

  it.each(files)("stands in the dictionary: %s", (file) => {
    const bare = bareIn(file, readFileSync(join(SOURCES, file), "utf-8"));
    expect(bare.filter((text) => !SAME_EVERYWHERE.has(text))).toEqual([]);
  });

  it("is said somewhere: no word of the dictionary is left over", () => {
    const sources = readdirSync(SOURCES, { recursive: true, encoding: "utf-8" })
      .filter((name) => /\.tsx?$/.test(name) && !name.includes(".test.") && !name.endsWith("dictionary.ts"))
      .map((name) => readFileSync(join(SOURCES, name), "utf-8"))
      .join("\n");
    const said = (name: string) => sources.includes(`words.${name}`) || sources.includes(`"${name}"`) || sources.includes(`.${name};`);
    expect(Object.keys(dictionary).filter((name) => !said(name))).toEqual([]);
  });

  it("is found by this test where it is bare", () => {
    const source = `export const A = () => <p title="Hello" lang="en">Words {"more"} {1} {x ? "yes" : n} <b>{x}</b></p>;`;
    expect([...bareIn("a.tsx", source)].sort()).toEqual(["Words", "more", "title=Hello", "yes"]);
  });

  it.each(Object.entries(dictionary))("is said in both languages: %s", (_, [en, zh]) => {
    expect(typeof en).toBe(typeof zh);
    if (typeof en !== "string" || typeof zh !== "string") return;
    expect(en.trim()).not.toBe("");
    expect(zh.trim()).not.toBe("");
    const sameInBoth = en === zh;
    if (!sameInBoth) expect(zh).toMatch(/\p{Script=Han}/u);
    expect(en).not.toMatch(/\p{Script=Han}/u);
  });
});
