/** "Why this answer?": from a message to its run, its attempts, its prompt and its exact bytes. */

import { type Explanation, isOpen, type Numbered, type Run } from "@antiphon/client";
import { useEffect, useId, useRef, useState } from "react";
import { usePrefs } from "../prefs";
import { server } from "../server";
import { useLoaded } from "../store/loaded";
import { useHeld } from "../thread/held";
import { Icon } from "../ui/icons";
import { useTimes, useWords } from "../words";
import { reasonOf } from "../words/reasons";
import { PromptView } from "./prompt";
import { RecordView } from "./record";
import { type DispatchName, RequestView } from "./request";
import { Price, Taken } from "./used";
import { Timeline } from "./timeline";

const TABS = ["timeline", "prompt", "request", "record"] as const;
type Tab = (typeof TABS)[number];

export function Inspector({ run, onClose }: { readonly run: string; readonly onClose: () => void }) {
  const words = useWords();
  const { runs, details } = useHeld();
  const [tab, setTab] = useState<Tab>("timeline");
  const title = useRef<HTMLHeadingElement>(null);
  const row = runs.get(run);
  const latest = details.get(run);
  const told = useLoaded(
    async () => {
      const [explanation, history] = await Promise.all([
        server.runs.get(run),
        server.request<{ readonly data: readonly Numbered[] }>("GET", `/runs/${encodeURIComponent(run)}/events`),
      ]);
      return { explanation, history: history.data };
    },
    [run, latest, row?.status],
  );
  useEffect(() => title.current?.focus(), [run]);
  const explanation = told.value?.explanation.run.id === run ? told.value.explanation : null;
  return (
    <aside
      className="inspector"
      aria-label={words.why}
      onKeyDown={(event) => {
        if (event.key !== "Escape") return;
        event.stopPropagation();
        onClose();
      }}
    >
      <header className="top">
        <h2 ref={title} tabIndex={-1} className="top-title">
          {words.why}
        </h2>
        <button type="button" className="tool big" aria-label={words.close} onClick={onClose}>
          <Icon name="close" />
        </button>
      </header>
      {explanation !== null && <Summary explanation={explanation} />}
      <Tabs tab={tab} onChoose={setTab}>
        {explanation === null ? (
          <p className="empty">{told.error === null ? words.loading : told.error.message}</p>
        ) : (
          <Tab tab={tab} explanation={explanation} history={told.value?.history ?? []} />
        )}
      </Tabs>
    </aside>
  );
}

function Tab(props: { readonly tab: Tab; readonly explanation: Explanation; readonly history: readonly Numbered[] }) {
  const { runs } = useHeld();
  const { explanation } = props;
  const { id } = explanation.run;
  switch (props.tab) {
    case "timeline":
      return <Timeline explanation={explanation} history={props.history} />;
    case "prompt":
      return <PromptView key={id} explanation={explanation} />;
    case "request":
      return <RequestView key={id} explanation={explanation} before={dispatchBefore(runs, explanation)} />;
    case "record":
      return <RecordView explanation={explanation} />;
  }
}

function Summary({ explanation }: { readonly explanation: Explanation }) {
  const words = useWords();
  const times = useTimes();
  const { language } = usePrefs();
  const { run, operations } = explanation;
  const attempts = operations.reduce((sum, one) => sum + one.attempts.length, 0);
  const span = (run.ended_ms ?? Date.now()) - (run.started_ms ?? run.created_ms);
  return (
    <dl className="summary">
      <div>
        <dt>{words.state}</dt>
        <dd>
          <StateTag run={run} />
        </dd>
      </div>
      <div>
        <dt>{words.model}</dt>
        <dd>{run.options.model}</dd>
      </div>
      <div>
        <dt>{words.took}</dt>
        <dd className="tabular">{isOpen(run.status) ? "…" : times.span(span)}</dd>
      </div>
      <div>
        <dt>{words.tokens}</dt>
        <dd className="tabular">
          <Taken used={run} />
        </dd>
      </div>
      {run.input_tokens > 0 && (
        <div>
          <dt>{words.cost}</dt>
          <dd className="tabular">
            <Price cost={run.cost} />
          </dd>
        </div>
      )}
      <div>
        <dt>{words.attempts}</dt>
        <dd className="tabular">{words.attemptsOf(attempts, operations.length, explanation.calls.length)}</dd>
      </div>
      {run.error_code !== null && (
        <div className="wide-cell">
          <dt className="mono">{run.error_code}</dt>
          <dd>{reasonOf(language, run.error_code)}</dd>
        </div>
      )}
    </dl>
  );
}

/** Where a run stands, in a word. */
export function StateTag({ run }: { readonly run: Pick<Run, "status"> }) {
  const words = useWords();
  const [word, tone] = {
    queued: [words.stateQueued, "open"],
    pending: [words.statePending, "open"],
    waiting: [words.stateWaiting, "unsure"],
    unknown: [words.stateUnknown, "unsure"],
    success: [words.stateSuccess, "good"],
    error: [words.stateError, "bad"],
    canceled: [words.stateCanceled, ""],
  }[run.status] as [string, string];
  return (
    <span className="tag" data-tone={tone}>
      {word}
    </span>
  );
}

function Tabs(props: { readonly tab: Tab; readonly onChoose: (tab: Tab) => void; readonly children: React.ReactNode }) {
  const words = useWords();
  const id = useId();
  const names: Record<Tab, string> = {
    timeline: words.tabTimeline,
    prompt: words.tabPrompt,
    request: words.tabRequest,
    record: words.tabRecord,
  };
  return (
    <>
      <div
        className="tabs"
        role="tablist"
        aria-label={words.why}
        onKeyDown={(event) => {
          const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
          if (step === 0) return;
          event.preventDefault();
          const next = TABS[(TABS.indexOf(props.tab) + step + TABS.length) % TABS.length]!;
          props.onChoose(next);
          document.getElementById(`${id}-${next}`)?.focus();
        }}
      >
        {TABS.map((tab) => (
          <button
            key={tab}
            type="button"
            role="tab"
            id={`${id}-${tab}`}
            aria-selected={tab === props.tab}
            aria-controls={`${id}-panel`}
            tabIndex={tab === props.tab ? 0 : -1}
            onClick={() => props.onChoose(tab)}
          >
            {names[tab]}
          </button>
        ))}
      </div>
      <div className="tab-panel" role="tabpanel" id={`${id}-panel`} aria-labelledby={`${id}-${props.tab}`} tabIndex={0}>
        {props.children}
      </div>
    </>
  );
}

/** Return the dispatch of the run before this one, for comparison: by the order in which runs were started. */
function dispatchBefore(runs: ReadonlyMap<string, Run>, { run }: Explanation): DispatchName | null {
  let before: Run | null = null;
  for (const other of runs.values()) {
    if (other.seq < run.seq && other.operation !== null && (before === null || other.seq > before.seq)) before = other;
  }
  return before?.operation == null ? null : { run: before.id, operation: before.operation };
}
