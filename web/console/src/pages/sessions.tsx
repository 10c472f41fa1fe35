/** The sessions of a conversation: their goals, what each left to the next, and what a person can do. */

import type { Conversation } from "@antiphon/client";
import { useState } from "react";
import type { SessionTold } from "../store/sessions";
import { useDoing } from "../thread/doing";
import { HandedOver } from "../thread/session";
import { Icon } from "../ui/icons";
import { Dialog } from "../ui/overlays";
import { useTimes, useWords } from "../words";

interface Props {
  readonly conversation: Conversation & { readonly scheduling?: boolean | null };
  readonly sessions: readonly SessionTold[];
  readonly onClose: () => void;
}

export function SessionsDialog({ conversation, sessions, onClose }: Props) {
  const words = useWords();
  const doing = useDoing();
  const [goal, setGoal] = useState("");
  const active = sessions.find((session) => session.active);
  return (
    <Dialog title={words.sessions} onClose={onClose}>
      <p className="aside">{words.sessionsSay}</p>
      <ol>
        {[...sessions].reverse().map((session) => (
          <Card key={session.id} session={session} />
        ))}
      </ol>
      {active?.previous != null && (
        <button
          type="button"
          className="button"
          onClick={() => {
            doing.undoSession();
            onClose();
          }}
        >
          <Icon name="undo" />
          {words.undoSwitchSay}
        </button>
      )}
      <form
        className="dialog-form"
        onSubmit={(event) => {
          event.preventDefault();
          doing.beginSession(goal.trim() === "" ? null : goal.trim());
          onClose();
        }}
      >
        <label className="label">
          {words.goalField}
          <input className="field" maxLength={500} value={goal} onChange={(event) => setGoal(event.target.value)} />
        </label>
        <div className="doing">
          <button type="submit" className="button main">
            {words.beginSession}
          </button>
        </div>
      </form>
      <label className="label">
        {words.schedulingField}
        <select
          className="field"
          value={conversation.scheduling == null ? "" : String(conversation.scheduling)}
          onChange={(event) => doing.schedule(event.target.value === "" ? null : event.target.value === "true")}
        >
          <option value="">{words.schedulingAuto}</option>
          <option value="true">{words.schedulingOn}</option>
          <option value="false">{words.schedulingOff}</option>
        </select>
      </label>
    </Dialog>
  );
}

function Card({ session }: { readonly session: SessionTold }) {
  const words = useWords();
  const times = useTimes();
  return (
    <li className="session-card">
      <p className="card-head">
        <strong>{session.goal ?? words.noGoal}</strong>
        <span className="tag" data-tone={session.active ? "good" : ""}>
          {session.active ? words.goalNow : words.goalArchived}
        </span>
        <time className="aside">{times.full(session.created_ms)}</time>
      </p>
      {session.cause != null && <p className="aside">{words.sessionCause(session.cause)}</p>}
      <HandedOver handover={session.handover ?? null} precis={session.precis ?? null} />
    </li>
  );
}
