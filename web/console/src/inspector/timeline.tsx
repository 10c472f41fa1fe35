/** The waterfall: what the run was busy with, and when. */

import { type Explanation, isOpen, type Numbered } from "@antiphon/client";
import { useNow } from "../thread/open";
import { useTimes, useWords, type Words } from "../words";
import { Taken } from "./used";
import { boundsOf, type Part, type Span, spansOf } from "./spans";

export function Timeline({ explanation, history }: { readonly explanation: Explanation; readonly history: readonly Numbered[] }) {
  const words = useWords();
  const times = useTimes();
  const ticking = useNow(isOpen(explanation.run.status) ? 250 : 60_000);
  const spans = spansOf(explanation, history, ticking);
  const [from, to] = boundsOf(spans);
  const share = (ms: number) => `${(100 * (ms - from)) / (to - from)}%`;
  return (
    <>
      <ol className="waterfall">
        {spans.map((span) => (
          <li key={span.key} className="span-row">
            <div className="span-head">
              <span className="span-name">{nameOf(words, span)}</span>
              {span.state !== null && (
                <span className="tag mono" data-tone={toneOf(span)}>
                  {span.state}
                </span>
              )}
              <span className="span-time tabular">{times.span(span.to - span.from)}</span>
            </div>
            <div className="track" aria-hidden="true">
              {(span.parts.length > 0 ? span.parts : [{ of: span.kind, from: span.from, to: span.to }]).map((part) => (
                <i
                  key={part.of}
                  className="bar"
                  data-of={part.of}
                  data-open={span.open || undefined}
                  style={{ left: share(part.from), width: `max(2px, calc(${share(part.to)} - ${share(part.from)}))` }}
                />
              ))}
              {span.withdrawn !== null && <i className="bar" data-of="taken-back" style={{ left: share(span.withdrawn) }} />}
            </div>
            {span.parts.length > 0 && <PartTimes parts={span.parts} />}
            {span.attempt !== null && <Facts span={span} />}
          </li>
        ))}
      </ol>
      <p className="legend" aria-hidden="true">
        <span data-of="prepare">{words.partPrepare}</span>
        <span data-of="send">{words.partSend}</span>
        <span data-of="wait">{words.partWait}</span>
        <span data-of="stream">{words.partStream}</span>
        <span data-of="tool">{words.partTool}</span>
      </p>
      <h3 className="caps">{words.everyEvent}</h3>
      <ol className="events">
        {history.map(({ seq, at_ms, event }) => (
          <li key={seq}>
            <span className="tabular">+{times.span(at_ms - explanation.run.created_ms)}</span>
            <span className="mono">{event.type}</span>
            <span className="aside">{factsOf(event)}</span>
          </li>
        ))}
      </ol>
    </>
  );
}

function nameOf(words: Words, span: Span): string {
  switch (span.kind) {
    case "queue":
      return words.spanQueue;
    case "attempt":
      return words.attemptAt(span.step, Number(span.name));
    case "approval":
      return words.spanApproval(span.name);
    case "tool":
      return span.name;
  }
}

function toneOf(span: Span): string {
  switch (span.state) {
    case "COMMITTED":
    case "SUCCESS":
      return "good";
    case "FAILED":
    case "ERROR":
      return "bad";
    case "UNKNOWN":
      return "unsure";
    case "CANCELED":
    case "CLOSED":
      return "";
    default:
      return "open";
  }
}

function PartTimes({ parts }: { readonly parts: readonly Part[] }) {
  const words = useWords();
  const times = useTimes();
  const names = { prepare: words.partPrepare, send: words.partSend, wait: words.partWait, stream: words.partStream };
  return (
    <p className="part-times tabular">
      {parts.map((part) => `${names[part.of]} ${times.span(part.to - part.from)}`).join(" · ")}
    </p>
  );
}

function Facts({ span }: { readonly span: Span }) {
  const words = useWords();
  const times = useTimes();
  const { attempt } = span;
  if (attempt === null) return null;
  return (
    <>
      {attempt.used !== null && (
        <p className="part-times tabular">
          <Taken used={attempt.used} />
          {attempt.used.cost !== null && ` · ${times.money(attempt.used.cost)}`}
        </p>
      )}
      {attempt.error_code !== null && <p className="aside mono">{attempt.error_code}</p>}
      {attempt.said !== null && attempt.said.message !== "" && (
        <p className="aside said">
          {words.itSaid} <q>{attempt.said.message}</q>
          {attempt.said.status !== undefined && ` (HTTP ${attempt.said.status})`}
        </p>
      )}
      {attempt.proof !== null && (
        <p className="aside">
          {words.proof} <span className="mono">{attempt.proof}</span>
        </p>
      )}
      {span.withdrawn !== null && <p className="aside">{words.withdrawnTitle(attempt.generation)}</p>}
    </>
  );
}

/** What an event says beside its type, as short as it can be. */
function factsOf(event: Numbered["event"]): string {
  switch (event.type) {
    case "run.changed":
      return [event.status, event.code].filter(Boolean).join(" ");
    case "dispatch.changed":
      return [event.state, event.code].filter(Boolean).join(" ");
    case "message.committed":
      return [event.finish, event.calls?.length ? `${event.calls.length} ×` : null].filter(Boolean).join(" ");
    case "preview.withdrawn":
      return event.reason;
    case "call.changed":
      return [event.name, event.state, event.code].filter(Boolean).join(" ");
    default:
      return "";
  }
}
