/** The sessions of a conversation: read again when another one becomes active or something was written. */

import type { Conversation, Session } from "@antiphon/client";
import { server } from "../server";
import { useLoaded } from "./loaded";

export interface HandOver {
  readonly goal?: string | null;
  readonly identifiers?: readonly string[];
  readonly facts?: readonly string[];
  readonly open?: readonly string[];
  readonly summary?: string | null;
}

/** A session with where it came from; what a server does not tell is absent. */
export interface SessionTold extends Session {
  readonly previous?: string | null;
  readonly cause?: string | null;
  readonly precis?: string | null;
  readonly handover?: HandOver | null;
  readonly archived_ms?: number | null;
}

const NONE: readonly SessionTold[] = [];

export function useSessions(conversation: Conversation | null): readonly SessionTold[] {
  const told = useLoaded(
    async (): Promise<readonly SessionTold[]> =>
      conversation === null ? NONE : (await server.conversations.sessions(conversation.id)).data,
    [conversation?.id, conversation?.session, conversation?.revision],
  );
  return told.value ?? NONE;
}
