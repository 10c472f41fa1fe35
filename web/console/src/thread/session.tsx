/** The line between two sessions: why it was drawn, what was handed over, and how to take it back. */

import { memo } from "react";
import type { HandOver, SessionTold } from "../store/sessions";
import { Icon } from "../ui/icons";
import { useWords } from "../words";
import { useDoing } from "./doing";
import type { SessionRow } from "./rows";

export const SessionDivider = memo(function SessionDivider({ row }: { readonly row: SessionRow }) {
  const words = useWords();
  const doing = useDoing();
  const { session, before } = row;
  return (
    <section className="divider" aria-label={words.sessionBegins}>
      <div className="divider-head">
        <Icon name="goal" />
        <span className="divider-goal">{session.goal ?? words.noGoal}</span>
        {session.cause != null && <span>{words.sessionCause(session.cause)}</span>}
        {row.active && (
          <button type="button" className="button small" title={words.undoSwitchSay} onClick={() => doing.undoSession()}>
            <Icon name="undo" />
            {words.undoSwitch}
          </button>
        )}
      </div>
      <HandedOver handover={before?.handover ?? null} precis={session.precis ?? null} />
    </section>
  );
});

/** What one session left to the next. */
export function HandedOver({ handover, precis }: { readonly handover: HandOver | null; readonly precis: SessionTold["precis"] }) {
  const words = useWords();
  const parts: readonly (readonly [string, readonly string[]])[] = [
    [words.handoverSummary, handover?.summary == null ? [] : [handover.summary]],
    [words.handoverPrecis, precis == null ? [] : [precis]],
    [words.handoverIds, handover?.identifiers ?? []],
    [words.handoverFacts, handover?.facts ?? []],
    [words.handoverOpen, handover?.open ?? []],
  ];
  const said = parts.filter(([, texts]) => texts.length > 0);
  if (said.length === 0) return null;
  return (
    <details>
      <summary>{words.handedOver}</summary>
      <dl className="handover">
        {said.map(([name, texts]) => (
          <div key={name}>
            <dt>{name}</dt>
            {texts.map((text) => (
              <dd key={text} className="literal">
                {text}
              </dd>
            ))}
          </div>
        ))}
      </dl>
    </details>
  );
}
