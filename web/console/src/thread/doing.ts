/** What a person can do in a conversation; rows get it from the conversation that they stand in. */

import type { Ask, DispatchAction, Live, Message, Run } from "@antiphon/client";
import { createContext, useContext } from "react";
import { noteError, server } from "../server";
import { conversationsChanged } from "../store/list";
import type { Draft, Outbox } from "../store/outbox";
import { textOf } from "./rows";

export interface Doing {
  /** Say it at the end of the line that is seen. */
  say(draft: Draft, ask: Ask): void;
  edit(message: Message, draft: Draft, ask: Ask): void;
  regenerate(message: string, ask: Ask): void;
  stop(run: string): void;
  /** Close an editor that a shortcut opened. */
  stopEditing(): void;
  /** Look at the line that ends at `leaf`. */
  look(leaf: string): void;
  remove(message: Message): void;
  rename(title: string | null): void;
  keep(message: Message): void;
  approve(run: string, call: string, changed?: string): void;
  refuse(run: string, call: string, reason: string): void;
  resolveCall(run: string, call: string, output: string, error: boolean): void;
  answer(run: string, outputs: readonly { call_id: string; output: string; error: boolean }[]): void;
  settle(operation: string, action: DispatchAction, because?: string): void;
  /** Archive the session and begin another; without a goal it has none yet. */
  beginSession(goal: string | null): void;
  /** Take the last switch back: the session before is active again, with what was said since. */
  undoSession(): void;
  /** Let sessions come and go by themselves here, or not; null leaves that to the server's settings. */
  schedule(on: boolean | null): void;
  explain(run: string): void;
  fork(message: Message): void;
}

export const DoingContext = createContext<Doing | null>(null);

export function useDoing(): Doing {
  const doing = useContext(DoingContext);
  if (doing === null) throw new Error("There is no conversation around this.");
  return doing;
}

interface Hands {
  readonly live: Live;
  readonly outbox: Outbox;
  readonly onError: (error: ReturnType<typeof noteError>) => void;
  readonly onLook: (leaf: string | null) => void;
  readonly onExplain: (run: string) => void;
  readonly onFork: (message: Message) => void;
  readonly onStopEditing: () => void;
  /** A session is being changed, for which a model may be asked. */
  readonly onHandingOver: (works: boolean) => void;
}

/** Return the actions on one conversation. A failure is told, never swallowed. */
export function doingOf({ live, outbox, onError, onLook, onExplain, onFork, onStopEditing, onHandingOver }: Hands): Doing {
  const attempt = (work: Promise<unknown>): void => {
    work.catch((error: unknown) => onError(noteError(error)));
  };
  const path = `/conversations/${encodeURIComponent(live.id)}`;
  const changed = (work: Promise<unknown>): void => {
    onHandingOver(true);
    attempt(work.then(() => live.refresh()).finally(() => onHandingOver(false)));
  };
  const started = (work: Promise<Run>): void => attempt(work.then((run) => live.adopt(run)));
  return {
    say(draft, ask) {
      onLook(null);
      outbox.post(draft, ask);
      conversationsChanged();
    },
    edit(message, draft, ask) {
      onLook(null);
      outbox.post(draft, ask, { editOf: message.id });
    },
    regenerate(message, ask) {
      onLook(null);
      const { messages, runs } = live.view;
      // Another answer of the same model, unless another one was chosen.
      const model = runs.get(messages.get(message)?.run ?? "")?.options.model;
      started(server.messages.regenerate(live.id, message, model === undefined ? ask : { model, ...ask }));
    },
    stop: (run) => started(server.runs.cancel(run)),
    look(leaf) {
      onLook(leaf);
      attempt(server.conversations.moveHead(live.id, leaf).then((row) => live.adopt(row)));
    },
    remove: (message) => attempt(server.messages.delete(live.id, message.id).then((row) => live.adopt(row))),
    rename: (title) =>
      attempt(
        server.conversations.change(live.id, { title }).then((row) => {
          live.adopt(row);
          conversationsChanged();
        }),
      ),
    keep: (message) => attempt(server.messages.keep(live.id, message.id)),
    approve: (run, call, changed) => attempt(server.calls.approve(run, call, changed)),
    refuse: (run, call, reason) => attempt(server.calls.refuse(run, call, reason)),
    resolveCall: (run, call, output, error) => attempt(server.calls.resolve(run, call, { output, error })),
    answer: (run, outputs) => started(server.runs.outputs(run, outputs)),
    settle: (operation, action, because) => started(server.dispatches.resolve(operation, action, because)),
    beginSession: (goal) => changed(server.request("POST", `${path}/sessions`, { body: { goal }, again: false })),
    undoSession: () => changed(server.request("POST", `${path}/sessions/undo`, { again: false })),
    schedule: (on) => changed(server.request("PUT", `${path}/scheduling`, { body: { on } })),
    stopEditing: onStopEditing,
    explain: onExplain,
    fork: onFork,
  };
}

/** Return what stands in an editor for a message: its words, and the files beside them. */
export function draftOf(message: Message): Draft {
  return {
    text: textOf(message),
    files: message.blocks.filter((block) => block.kind === "image" || block.kind === "file" || block.kind === "audio"),
  };
}
