/** Rows of what is not settled: answers being written, messages on their way, outcomes that are open. */

import type { Run } from "@antiphon/client";
import { memo, useEffect, useState } from "react";
import { useLoaded } from "../store/loaded";
import { server } from "../server";
import type { Parcel } from "../store/outbox";
import { Icon } from "../ui/icons";
import { useTimes, useWords } from "../words";
import { reasonOf } from "../words/reasons";
import { Thoughts } from "./blocks";
import { useDoing } from "./doing";
import { useHeld } from "./held";
import { Markdown } from "./markdown";
import { type LiveRow, type OutcomeRow, type QueuedRow, textOf, type WithdrawnRow } from "./rows";
import { Turn } from "./turn";
import { usePrefs } from "../prefs";

/** An answer that is being written. It is shown lighter, and says that it is not saved. */
export const LiveTurn = memo(function LiveTurn({ row }: { readonly row: LiveRow }) {
  const words = useWords();
  const { run, shown } = row;
  const text = shown?.blocks.filter((block) => block.channel !== "reasoning") ?? [];
  const thoughts = shown?.blocks.filter((block) => block.channel === "reasoning") ?? [];
  return (
    <Turn of="response" who={words.answer} ink="preview" foot={<LiveFoot run={run} written={shown !== null} />}>
      {thoughts.map((block) => (
        <Thoughts key={block.block} text={block.text} open={text.length === 0} />
      ))}
      {text.map((block) => (
        <Markdown key={block.block} text={block.text} />
      ))}
      {text.length === 0 && (
        <p className="awaiting">
          <span className="dots" aria-hidden="true">
            <i />
            <i />
            <i />
          </span>
          {run.leaf !== run.input && run.committed > 0 ? words.working : words.waitingForModel(run.options.model)}
        </p>
      )}
    </Turn>
  );
});

function LiveFoot({ run, written }: { readonly run: Run; readonly written: boolean }) {
  const words = useWords();
  const times = useTimes();
  const doing = useDoing();
  const now = useNow(1000);
  const { details } = useHeld();
  const attempts = details.get(run.id)?.operations.at(-1)?.attempts.length ?? 0;
  return (
    <>
      {written && <span className="tag" data-tone="open">{words.notSavedYet}</span>}
      {attempts > 1 && <span className="tag" data-tone="unsure">{words.attempt(attempts)}</span>}
      <div className="doings">
        <button type="button" className="tool" aria-label={words.why} title={words.why} onClick={() => doing.explain(run.id)}>
          <Icon name="why" />
        </button>
      </div>
      <span className="meta">
        <span>{run.options.model}</span>
        {run.started_ms !== null && <span className="tabular">{times.span(Math.max(0, now - run.started_ms))}</span>}
      </span>
    </>
  );
}

/** Return the time, again every `everyMs`. */
export function useNow(everyMs: number): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}

/** A run that ended without an answer, or of which nobody knows whether it did. */
export const OutcomeNote = memo(function OutcomeNote({ row }: { readonly row: OutcomeRow }) {
  return row.run.status === "unknown" ? <UnknownNote run={row.run} /> : <FailedNote run={row.run} />;
});

function FailedNote({ run }: { readonly run: Run }) {
  const words = useWords();
  const { language } = usePrefs();
  const doing = useDoing();
  const under = run.leaf ?? run.input;
  return (
    <div className="notice" data-tone="bad" role="group" aria-label={words.failedTitle}>
      <Icon name="wrong" />
      <div>
        <strong>{words.failedTitle}</strong> <span className="mono">{run.error_code}</span>
        <p>{reasonOf(language, run.error_code)}</p>
      </div>
      <div className="doing">
        {under !== null && (
          <button type="button" className="button small" onClick={() => doing.regenerate(under, {})}>
            <Icon name="again" />
            {words.retry}
          </button>
        )}
        <button type="button" className="button small" onClick={() => doing.explain(run.id)}>
          <Icon name="why" />
          {words.whatHappened}
        </button>
      </div>
    </div>
  );
}

function UnknownNote({ run }: { readonly run: Run }) {
  const words = useWords();
  const times = useTimes();
  const doing = useDoing();
  const now = useNow(1000);
  const open = useLoaded(() => server.dispatches.list(), [run.id, run.status]);
  const dispatch = open.value?.data.find((one) => one.run === run.id);
  return (
    <div className="notice" data-tone="unsure" role="group" aria-label={words.unknownTitle}>
      <Icon name="unsure" />
      <div>
        <strong>{words.unknownTitle}</strong>
        <p>{words.unknownSay}</p>
        {dispatch !== undefined && (
          <p className="tabular">{words.deadlineIn(times.span(Math.max(0, dispatch.deadline_ms - now)))}</p>
        )}
      </div>
      <div className="doing">
        {dispatch?.actions.includes("settle") === true && (
          <button
            type="button"
            className="button main small"
            title={words.settleSay}
            onClick={() => doing.settle(dispatch.operation, "settle")}
          >
            {words.settle}
          </button>
        )}
        <button type="button" className="button small" onClick={open.again}>
          <Icon name="again" />
          {words.checkNow}
        </button>
        <button type="button" className="button small" onClick={() => doing.stop(run.id)}>
          <Icon name="stop" />
          {words.cancelRun}
        </button>
        <button type="button" className="button small" onClick={() => doing.explain(run.id)}>
          <Icon name="why" />
          {words.whatHappened}
        </button>
      </div>
    </div>
  );
}

/** Text that was shown and taken back: one line, which opens. */
export const WithdrawnNote = memo(function WithdrawnNote({ row }: { readonly row: WithdrawnRow }) {
  const words = useWords();
  const { language } = usePrefs();
  const { withdrawal } = row;
  return (
    <details className="withdrawn">
      <summary>
        <Icon name="undo" />
        {words.withdrawnTitle(withdrawal.generation)}
        <span className="mono">{withdrawal.reason}</span>
      </summary>
      <p className="aside">
        {reasonOf(language, withdrawal.reason)} {words.withdrawnSay}
      </p>
      {withdrawal.shown?.blocks.map((block) => (
        <p key={block.block} className="literal struck">
          {block.text}
        </p>
      ))}
    </details>
  );
});

/** A message that is stored and waits for the one before it. */
export const QueuedTurn = memo(function QueuedTurn({ row }: { readonly row: QueuedRow }) {
  const words = useWords();
  const doing = useDoing();
  return (
    <Turn
      of="call"
      who={words.you}
      ink="waiting"
      foot={
        <>
          <span className="tag" data-tone="open">
            <Icon name="clock" />
            {words.queuedTitle(row.ahead)}
          </span>
          <button type="button" className="button small" onClick={() => doing.stop(row.run.id)}>
            {words.withdrawQueued}
          </button>
        </>
      }
    >
      <p className="literal">{row.input === null ? "…" : textOf(row.input)}</p>
    </Turn>
  );
});

/** A message that the server has not acknowledged. */
export function ParcelTurn(props: {
  readonly parcel: Parcel;
  readonly onAgain: () => void;
  readonly onDiscard: () => void;
}) {
  const words = useWords();
  const { language } = usePrefs();
  const { parcel } = props;
  return (
    <Turn
      of="call"
      who={words.you}
      ink={parcel.error === null ? "waiting" : "failed"}
      foot={parcel.error === null ? <span className="tag">{words.sending}</span> : undefined}
    >
      <p className="literal">{parcel.draft.text}</p>
      {parcel.error !== null && (
        <div className="notice" data-tone="bad" role="alert">
          <Icon name="wrong" />
          <div>
            <strong>{words.notSent}</strong> <span className="mono">{parcel.error.code}</span>
            <p>{reasonOf(language, parcel.error.code, parcel.error.message)}</p>
          </div>
          <div className="doing">
            <button type="button" className="button small" onClick={props.onAgain}>
              <Icon name="again" />
              {words.sendAgain}
            </button>
            <button type="button" className="button small" onClick={props.onDiscard}>
              {words.discard}
            </button>
          </div>
        </div>
      )}
    </Turn>
  );
}
