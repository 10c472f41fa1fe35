import { Branches, type Message, type Role, type Run, type RunStatus, type Unsaved, type View } from "@antiphon/client";
import { describe, expect, it } from "vitest";
import { countBelow, leafSeen, openRows, settledRows, stretchesOf, workingRun } from "./rows";

function said(id: string, parent: string | null, role: Role, more: Partial<Message> = {}): Message {
  return {
    id,
    parent,
    role,
    conversation: "c",
    blocks: [{ kind: "text", text: id }],
    origin: "client",
    trust: "user",
    ...more,
  };
}

function run(id: string, status: RunStatus, more: Partial<Run> = {}): Run {
  return {
    id,
    status,
    conversation: "c",
    kind: "send",
    options: { model: "m" },
    input: null,
    asked_parent: null,
    session: null,
    leaf: null,
    head_left: null,
    answer: null,
    operation: null,
    committed: 0,
    error_code: null,
    end_code: null,
    input_tokens: 0,
    output_tokens: 0,
    cached_tokens: 0,
    cache_write_tokens: 0,
    reasoning_tokens: 0,
    cost: null,
    created_ms: 0,
    started_ms: null,
    ended_ms: null,
    seq: 1,
    ...more,
  };
}

function view(head: string | null, messages: readonly Message[], runs: readonly Run[], more: Partial<View> = {}): View {
  return {
    conversation: { head, deletions: [] } as unknown as NonNullable<View["conversation"]>,
    messages: new Map(messages.map((message) => [message.id, message])),
    runs: new Map(runs.map((one) => [one.id, one])),
    details: new Map(),
    previews: new Map(),
    withdrawn: [],
    whole: true,
    seq: 0,
    caughtUp: true,
    connection: "live",
    error: null,
    ...more,
  };
}

function shown(seen: View): readonly string[] {
  const branches = new Branches(seen.messages, seen.conversation?.deletions);
  const line = branches.line(leafSeen(seen, null));
  return [...settledRows(seen, branches, line), ...openRows(seen, idsOf(line))].map((row) => `${row.kind} ${row.key}`);
}

const u1 = said("u1", null, "user");
const a1 = said("a1", "u1", "assistant", { run: "r1" });

function idsOf(line: readonly Message[]): ReadonlySet<string> {
  return new Set(line.map((message) => message.id));
}

describe("the thread", () => {
  it("shows the head's line, and a run's line while it works", () => {
    const b1 = said("b1", "u1", "assistant");
    expect(shown(view("a1", [u1, a1, b1], []))).toEqual(["message u1", "message a1"]);
    const works = run("r2", "pending", { leaf: "u1", answer: "next" });
    expect(shown(view("a1", [u1, a1, b1], [works]))).toEqual(["message u1", "live next"]);
  });

  it("keeps a message that failed in sight, though the head has never moved to it", () => {
    const u2 = said("u2", "a1", "user", { status: "error" });
    const failed = run("r2", "error", { input: "u2", leaf: "u2", error_code: "refused" });
    expect(shown(view("a1", [u1, a1, u2], [failed]))).toEqual([
      "message u1",
      "message a1",
      "message u2",
      "outcome outcome r2",
    ]);
  });

  it("says what was taken back of a run that failed between its message and its failure", () => {
    const u2 = said("u2", "a1", "user", { status: "error" });
    const failed = run("r2", "error", { input: "u2", leaf: "u2", error_code: "outcome_unknown" });
    const withdrawn = [{ run: "r2", generation: 3, reason: "stream_incomplete", at_ms: 10, shown: null }];
    expect(shown(view("a1", [u1, a1, u2], [failed], { withdrawn })).slice(2)).toEqual([
      "message u2",
      "withdrawn withdrawn r2 3",
      "outcome outcome r2",
    ]);
  });

  it("tells of a failure until the same is asked again", () => {
    const failed = run("r2", "error", { input: "u1", leaf: "u1" });
    expect(shown(view("u1", [u1], [failed]))).toContain("outcome outcome r2");
    const again = run("r3", "success", { leaf: "u1", kind: "regenerate" });
    expect(shown(view("u1", [u1], [failed, again]))).not.toContain("outcome outcome r2");
  });

  it("shows an answer that was stopped under its question, also once the talk went on from there", () => {
    const stopped = said("a0", "u1", "assistant", { status: "canceled" });
    const u2 = said("u2", "u1", "user");
    expect(shown(view("u1", [u1, stopped], []))).toEqual(["message u1", "message a0"]);
    expect(shown(view("u2", [u1, stopped, u2], []))).toEqual(["message u1", "message a0", "message u2"]);
  });

  it("says what was taken back before the answer that came instead", () => {
    const late = { ...a1, created_ms: 20 };
    const withdrawn = [{ run: "r1", generation: 1, reason: "stream_incomplete", at_ms: 10, shown: null }];
    const seen = view("a1", [u1, late], [run("r1", "success", { leaf: "a1" })], { withdrawn });
    expect(shown(seen)).toEqual(["message u1", "withdrawn withdrawn r1 1", "message a1"]);
  });

  it("says what was taken back while nothing has come instead", () => {
    const withdrawn = [{ run: "r1", generation: 1, reason: "stream_incomplete", at_ms: 10, shown: null }];
    const seen = view("u1", [u1], [run("r1", "pending", { leaf: "u1", input: "u1", answer: "a" })], { withdrawn });
    expect(shown(seen)).toEqual(["message u1", "withdrawn withdrawn r1 1", "live a"]);
  });

  it("never makes a message of a preview", () => {
    const block = { block: 0, channel: "text", text: "maybe" as Unsaved, points: 5 } as const;
    const previews = new Map([["r2", { generation: 1, blocks: [block] }]]);
    const seen = view("u1", [u1], [run("r2", "pending", { leaf: "u1", answer: "next" })], { previews });
    const rows = openRows(seen, new Set(["u1"]));
    expect(rows).toHaveLength(1);
    expect(rows[0]).toMatchObject({ kind: "live", shown: { generation: 1 } });
    expect(JSON.stringify(settledRows(seen, new Branches(seen.messages), [u1]))).not.toContain("maybe");
  });

  it("shows what waits its turn, in its order, whatever line is seen", () => {
    const queued = [run("q1", "queued", { input: "m1" }), run("q2", "queued", { input: "m2" })];
    expect(shown(view("a1", [u1, a1], queued)).slice(2)).toEqual(["queued m1", "queued m2"]);
  });

  it("puts the results of tools with their calls", () => {
    const asks = said("a1", "u1", "assistant", {
      run: "r1",
      blocks: [{ kind: "tool_call", call_id: "c", name: "look", arguments: "{}" }],
    });
    const results = said("t1", "a1", "tool", { run: "r1", blocks: [{ kind: "tool_result", call_id: "c" }] });
    const a2 = said("a2", "t1", "assistant", { run: "r1" });
    const seen = view("a2", [u1, asks, results, a2], []);
    const branches = new Branches(seen.messages);
    const rows = settledRows(seen, branches, branches.line("a2"));
    expect(rows.map((row) => row.key)).toEqual(["u1", "a1", "a2"]);
    expect(rows[1]).toMatchObject({ results: [{ call_id: "c" }], last: false });
    expect(rows[2]).toMatchObject({ last: true });
  });

  it("follows the newest run that works, and none that waits its turn", () => {
    const runs = [run("r1", "waiting", { leaf: "u1" }), run("r2", "queued")];
    expect(workingRun(new Map(runs.map((one) => [one.id, one])))?.id).toBe("r1");
  });

  it("shows sessions that follow one another as one conversation, and nothing twice", () => {
    const copy1 = said("c1", null, "user", { copied_from: "u1", session: "s2", origin: "copied" });
    const copy2 = said("c2", "c1", "assistant", { copied_from: "a1", session: "s2", origin: "copied" });
    const asked = said("u2", "c2", "user", { session: "s2" });
    const branches = new Branches(new Map([u1, a1, copy1, copy2, asked].map((one) => [one.id, one])));
    const session = { conversation: "c", goal: null, created_ms: 0 };
    const sessions = [
      { ...session, id: "s1", active: false, head: "a1" },
      { ...session, id: "s2", active: true, head: "u2", previous: "s1" },
    ];
    const told = stretchesOf(branches, branches.line("u2"), sessions);
    expect(told.map((one) => [one.session?.id, one.line.map((message) => message.id)])).toEqual([
      ["s1", ["u1", "a1"]],
      ["s2", ["u2"]],
    ]);
    const alone = stretchesOf(branches, branches.line("u2"), []);
    expect(alone.map((one) => one.line.map((message) => message.id))).toEqual([["c1", "c2", "u2"]]);
  });

  it("does not count the beginning of another session as a version of this one's", () => {
    const here = said("u1", null, "user", { session: "s1" });
    const other = said("c1", null, "user", { session: "s2", origin: "copied" });
    const version = said("u1b", null, "user", { session: "s1" });
    const branches = new Branches(new Map([here, other, version].map((one) => [one.id, one])));
    const [row] = settledRows(view("u1", [here, other, version], []), branches, branches.line("u1"));
    expect(row).toMatchObject({ kind: "message", beside: ["u1", "u1b"] });
  });

  it("counts what stands below a message", () => {
    const branches = new Branches(new Map([u1, a1, said("a2", "u1", "assistant")].map((one) => [one.id, one])));
    expect(countBelow(branches, "u1")).toBe(2);
    expect(countBelow(branches, "a1")).toBe(0);
  });
});
