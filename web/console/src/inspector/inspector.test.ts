import type { Attempt, Call, Explanation, Numbered, Sent } from "@antiphon/client";
import { describe, expect, it } from "vitest";
import { metricsOf, sumBy, sumOf } from "../pages/metrics";
import { curlOf, quoted } from "./curl";
import { commonBytes, diff, folded } from "./diff";
import { planOf } from "./plan";
import { boundsOf, spansOf } from "./spans";

describe("a difference", () => {
  const lines = (before: string, after: string) => diff(before, after).map(({ sign, text }) => sign + text);

  it("names what went and what came, and nothing else", () => {
    expect(lines("a\nb\nc", "a\nx\nc")).toEqual([" a", "-b", "+x", " c"]);
    expect(lines("a\nb", "a\nb\nc")).toEqual([" a", " b", "+c"]);
    expect(lines("a\nb\nc\nd", "a\nc\nd")).toEqual([" a", "-b", " c", " d"]);
    expect(lines("same", "same")).toEqual([" same"]);
  });

  it("gives back both texts", () => {
    const before = "q\na\nb\nb\nz\nk\nm";
    const after = "a\nq\nb\nz\nz\nm\nn";
    const told = diff(before, after);
    expect(told.filter((line) => line.sign !== "+").map((line) => line.text)).toEqual(before.split("\n"));
    expect(told.filter((line) => line.sign !== "-").map((line) => line.text)).toEqual(after.split("\n"));
  });

  it("folds what is alike", () => {
    const before = Array.from({ length: 30 }, (_, at) => `line ${at}`).join("\n");
    const shown = folded(diff(before, before.replace("line 15", "other")), 1);
    expect(shown.map((line) => line?.text ?? null)).toEqual([null, "line 14", "line 15", "other", "line 16", null]);
  });

  it("counts in bytes how far two bodies begin alike", () => {
    expect(commonBytes("aé1", "aé2")).toBe(3);
    expect(commonBytes("", "x")).toBe(0);
    expect(commonBytes("abc", "abc")).toBe(3);
  });
});

describe("a request as a command", () => {
  const sent = (url: string, body: string): Sent => ({
    operation: "op",
    request_digest: "d",
    method: "POST",
    url,
    headers: { "content-type": "application/json" },
    body,
  });

  it("says to the byte what was sent, whatever is in it", () => {
    expect(quoted("it's $HOME `x` \\")).toBe(`'it'\\''s $HOME \`x\` \\'`);
    expect(curlOf(sent("http://127.0.0.1:1/v1/chat", `{"a":"it's"}`))).toBe(
      [
        "curl --request POST 'http://127.0.0.1:1/v1/chat'",
        "  --header 'content-type: application/json'",
        `  --data-raw '{"a":"it'\\''s"}'`,
      ].join(" \\\n"),
    );
  });

  it("names a key by where it is kept and holds none", () => {
    expect(curlOf(sent("https://api.openai.com/v1/responses", "{}"))).toContain("Bearer $OPENAI_API_KEY");
    expect(curlOf(sent("https://api.anthropic.com/v1/messages", "{}"))).toContain("x-api-key: $ANTHROPIC_API_KEY");
  });
});

describe("a run in time", () => {
  const attempt = (number: number, more: Partial<Attempt>): Attempt => ({
    operation: "op",
    conversation: "c",
    run: "r",
    number,
    generation: number,
    state: "COMMITTED",
    handle: null,
    node: null,
    deadline_ms: 0,
    sent_again: false,
    proof: null,
    error_code: null,
    prepared_ms: 0,
    accepted_ms: null,
    written_ms: null,
    opened_ms: null,
    ended_ms: null,
    used: null,
    said: null,
    ...more,
  });
  const call = { call_id: "k", name: "pay", state: "SUCCESS", approval: "given", runner: "function", ended_ms: 90, code: null };
  const told = {
    run: { id: "r", created_ms: 0, started_ms: 10, ended_ms: 100 },
    operations: [
      {
        attempts: [
          attempt(1, { prepared_ms: 10, accepted_ms: 11, written_ms: 15, opened_ms: 20, ended_ms: 30, state: "CLOSED" }),
          attempt(2, { prepared_ms: 30, accepted_ms: 31, ended_ms: 40 }),
        ],
      },
    ],
    calls: [call as unknown as Call],
  } as unknown as Explanation;
  const history = [
    { seq: 1, at_ms: 30, event: { type: "preview.withdrawn", run: "r", generation: 1, reason: "lost" } },
    { seq: 2, at_ms: 40, event: { type: "message.committed", run: "r", message: "m", calls: ["k"] } },
    { seq: 3, at_ms: 70, event: { type: "call.changed", run: "r", call: "k", name: "pay", state: "EXECUTING" } },
  ] as unknown as readonly Numbered[];

  it("is a row of spans in the order in which they began", () => {
    const spans = spansOf(told, history, 1000);
    expect(spans.map((one) => [one.kind, one.name, one.from, one.to])).toEqual([
      ["queue", "", 0, 10],
      ["attempt", "1", 10, 30],
      ["attempt", "2", 30, 40],
      ["approval", "pay", 40, 70],
      ["tool", "pay", 70, 90],
    ]);
    expect(spans[1]!.parts.map((part) => [part.of, part.from, part.to])).toEqual([
      ["prepare", 10, 11],
      ["send", 11, 15],
      ["wait", 15, 20],
      ["stream", 20, 30],
    ]);
    expect(spans[1]!.withdrawn).toBe(30);
    expect(boundsOf(spans)).toEqual([0, 90]);
  });

  it("goes on until now where it has not ended", () => {
    const open = { ...told, operations: [{ attempts: [attempt(1, { prepared_ms: 10, accepted_ms: 11 })] }], calls: [] };
    const last = spansOf(open as unknown as Explanation, [], 500).at(-1)!;
    expect([last.to, last.open, last.parts.at(-1)!.to]).toEqual([500, true, 500]);
  });
});

describe("a plan", () => {
  it("is read as this release tells it", () => {
    const plan = planOf({
      operation: "op",
      blocks: [{ kind: "transcript", count: 3, cacheable: true }],
      transcript: {},
      left_out: { deleted: 2 },
    });
    expect(plan.blocks).toEqual([{ kind: "transcript", tokens: null, sources: 3, cacheable: true }]);
    expect(plan.leftOut).toEqual([{ reason: "deleted", count: 2, tokens: null }]);
    expect([plan.window, plan.prefix]).toEqual([null, null]);
  });

  it("is read with tokens, window and prefix", () => {
    const plan = planOf({
      operation: "op",
      trace: {
        blocks: [{ kind: "transcript", tokens: 30, sources: 3, cacheable: true }],
        left_out: [{ reason: "over_budget", count: 1, tokens: 5 }],
        window: 100,
        total_tokens: 34,
        prefix: { last_bytes: 10, matched_bytes: 9, moved_by: ["deletion"] },
      },
    });
    expect(plan).toMatchObject({ window: 100, total: 34, prefix: { last: 10, matched: 9, movedBy: ["deletion"] } });
    expect(plan.leftOut).toEqual([{ reason: "over_budget", count: 1, tokens: 5 }]);
  });
});

describe("metrics", () => {
  const metrics = metricsOf('# HELP a\na_total{k="x",o="1"} 2\na_total{k="y",o="1"} 3\na_total{k="y"} 1\nb 0.5\n');

  it("are summed, and by a label", () => {
    expect(sumOf(metrics, "a_total")).toBe(6);
    expect([...sumBy(metrics, "a_total", "k")]).toEqual([
      ["x", 2],
      ["y", 4],
    ]);
    expect(sumOf(metrics, "b")).toBe(0.5);
    expect(sumOf(metrics, "none")).toBe(0);
  });
});
