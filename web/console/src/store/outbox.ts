/**
 * Messages on their way: written by a person, not yet acknowledged by the server.
 *
 * Each has its id before it leaves and keeps it, so that sending it again, after a reload or from
 * another tab, is the same message. It is kept in this browser until the server has it.
 */

import { type AntiphonError, type Ask, type Content, newId, type Part, type Run } from "@antiphon/client";
import { keep, kept } from "../prefs";
import { noteError, server } from "../server";

/** What a person made: their words and the files beside them. */
export interface Draft {
  readonly text: string;
  readonly files: readonly Part[];
}

export interface Parcel {
  readonly id: string;
  readonly draft: Draft;
  readonly ask: Ask;
  /** The message that this one is another version of. */
  readonly editOf: string | null;
  readonly parent: string | null;
  readonly error: AntiphonError | null;
}

/** Larger than this and it is not kept over a reload: a browser keeps five megabytes in all. */
const KEPT_CHARS = 400_000;

const waiting = new Map<string, readonly Parcel[]>();

export class Outbox {
  readonly #conversation: string;
  readonly #sent: (run: Run) => void;
  readonly #listeners = new Set<() => void>();
  #parcels: readonly Parcel[];

  constructor(conversation: string, sent: (run: Run) => void) {
    this.#conversation = conversation;
    this.#sent = sent;
    this.#parcels = [...stored(conversation), ...(waiting.get(conversation) ?? [])];
    waiting.delete(conversation);
    if (this.#parcels.length > 0) this.#set(this.#parcels);
    for (const parcel of this.#parcels) void this.#deliver(parcel);
  }

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  readonly parcels = (): readonly Parcel[] => this.#parcels;

  post(draft: Draft, ask: Ask, place: { editOf?: string; parent?: string } = {}): void {
    const parcel: Parcel = {
      id: newId("msg_"),
      draft,
      ask,
      editOf: place.editOf ?? null,
      parent: place.parent ?? null,
      error: null,
    };
    this.#set([...this.#parcels, parcel]);
    void this.#deliver(parcel);
  }

  again(id: string): void {
    const parcel = this.#parcels.find((other) => other.id === id);
    if (parcel === undefined) return;
    const fresh = { ...parcel, error: null };
    this.#set(this.#parcels.map((other) => (other.id === id ? fresh : other)));
    void this.#deliver(fresh);
  }

  /** Take back what was not sent, and return it for the composer. */
  discard(id: string): Draft | null {
    const parcel = this.#parcels.find((other) => other.id === id);
    this.#set(this.#parcels.filter((other) => other.id !== id));
    return parcel?.draft ?? null;
  }

  async #deliver({ id, draft, ask, editOf, parent }: Parcel): Promise<void> {
    const content = contentOf(draft);
    try {
      const run =
        editOf === null
          ? await server.messages.send(this.#conversation, content, parent === null ? { ...ask, id } : { ...ask, id, parent })
          : await server.messages.edit(this.#conversation, editOf, content, { ...ask, id });
      this.#sent(run);
      this.#set(this.#parcels.filter((other) => other.id !== id));
    } catch (error) {
      const told = noteError(error);
      this.#set(this.#parcels.map((other) => (other.id === id ? { ...other, error: told } : other)));
    }
  }

  #set(parcels: readonly Parcel[]): void {
    this.#parcels = parcels;
    const text = JSON.stringify(parcels.map((parcel) => ({ ...parcel, error: null })));
    keep(nameOf(this.#conversation), parcels.length === 0 || text.length > KEPT_CHARS ? null : text);
    for (const listener of this.#listeners) listener();
  }
}

/** Return a draft as the content of a message. */
export function contentOf({ text, files }: Draft): Content {
  if (files.length === 0) return text;
  return text.trim() === "" ? files : [{ kind: "text", text }, ...files];
}

function nameOf(conversation: string): string {
  return `antiphon.outbox.${conversation}`;
}

function stored(conversation: string): readonly Parcel[] {
  try {
    return JSON.parse(kept(nameOf(conversation)) ?? "[]") as readonly Parcel[];
  } catch {
    return [];
  }
}

/** Leave a first message where the conversation's page, which is not there yet, will find it and send it. */
export function postLater(conversation: string, draft: Draft, ask: Ask): void {
  const parcel: Parcel = { id: newId("msg_"), draft, ask, editOf: null, parent: null, error: null };
  waiting.set(conversation, [parcel]);
}
