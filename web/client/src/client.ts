/**
 * A server: each question a request, each change a request that may be repeated.
 *
 * Nothing here knows a preview. What is sent is made of what people wrote (`Content`), and its
 * type refuses text that may still be withdrawn.
 */

import { type Listener, Feed, type Wakes } from "./feed.ts";
import type { Saved } from "./frames.ts";
import { newId } from "./ids.ts";
import { Live } from "./live.ts";
import type * as rows from "./rows.ts";
import { beginning } from "./state.ts";
import { type Change, type Options, Wire } from "./wire.ts";

const ROOT = "/antiphon/v1";

/** What a message may be made of: words, or blocks of which some are files. */
export type Content = Saved | readonly Part[];
export type Part =
  | { readonly kind: "text"; readonly text: Saved }
  | rows.ImageBlock
  | rows.AudioBlock
  | rows.FileBlock;

export interface Tool {
  readonly name: string;
  readonly description?: string;
  readonly parameters?: rows.Json;
  readonly strict?: boolean;
}

/** What a run is asked to do, beside its input; what is left out is the model's default. */
export interface Ask {
  readonly model?: string;
  readonly instructions?: Saved;
  readonly tools?: readonly Tool[];
  readonly tool_choice?: string;
  readonly temperature?: number;
  readonly max_output_tokens?: number;
}

export interface Sending extends Ask {
  /** Final from now on, and what makes a repetition the same run; made here where it is left out. */
  readonly id?: string;
  /** Below which message; by default the last closed point of the head. */
  readonly parent?: string;
  /** Refuse where another run works, instead of waiting for it. */
  readonly alone?: boolean;
}

export interface Output {
  readonly call_id: string;
  readonly output: Saved;
  readonly error?: boolean;
  readonly code?: string;
}

/** Open a client of the server that `options` name. Nothing is asked until something is wanted. */
export function connect(options: Options = {}): Client {
  return new Client(new Wire(options));
}

/** A server's conversations, runs, messages, calls, sessions and dispatches. Made by `connect`. */
export class Client {
  readonly #wire: Wire;

  constructor(wire: Wire) {
    this.#wire = wire;
  }

  readonly conversations = {
    list: (query: { q?: string; cursor?: string; limit?: number } = {}) =>
      this.#wire.get<rows.Page>(`${ROOT}/conversations`, query),
    /** Not sent again where it may have arrived: it would stand there twice. */
    create: (made: { title?: Saved | null; metadata?: Readonly<Record<string, string>> } = {}) =>
      this.#post<rows.Conversation>("/conversations", { body: made, again: false }),
    get: (id: string) => this.#wire.get<rows.Conversation>(of("conversations", id)),
    change: (id: string, changes: { title?: Saved | null; metadata?: Readonly<Record<string, string>> }) =>
      this.#wire.change<rows.Conversation>("PATCH", of("conversations", id), { body: changes }),
    /** It is answered for no longer, and what works in it is canceled; this cannot be taken back. */
    delete: (id: string) => this.#wire.change<void>("DELETE", of("conversations", id)),
    /** Every message; with `newest`, no more than the end of the line that is looked at, and what stands beside it. */
    tree: (id: string, query: { newest?: number } = {}) => this.#wire.get<rows.Tree>(of("conversations", id, "tree"), query),
    line: (id: string, query: { leaf?: string; limit?: number } = {}) =>
      this.#wire.get<rows.Listed<rows.Message>>(of("conversations", id, "line"), query),
    children: (id: string, parent?: string) =>
      this.#wire.get<rows.Listed<rows.Message>>(of("conversations", id, "children"), { parent }),
    runs: (id: string) => this.#wire.get<rows.Listed<rows.Run>>(of("conversations", id, "runs")),
    sessions: (id: string) => this.#wire.get<rows.Listed<rows.Session>>(of("conversations", id, "sessions")),
    /** Look at another line: the next message goes there unless it says otherwise. */
    moveHead: (id: string, head: string | null) =>
      this.#wire.change<rows.Conversation>("PUT", of("conversations", id, "head"), { body: { head } }),
  };

  readonly messages = {
    get: (id: string, conversation?: string) => this.#wire.get<rows.Message>(of("messages", id), { conversation }),
    /** Start a run with a new message. However often it is sent under one id, it is one run. */
    send: (conversation: string, content: Content, { alone, ...asked }: Sending = {}) =>
      this.#wire.change<rows.Run>("POST", of("conversations", conversation, "messages"), {
        body: { id: newId("msg_"), ...asked, content },
        alone,
      }),
    /** Say something else in place of a user message; the old one and its answers stay. */
    edit: (conversation: string, id: string, content: Content, { alone, ...asked }: Omit<Sending, "parent"> = {}) =>
      this.#wire.change<rows.Run>("POST", of("messages", id, "edit"), {
        body: { id: newId("msg_"), ...asked, content },
        query: { conversation },
        alone,
      }),
    /** Ask for another answer beside this one; it stays. `key` makes a repetition the same run. */
    regenerate: (conversation: string, id: string, { key, ...asked }: Ask & { key?: string } = {}) =>
      this.#wire.change<rows.Run>("POST", of("messages", id, "regenerate"), {
        body: asked,
        query: { conversation },
        key: key ?? newId("regenerate_"),
      }),
    /** Keep the text of a canceled answer as a message of its own. Not sent again: it would be two. */
    keep: (conversation: string, id: string) =>
      this.#wire.change<rows.Message>("POST", of("messages", id, "keep"), { query: { conversation }, again: false }),
    /** Skip a message on every line from now on; calls go with their results. */
    delete: (conversation: string, id: string) =>
      this.#wire.change<rows.Conversation>("DELETE", of("messages", id), { query: { conversation } }),
  };

  readonly runs = {
    get: (id: string) => this.#wire.get<rows.Explanation>(of("runs", id)),
    /** Stop is a call: leaving a stream stops nothing. Canceled twice is canceled once. */
    cancel: (id: string, reason = "canceled") => this.#post<rows.Run>(`/runs/${encode(id)}/cancel`, { body: { reason } }),
    plan: (id: string, dispatch?: string) => this.#wire.get<rows.Json>(of("runs", id, "plan"), { dispatch }),
    request: (id: string, dispatch?: string) => this.#wire.get<rows.Sent>(of("runs", id, "request"), { dispatch }),
    /** Bring the results of all open calls of a run; the same again change nothing. */
    outputs: (id: string, outputs: readonly Output[]) =>
      this.#post<rows.Run>(`/runs/${encode(id)}/outputs`, { body: { outputs } }),
  };

  readonly calls = {
    /** Let a call run that waits for approval, with its arguments or others. */
    approve: (run: string, call: string, changed?: Saved) =>
      this.#post<rows.Call>(`/calls/${encode(call)}/approve`, { body: { run, arguments: changed } }),
    refuse: (run: string, call: string, reason: Saved = "") =>
      this.#post<rows.Call>(`/calls/${encode(call)}/refuse`, { body: { run, reason } }),
    /** Say what became of a call of unknown fate. */
    resolve: (run: string, call: string, fate: Omit<Output, "call_id">) =>
      this.#post<rows.Call>(`/calls/${encode(call)}/resolve`, { body: { run, ...fate } }),
  };

  readonly dispatches = {
    /** What nobody knows the outcome of, its age, and what may safely be done. */
    list: (state?: rows.AttemptState) =>
      this.#wire.get<{ readonly data: readonly rows.Dispatch[]; readonly calls: readonly rows.Call[] }>(
        `${ROOT}/dispatches`,
        { state },
      ),
    resolve: (operation: string, action: rows.DispatchAction, because?: Saved) =>
      this.#post<rows.Run>(`/dispatches/${encode(operation)}/resolve`, { body: { action, because } }),
  };

  readonly models = {
    list: () => this.#wire.get<rows.Listed<rows.Model>>(`${ROOT}/models`),
  };

  /** Follow a conversation frame by frame, from after event number `after`. */
  follow(conversation: string, listener: Listener, after = 0, wakes?: Wakes): Feed {
    return new Feed(this.#wire, of("conversations", conversation, "events"), beginning(after), listener, wakes);
  }

  /** Hold a conversation as it stands and as it changes, for a screen. */
  live(conversation: string, wakes?: Wakes): Live {
    return new Live(this, conversation, wakes);
  }

  /** What this release has no name for: any path below `/antiphon/v1`. */
  request<T>(method: string, path: string, change?: Change): Promise<T> {
    return this.#wire.change<T>(method, ROOT + path, change);
  }

  #post<T>(path: string, change: Change): Promise<T> {
    return this.#wire.change<T>("POST", ROOT + path, change);
  }
}

function of(kind: string, id: string, part?: string): string {
  return `${ROOT}/${kind}/${encode(id)}${part === undefined ? "" : `/${part}`}`;
}

function encode(id: string): string {
  return encodeURIComponent(id);
}
