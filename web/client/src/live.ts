/**
 * One conversation for a screen: what the server holds, what is being shown, and how the way is.
 *
 * The newest messages are read first and shown, then the whole tree, once; from then on events say
 * what has changed, and what they name is read.
 * What is published never goes back and never shows a hole: a preview that became true stays
 * until its message is there. Its own map keeps it apart from every message, to the end.
 */

import type { Client } from "./client.ts";
import type { AntiphonError } from "./errors.ts";
import type { Connection, Feed, Wakes } from "./feed.ts";
import type { DurableEvent, Frame } from "./frames.ts";
import { type Conversation, type Explanation, isOpen, type Message, type Run, type Tree } from "./rows.ts";
import type { Shown, State } from "./state.ts";

/** Text that was shown and taken back. It never became history; a person may still want to know. */
export interface Withdrawal {
  readonly run: string;
  readonly generation: number;
  readonly reason: string;
  readonly at_ms: number;
  readonly shown: Shown | null;
}

/** What is to be seen. Each value is replaced, never changed, so `===` tells what is new. */
export interface View {
  /** The row; null until it was read. Its `head` and `deletions` follow the events. */
  readonly conversation: Conversation | null;
  /** Whether every message is in here; until then, the newest ones of the line that is looked at. */
  readonly whole: boolean;
  /** The messages, canceled and failed ones included, in the order in which they came. */
  readonly messages: ReadonlyMap<string, Message>;
  readonly runs: ReadonlyMap<string, Run>;
  /** Operations, attempts and calls of each run that was open while this was looked at. */
  readonly details: ReadonlyMap<string, Explanation>;
  /** By run, what may still be withdrawn. */
  readonly previews: ReadonlyMap<string, Shown>;
  readonly withdrawn: readonly Withdrawal[];
  /** Number of the last event that is in here. */
  readonly seq: number;
  /** Whether all of the past is in here. */
  readonly caughtUp: boolean;
  readonly connection: Connection;
  /** Why nothing more will come, where the server said so. */
  readonly error: AntiphonError | null;
}

/** What the events say of a run; a row that is read may already be further than they are. */
type ToldOfRun = Partial<Pick<Run, "status" | "error_code" | "leaf">>;

/** More to read than this, and the whole tree is read instead. */
const MANY = 24;
/** So many messages of the line are read before all others: more than a screen shows. */
const NEWEST = 60;
const PUBLISH_MS = 16;
const AGAIN_MS = 1_000;
/** So often in a row there was more to read, and what is known so far is shown. */
const ROUNDS = 8;

/** Made by `Client.live`; subscribe to it, look at `view`, and close it. */
export class Live {
  readonly id: string;
  readonly #client: Client;
  readonly #wakes: Wakes | undefined;
  readonly #listeners = new Set<() => void>();
  #view: View;
  #next: View;
  #feed: Feed | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #closed = false;
  #reading = false;
  #everything = true;
  #row = false;
  readonly #messages = new Set<string>();
  readonly #runs = new Set<string>();
  readonly #told = new Map<string, ToldOfRun>();
  /** What was read by name while the whole tree is on its way: the tree may be older. */
  #since: Set<string> | undefined;

  constructor(client: Client, id: string, wakes?: Wakes) {
    this.id = id;
    this.#client = client;
    this.#wakes = wakes;
    this.#view = this.#next = {
      conversation: null,
      whole: false,
      messages: new Map(),
      runs: new Map(),
      details: new Map(),
      previews: new Map(),
      withdrawn: [],
      seq: 0,
      caughtUp: false,
      connection: "connecting",
      error: null,
    };
    void this.#load();
  }

  /** What is to be seen now. */
  get view(): View {
    return this.#view;
  }

  /** Call `listener` whenever `view` is another; returns how to stop that. */
  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  /** What is to be seen now; for `useSyncExternalStore`. */
  readonly getSnapshot = (): View => this.#view;

  /** Take in a row that a change returned, without waiting for its event. */
  adopt(row: Conversation | Run): void {
    this.#since?.add(row.id);
    if ("revision" in row) this.#setRow(row);
    else if (isOpen(this.#next.runs.get(row.id)?.status ?? "queued")) this.#setRuns([row]);
  }

  /** Read everything again. */
  refresh(): void {
    this.#everything = true;
    void this.#load();
  }

  /** Attach again at once. */
  wake(): void {
    this.#feed?.wake();
  }

  /** Follow no longer. This cancels nothing. */
  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#feed?.close();
    this.#listeners.clear();
  }

  // Frames.

  #step(before: State, after: State, frame: Frame): void {
    const { previews, seq, caughtUp } = after;
    this.#set({ previews, seq, caughtUp });
    if (frame.type !== "durable") return;
    this.#happened(before, frame.event, frame.at_ms);
    this.#patch({});
    if (this.#wanting) void this.#load();
  }

  get #wanting(): boolean {
    return this.#everything || this.#row || this.#messages.size + this.#runs.size > 0;
  }

  #happened(before: State, event: DurableEvent, at_ms: number): void {
    switch (event.type) {
      case "run.changed": {
        const run = this.#next.runs.get(event.run);
        this.#tell(event.run, { status: event.status, error_code: event.code ?? null });
        if (!isOpen(event.status) && run?.input != null) this.#messages.add(run.input);
        this.#row = true;
        return;
      }
      case "message.placed":
      case "results.placed":
      case "message.committed":
        this.#tell(event.run, { leaf: event.message });
        this.#messages.add(event.message);
        return;
      case "message.kept":
        this.#messages.add(event.message);
        return;
      case "dispatch.changed":
      case "call.changed":
        this.#runs.add(event.run);
        return;
      case "preview.withdrawn": {
        const { run, generation, reason } = event;
        const shown = before.previews.get(run);
        const taken = shown?.generation === generation ? shown : null;
        this.#set({ withdrawn: [...this.#next.withdrawn, { run, generation, reason, at_ms, shown: taken }] });
        return;
      }
      case "head.moved":
        this.#patch({ head: event.head });
        return;
      case "messages.added":
        for (const message of event.messages) this.#messages.add(message);
        return;
      case "messages.deleted": {
        const deletions = this.#next.conversation?.deletions ?? [];
        this.#patch({ deletions: [...new Set([...deletions, ...event.messages])] });
        return;
      }
      default: // erased, or an event of a later release
        this.#everything = true;
    }
  }

  // Reading what the events name.

  async #load(): Promise<void> {
    if (this.#reading) return;
    this.#reading = true;
    for (let round = 1; !this.#closed && this.#wanting; round++) {
      const messages = [...this.#messages];
      const runs = [...this.#runs];
      const row = this.#row;
      const everything = this.#everything || messages.length + runs.length > MANY;
      this.#messages.clear();
      this.#runs.clear();
      this.#row = this.#everything = false;
      try {
        if (everything) {
          const first = this.#next.conversation === null;
          this.#take(await this.#client.conversations.tree(this.id, first ? { newest: NEWEST } : {}));
        } else {
          const reads = [...messages.map((id) => this.#message(id)), ...runs.map((id) => this.#run(id))];
          if (row) reads.push(this.#client.conversations.get(this.id).then((read) => this.#setRow(read)));
          await Promise.all(reads);
        }
      } catch (error) {
        const told = error as AntiphonError;
        if (told.code !== "server_unavailable") {
          this.#set({ error: told, connection: "closed" });
          this.#feed?.close();
          break;
        }
        for (const id of messages) this.#messages.add(id);
        for (const id of runs) this.#runs.add(id);
        this.#row ||= row;
        this.#everything ||= everything;
        this.#set({ connection: "reconnecting" });
        await new Promise((done) => setTimeout(done, AGAIN_MS));
      }
      if (round % ROUNDS === 0) this.#publish(this.#next);
    }
    this.#reading = false;
    this.#publish(this.#next);
  }

  async #message(id: string): Promise<void> {
    const message = await this.#client.messages.get(id, this.id).catch(gone);
    this.#since?.add(id);
    if (message !== null) this.#setMessages([message]);
  }

  async #run(id: string): Promise<void> {
    const told = await this.#client.runs.get(id).catch(gone);
    if (told === null) return;
    this.#since?.add(id);
    this.#setRuns([told.run]);
    this.#set({ details: new Map(this.#next.details).set(id, told) });
    if (told.input === null || !this.#next.messages.has(told.input.id)) return;
    this.#since?.add(told.input.id);
    this.#setMessages([told.input]);
  }

  /** Read all that the newest messages left out, while they are shown and followed. */
  async #rest(): Promise<void> {
    const since = (this.#since = new Set());
    while (!this.#closed && this.#since === since) {
      try {
        const tree = await this.#client.conversations.tree(this.id);
        if (this.#since === since) this.#complete(tree, since);
        return;
      } catch (error) {
        if ((error as AntiphonError).code !== "server_unavailable") return this.refresh(); // which says what is wrong
        await new Promise((done) => setTimeout(done, AGAIN_MS));
      }
    }
  }

  #complete({ messages, runs }: Tree, since: ReadonlySet<string>): void {
    this.#since = undefined;
    const held = this.#next;
    this.#set({ messages: joined(messages, held.messages, since), whole: true, runs: new Map() });
    this.#setRuns([...joined(runs, held.runs, since).values()]);
  }

  #take({ conversation, messages, runs, whole = true }: Tree): void {
    this.#since = undefined;
    this.#setRow(conversation);
    this.#set({ messages: new Map(messages.map((message) => [message.id, message])), whole });
    this.#setRuns(runs);
    if (!whole) void this.#rest();
    for (const run of runs) if (isOpen(run.status)) this.#runs.add(run.id);
    if (this.#feed !== undefined || this.#closed) return;
    const seq = conversation.last_event;
    this.#set({ seq });
    this.#feed = this.#client.follow(
      this.id,
      {
        step: (before, after, frame) => this.#step(before, after, frame),
        connection: (connection, error) => {
          this.#set({ connection, error: error ?? this.#next.error });
        },
      },
      seq,
      this.#wakes,
    );
  }

  // What is published.

  /** Bring the row to where the events are, unless it was read later than they happened. */
  #patch(changed: Partial<Conversation>): void {
    const { conversation, seq } = this.#next;
    if (conversation === null || conversation.last_event > seq) return;
    this.#set({ conversation: { ...conversation, ...changed, last_event: seq } });
  }

  #setRow(row: Conversation): void {
    const held = this.#next.conversation;
    if (held === null || held.last_event <= row.last_event) this.#set({ conversation: row });
  }

  #setMessages(messages: readonly Message[]): void {
    const all = new Map(this.#next.messages);
    for (const message of messages) all.set(message.id, message);
    this.#set({ messages: all });
  }

  #setRuns(runs: readonly Run[]): void {
    const all = new Map(this.#next.runs);
    for (const run of runs) all.set(run.id, { ...run, ...this.#told.get(run.id) });
    this.#set({ runs: all });
  }

  #tell(id: string, told: ToldOfRun): void {
    this.#told.set(id, { ...this.#told.get(id), ...told });
    this.#runs.add(id);
    const run = this.#next.runs.get(id);
    if (run !== undefined) this.#setRuns([run]);
  }

  #set(changed: Partial<View>): void {
    this.#next = { ...this.#next, ...changed };
    this.#timer ??= setTimeout(() => this.#tick(), PUBLISH_MS);
  }

  /** Let what is known be seen; while something that it names is being read, only how the way is. */
  #tick(): void {
    const { connection, error } = this.#next;
    this.#publish(this.#reading ? { ...this.#view, connection, error } : this.#next);
  }

  #publish(view: View): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#closed) return;
    this.#view = view;
    for (const listener of this.#listeners) listener();
  }
}

/** Return rows by their ids: those `read`, in their order, but where one `held` is newer, that one; then what is new. */
function joined<T extends { readonly id: string }>(
  read: readonly T[],
  held: ReadonlyMap<string, T>,
  newer: ReadonlySet<string>,
): Map<string, T> {
  const all = new Map(read.map((row) => [row.id, row]));
  for (const [id, row] of held) if (newer.has(id) || !all.has(id)) all.set(id, row);
  return all;
}

/** What an event named may be gone by the time that it is read. */
function gone(error: AntiphonError): null {
  if (error.status === 404 || error.status === 410) return null;
  throw error;
}
