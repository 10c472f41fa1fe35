/**
 * What stands in the thread, from top to bottom: pure functions of what the server holds.
 *
 * Messages and previews are rows of different kinds, so that no code that handles the one can be
 * given the other. A preview's row has the id that its message will have, where that is reserved,
 * and so becomes the message in place.
 */

import type { SessionTold } from "../store/sessions";
import {
  type Branches,
  isOpen,
  type Message,
  type Run,
  type Shown,
  type ToolResultBlock,
  type View,
  type Withdrawal,
} from "@antiphon/client";

export interface MessageRow {
  readonly kind: "message";
  readonly key: string;
  readonly message: Message;
  /** Ids of the alternatives, itself included, in their order. */
  readonly beside: readonly string[];
  /** What its calls came to, as far as that stands in the tree. */
  readonly results: readonly ToolResultBlock[];
  /** Whether its run's answer ends here. */
  readonly last: boolean;
}

/** An answer that is being written, or waited for. */
export interface LiveRow {
  readonly kind: "live";
  readonly key: string;
  readonly run: Run;
  readonly shown: Shown | null;
}

/** What became of a run beside its messages: it failed, or nobody knows. */
export interface OutcomeRow {
  readonly kind: "outcome";
  readonly key: string;
  readonly run: Run;
}

/** Text that was shown and taken back. */
export interface WithdrawnRow {
  readonly kind: "withdrawn";
  readonly key: string;
  readonly withdrawal: Withdrawal;
}

/** A message that waits for its turn. */
export interface QueuedRow {
  readonly kind: "queued";
  readonly key: string;
  readonly run: Run;
  readonly input: Message | null;
  readonly ahead: number;
}

/** Where a session begins that took over from another. */
export interface SessionRow {
  readonly kind: "session";
  readonly key: string;
  readonly session: SessionTold;
  readonly before: SessionTold | null;
  /** Whether it is the one that is talked in, so that it can be taken back. */
  readonly active: boolean;
}

const NONE: readonly never[] = [];

export type Row = SessionRow | MessageRow | LiveRow | OutcomeRow | WithdrawnRow | QueuedRow;

/** Return the run that has been placed and has not ended, if there is one; the newest of several. */
export function workingRun(runs: ReadonlyMap<string, Run>): Run | undefined {
  let found: Run | undefined;
  for (const run of runs.values()) {
    if (isOpen(run.status) && run.status !== "queued" && run.leaf !== null) found = run;
  }
  return found;
}

/** Return the run that began last. */
export function newestRun(runs: ReadonlyMap<string, Run>): Run | undefined {
  return [...runs.values()].at(-1);
}

/** Return where the line that is to be seen ends: with the run that works, else with the head. */
export function leafSeen(view: View, elsewhere: string | null): string | null {
  return elsewhere ?? workingRun(view.runs)?.leaf ?? view.conversation?.head ?? null;
}

/** A stretch of what is seen: the part of a line that belongs to one session. */
export interface Stretch {
  readonly session: SessionTold | null;
  readonly line: readonly Message[];
}

/**
 * Return what a person sees as one conversation: the lines of the sessions that led here, one after the other.
 *
 * A session begins with copies of what was said last; where the originals stand above, the copies are left out.
 */
export function stretchesOf(branches: Branches, line: readonly Message[], sessions: readonly SessionTold[]): readonly Stretch[] {
  const byId = new Map(sessions.map((session) => [session.id, session]));
  const chain: SessionTold[] = [];
  const of = line.at(-1)?.session ?? sessions.find((session) => session.active)?.id;
  for (let at = byId.get(of ?? ""); at !== undefined && !chain.includes(at); at = byId.get(at.previous ?? "")) chain.push(at);
  if (chain.length < 2) return [{ session: chain[0] ?? null, line }];
  const seen = new Set<string>();
  return chain.reverse().map((session, at) => {
    const own = at === chain.length - 1 ? line : branches.line(session.head);
    const fresh = own.filter((message) => message.copied_from === undefined || !seen.has(message.copied_from));
    for (const message of own) seen.add(message.id);
    return { session, line: fresh };
  });
}

/** What of a view the settled rows are made of; what streams by is not in it. */
export type Settled = Pick<View, "runs" | "withdrawn">;

/** Return what is settled on a line: its messages, and what failed, was stopped or taken back beside them. */
export function settledRows({ runs, withdrawn }: Settled, branches: Branches, line: readonly Message[]): readonly Row[] {
  const failed = newestFailures(runs);
  const rows: Row[] = [];
  const taken = withdrawn.filter(({ run }) => runs.get(run)?.status !== "canceled"); // that text stands as a stopped answer
  for (const [at, message] of line.entries()) {
    rows.push(...takenBackBefore(taken, message));
    if (message.role !== "tool") rows.push(messageRow(branches, line, at)); // results stand with their calls
    const failure = failed.get(message.id);
    if (failure !== undefined) rows.push({ kind: "outcome", key: `outcome ${failure.id}`, run: failure });
    if (line[at + 1]?.role !== "assistant") rows.push(...stoppedBelow(branches, message));
  }
  const below = failedBelow(branches, line.at(-1)?.id ?? null, failed);
  const shown = new Set(rows.map((row) => row.key));
  const seen = new Set([...line, ...messagesOf(below)].map((message) => message.id));
  const rest = taken.filter((one) => !shown.has(keyOf(one)) && seen.has(runs.get(one.run)?.leaf ?? ""));
  const [message, ...after] = below;
  return [...rows, ...(message === undefined ? [] : [message]), ...rest.map(withdrawnRow), ...after];
}

function messagesOf(rows: readonly Row[]): readonly Message[] {
  return rows.flatMap((row) => (row.kind === "message" ? [row.message] : []));
}

/** What was taken back of a run stands before the answer that came after it. */
function takenBackBefore(withdrawn: readonly Withdrawal[], { role, run, created_ms = 0 }: Message): readonly Row[] {
  if (role !== "assistant" || withdrawn.length === 0) return NONE;
  return withdrawn.filter((one) => one.run === run && one.at_ms <= created_ms).map(withdrawnRow);
}

function withdrawnRow(withdrawal: Withdrawal): WithdrawnRow {
  return { kind: "withdrawn", key: keyOf(withdrawal), withdrawal };
}

function keyOf({ run, generation }: Withdrawal): string {
  return `withdrawn ${run} ${generation}`;
}

function messageRow(branches: Branches, line: readonly Message[], at: number): MessageRow {
  const message = line[at]!;
  return {
    kind: "message",
    key: message.id,
    message,
    // Each session has a tree of its own: where another one begins is no version of this beginning.
    beside: besideOf(branches.siblings(message), message),
    results: resultsAfter(line, at),
    last: isLastOfRun(line, at),
  };
}

function besideOf(siblings: readonly Message[], message: Message): readonly string[] {
  if (siblings.length === 1) return [message.id]; // as nearly all are
  return siblings.filter((other) => other.session === message.session).map((other) => other.id);
}

/** By the message under which it ended, the newest run, where that one failed. */
function newestFailures(runs: ReadonlyMap<string, Run>): ReadonlyMap<string, Run> {
  const newest = new Map<string, Run>();
  for (const run of runs.values()) {
    const under = run.leaf ?? run.input;
    if (under !== null) newest.set(under, run);
  }
  for (const [under, run] of newest) if (run.status !== "error") newest.delete(under);
  return newest;
}

/** Answers that were stopped under a message, and that the line does not go through. */
function stoppedBelow(branches: Branches, message: Message): readonly Row[] {
  const stopped = branches.children(message.id).filter((child) => child.role === "assistant" && child.status === "canceled");
  return stopped.length === 0 ? NONE : stopped.map((child) => messageRow(branches, [child], 0));
}

/** The newest message that failed right below the line's end: its author must not lose sight of it. */
function failedBelow(branches: Branches, end: string | null, failed: ReadonlyMap<string, Run>): readonly Row[] {
  const child = branches.children(end).at(-1);
  if (child?.role !== "user" || child.status !== "error") return [];
  const rows: Row[] = [messageRow(branches, [child], 0)];
  const run = failed.get(child.id);
  if (run !== undefined) rows.push({ kind: "outcome", key: `outcome ${run.id}`, run });
  return rows;
}

/** Return what is still open under the messages that are `seen`, and what waits its turn. */
export function openRows(view: Pick<View, "runs" | "previews" | "details">, seen: ReadonlySet<string>): readonly Row[] {
  const rows: Row[] = [];
  const open = [...view.runs.values()].filter((run) => isOpen(run.status));
  for (const run of open) {
    if (run.leaf === null || !seen.has(run.leaf)) continue;
    if (run.status === "unknown") rows.push({ kind: "outcome", key: `outcome ${run.id}`, run });
    else if (run.status === "pending") {
      rows.push({ kind: "live", key: run.answer ?? run.id, run, shown: view.previews.get(run.id) ?? null });
    }
  }
  for (const [ahead, run] of open.filter((other) => other.status === "queued").entries()) {
    rows.push({ kind: "queued", key: run.input ?? run.id, run, input: view.details.get(run.id)?.input ?? null, ahead });
  }
  return rows;
}

function resultsAfter(line: readonly Message[], at: number): readonly ToolResultBlock[] {
  if (!line[at]!.blocks.some((block) => block.kind === "tool_call")) return NONE;
  const results: ToolResultBlock[] = [];
  for (let next = at + 1; line[next]?.role === "tool"; next++) {
    for (const block of line[next]!.blocks) if (block.kind === "tool_result") results.push(block);
  }
  return results;
}

function isLastOfRun(line: readonly Message[], at: number): boolean {
  const { run, role } = line[at]!;
  if (role !== "assistant") return false;
  for (let next = at + 1; next < line.length; next++) {
    if (line[next]!.run !== run) return true;
    if (line[next]!.role === "assistant") return false;
  }
  return true;
}

/** Return the text of a message, for people. */
export function textOf(message: Message): string {
  return message.blocks.map((block) => (block.kind === "text" || block.kind === "refusal" ? block.text : "")).join("");
}

/** Return how many messages stand below `id`. */
export function countBelow(branches: Branches, id: string): number {
  let count = 0;
  const left = [...branches.children(id)];
  for (let at = left.pop(); at !== undefined; at = left.pop()) {
    count += 1;
    left.push(...branches.children(at.id));
  }
  return count;
}
