/** What comes next of an open dispatch: the server says it in English, people are told in their language. */

import type { Dispatch } from "@antiphon/client";

export type Next = "nextUnderWay" | "nextSettle" | "nextHandle" | "nextReplay" | "nextDeadline" | "nextPerson";

/** Return what comes next, by the ways out of UNKNOWN that its profile has, best first. */
export function nextOf({ state, actions, policy, handle, deadline_ms }: Dispatch, nowMs: number): Next {
  if (state !== "UNKNOWN") return "nextUnderWay";
  if (actions.includes("settle")) return "nextSettle";
  const waits = nowMs < deadline_ms;
  for (const way of policy) {
    if (way === "handle" && handle !== null) return "nextHandle";
    if (way === "idempotent" && waits) return "nextReplay";
    if (way === "deadline" && waits) return "nextDeadline";
  }
  return "nextPerson";
}
