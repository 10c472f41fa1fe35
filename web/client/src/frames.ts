/**
 * What a follower of a conversation is told: one type for each kind of frame.
 *
 * Two cursors. Durable events are numbered, and their number is what a follower comes back with.
 * Preview text is addressed by run, generation, block and offset, and comes whole to whoever
 * attaches. `end` is an end in good order; a stream that stops without it broke.
 */

import type { AttemptState, CallState, RunStatus } from "./rows.ts";

declare const unsaved: unique symbol;

/**
 * Text that may still be withdrawn. It can be shown like any other string, and nothing that sends
 * takes it: the types of what is sent are made of `Saved`, which no preview is.
 */
export type Unsaved = string & { readonly [unsaved]: true };

/** Text that is nobody's preview: what people write, and what messages hold. */
export type Saved = string & { readonly [unsaved]?: never };

export type Channel = "text" | "reasoning" | "refusal";

/** A durable event with its number, which is the cursor to come back with. */
export interface Numbered {
  readonly type: "durable";
  readonly seq: number;
  readonly at_ms: number;
  readonly event: DurableEvent;
}

/** The whole preview of a live run: it stands for all that was shown of the run before. */
export interface Snapshot {
  readonly type: "preview.snapshot";
  readonly run: string;
  readonly generation: number;
  readonly blocks: readonly { readonly block: number; readonly channel: Channel; readonly text: Unsaved }[];
}

/** More text of a block, which may still be withdrawn; `offset` counts code points before it. */
export interface Delta {
  readonly type: "preview.delta";
  readonly run: string;
  readonly generation: number;
  readonly block: number;
  readonly channel: Channel;
  readonly offset: number;
  readonly text: Unsaved;
}

/** All up to `seq` has been told; what follows is happening now. */
export interface Reached {
  readonly type: "caught_up";
  readonly seq: number;
}

export type Ending = "recycled" | "shutdown";

/** The server closes this stream in good order: come back with `seq`, after `retry_ms`. */
export interface End {
  readonly type: "end";
  readonly reason: Ending;
  readonly seq: number;
  readonly retry_ms: number;
}

export type Frame = Numbered | Snapshot | Delta | Reached | End;

export type DurableEvent =
  | { readonly type: "run.changed"; readonly run: string; readonly status: RunStatus; readonly code?: string }
  | { readonly type: "message.placed"; readonly run: string; readonly message: string; readonly parent: string | null }
  | {
      readonly type: "dispatch.changed";
      readonly run: string;
      readonly operation: string;
      readonly generation: number;
      readonly state: AttemptState;
      readonly code?: string;
    }
  | {
      readonly type: "message.committed";
      readonly run: string;
      readonly message: string;
      readonly parent: string | null;
      readonly revision: number;
      readonly generation: number;
      readonly finish?: string;
      readonly calls?: readonly string[];
      readonly input_tokens?: number;
      readonly output_tokens?: number;
      readonly cached_tokens?: number;
      readonly cache_write_tokens?: number;
      readonly reasoning_tokens?: number;
    }
  | { readonly type: "preview.withdrawn"; readonly run: string; readonly generation: number; readonly reason: string }
  | {
      readonly type: "call.changed";
      readonly run: string;
      readonly call: string;
      readonly name: string;
      readonly state: CallState;
      readonly code?: string;
    }
  | { readonly type: "results.placed"; readonly run: string; readonly message: string; readonly revision: number }
  | { readonly type: "head.moved"; readonly head: string | null }
  | { readonly type: "messages.added"; readonly messages: readonly string[] }
  | { readonly type: "messages.deleted"; readonly messages: readonly string[] }
  | { readonly type: "conversation.erased" }
  | { readonly type: "message.kept"; readonly message: string; readonly source: string };
