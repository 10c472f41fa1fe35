/** What went into a prompt, as the server tells it: what this release tells, and what a later one adds. */

import type { Json } from "@antiphon/client";

export interface PlanBlock {
  readonly kind: string;
  readonly tokens: number | null;
  readonly sources: number;
  readonly cacheable: boolean;
}

export interface LeftOut {
  readonly reason: string;
  readonly count: number;
  readonly tokens: number | null;
}

export interface PromptPlan {
  readonly blocks: readonly PlanBlock[];
  readonly leftOut: readonly LeftOut[];
  readonly window: number | null;
  readonly total: number | null;
  readonly output: number | null;
  readonly outputReducedFrom: number | null;
  readonly countedBy: string | null;
  readonly prefix: { readonly last: number; readonly matched: number; readonly movedBy: readonly string[] } | null;
  readonly retrieval: readonly { readonly status: string; readonly reason: string | null; readonly candidates: number | null }[];
}

type Fields = { readonly [name: string]: Json };

export function planOf(json: Json): PromptPlan {
  const told = fields(json);
  const trace = "trace" in told ? fields(told["trace"]) : told;
  const prefix = fields(trace["prefix"]);
  return {
    blocks: list(trace["blocks"]).map((one) => ({
      kind: text(one["kind"]) ?? "",
      tokens: number(one["tokens"]),
      sources: number(one["sources"]) ?? number(one["count"]) ?? 0,
      cacheable: one["cacheable"] === true,
    })),
    leftOut: leftOut(trace["left_out"]),
    window: number(trace["window"]),
    total: number(trace["total_tokens"]),
    output: number(trace["output_tokens"]),
    outputReducedFrom: number(trace["output_reduced_from"]),
    countedBy: text(trace["counted_by"]),
    prefix:
      number(prefix["last_bytes"]) === null
        ? null
        : {
            last: number(prefix["last_bytes"]) ?? 0,
            matched: number(prefix["matched_bytes"]) ?? 0,
            movedBy: Array.isArray(prefix["moved_by"]) ? prefix["moved_by"].map(String) : [],
          },
    retrieval: [...list(trace["retrieval"]), ...list(told["retrieval"])].map((one) => ({
      status: text(one["status"]) ?? "",
      reason: text(one["reason"]),
      candidates: number(one["candidates"]),
    })),
  };
}

function leftOut(json: Json | undefined): readonly LeftOut[] {
  if (Array.isArray(json)) {
    return list(json).map((one) => ({
      reason: text(one["reason"]) ?? "",
      count: number(one["count"]) ?? 0,
      tokens: number(one["tokens"]),
    }));
  }
  return Object.entries(fields(json)).map(([reason, count]) => ({ reason, count: number(count) ?? 0, tokens: null }));
}

function fields(json: Json | undefined): Fields {
  return typeof json === "object" && json !== null && !Array.isArray(json) ? (json as Fields) : {};
}

function list(json: Json | undefined): readonly Fields[] {
  if (Array.isArray(json)) return json.map(fields);
  return typeof json === "object" && json !== null ? [json as Fields] : [];
}

function number(json: Json | undefined): number | null {
  return typeof json === "number" ? json : null;
}

function text(json: Json | undefined): string | null {
  return typeof json === "string" ? json : null;
}
