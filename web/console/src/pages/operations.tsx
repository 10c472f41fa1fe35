/** What an operator needs first: what nobody knows the outcome of, what was refused, how it runs. */

import type { Call, Dispatch } from "@antiphon/client";
import { useEffect, useRef, useState } from "react";
import { usePrefs } from "../prefs";
import { keyNow, noteError, server } from "../server";
import { useLoaded } from "../store/loaded";
import { useNow } from "../thread/open";
import { Icon } from "../ui/icons";
import { Notice } from "../ui/notice";
import { Dialog } from "../ui/overlays";
import { useTimes, useTitle, useWords, type Words } from "../words";
import { reasonOf } from "../words/reasons";
import { nextOf } from "./next";
import { type Metrics, metricsOf, sumBy, sumOf } from "./metrics";
import { Shadow } from "./shadow";
import { Link, MenuButton } from "./sidebar";

const LOOK_MS = 4_000;

export function OperationsPage() {
  const words = useWords();
  useTitle(words.operations);
  const { language } = usePrefs();
  const beat = useNow(LOOK_MS);
  const open = useLoaded(() => server.dispatches.list(), [beat]);
  const metrics = useLoaded(readMetrics, [beat]);
  const unsure = open.value?.data.filter((one) => one.state === "UNKNOWN") ?? [];
  const working = open.value?.data.filter((one) => one.state !== "UNKNOWN") ?? [];
  const calls = open.value?.calls ?? [];
  return (
    <main className="sheet" id="main">
      <header className="top">
        <MenuButton />
        <h1 className="top-title">{words.operations}</h1>
        <span className="aside tabular" role="status">
          {open.error !== null ? reasonOf(language, open.error.code, open.error.message) : words.lookedAgain(LOOK_MS / 1000)}
        </span>
      </header>
      <div className="sheet-body">
        <section aria-labelledby="unsure">
          <h2 id="unsure">{words.unsureTitle}</h2>
          {unsure.length + calls.length === 0 ? (
            <p className="all-well">
              <Icon name="tick" />
              {words.unsureNone}
            </p>
          ) : (
            <ul className="cards">
              {unsure.map((one) => (
                <UnsureDispatch key={one.operation} one={one} onDone={open.again} />
              ))}
              {calls.map((call) => (
                <UnsureCall key={`${call.run} ${call.call_id}`} call={call} />
              ))}
            </ul>
          )}
        </section>
        {working.length > 0 && (
          <section aria-labelledby="working">
            <h2 id="working">{words.workingTitle}</h2>
            <ul className="cards">
              {working.map((one) => (
                <UnsureDispatch key={one.operation} one={one} onDone={open.again} />
              ))}
            </ul>
          </section>
        )}
        <section aria-labelledby="figures">
          <h2 id="figures">{words.figuresTitle}</h2>
          {metrics.value === null ? (
            <p className="aside">{metrics.error?.message ?? words.loading}</p>
          ) : (
            <Figures metrics={metrics.value} />
          )}
        </section>
        {metrics.value !== null && <Refusals metrics={metrics.value} />}
        <Shadow beat={beat} />
      </div>
    </main>
  );
}

/** The server's own figures; one with keys tells them to those who may operate it. */
async function readMetrics(): Promise<Metrics> {
  const secret = keyNow();
  const answer = await fetch("/metrics", { headers: secret === "" ? {} : { authorization: `Bearer ${secret}` } });
  if (!answer.ok) throw new Error(`${answer.status}`);
  return metricsOf(await answer.text());
}

function UnsureDispatch({ one, onDone }: { readonly one: Dispatch; readonly onDone: () => void }) {
  const words = useWords();
  const times = useTimes();
  const { language } = usePrefs();
  const now = useNow(1000);
  const [saying, setSaying] = useState(false);
  const [problem, setProblem] = useState<ReturnType<typeof noteError> | null>(null);
  const [seen] = useState(() => Date.now());
  const act = (action: "settle" | "ended" | "cancel", because?: string) => {
    server.dispatches.resolve(one.operation, action, because).then(onDone, (error: unknown) => setProblem(noteError(error)));
  };
  const unsure = one.state === "UNKNOWN";
  return (
    <li className="notice" data-tone={unsure ? "unsure" : "open"}>
      <Icon name={unsure ? "unsure" : "pulse"} />
      <div className="card-body">
        <p className="card-head">
          <span className="tag mono" data-tone={unsure ? "unsure" : "open"}>
            {one.state}
          </span>
          <Link place={{ page: "conversation", id: one.conversation }} className="link mono" current={false}>
            {one.run}
          </Link>
          <span className="tabular">{words.age(times.span(one.age_ms + Math.max(0, now - seen)))}</span>
          {one.code !== null && <span className="mono">{one.code}</span>}
        </p>
        <p>{words.nextStep(words[nextOf(one, now)])}</p>
        {one.deadline_ms > now && <p className="tabular">{words.deadlineIn(times.span(one.deadline_ms - now))}</p>}
        {problem !== null && (
          <Notice
            tone="bad"
            title={words.wentWrong}
            code={problem.code}
            say={reasonOf(language, problem.code, problem.message)}
            onClose={() => setProblem(null)}
          />
        )}
      </div>
      <div className="doing">
        {one.actions.includes("settle") && (
          <button type="button" className="button main small" title={words.settleSay} onClick={() => act("settle")}>
            {words.settle}
          </button>
        )}
        {one.actions.includes("ended") && (
          <button type="button" className="button small" onClick={() => setSaying(true)}>
            {words.endedByMe}
          </button>
        )}
        {one.actions.includes("cancel") && (
          <button type="button" className="button small" onClick={() => act("cancel")}>
            {unsure ? words.cancelRun : words.stop}
          </button>
        )}
      </div>
      {saying && <Because onSay={(because) => act("ended", because)} onClose={() => setSaying(false)} />}
    </li>
  );
}

/** A person vouches for an end: the reason is kept as the proof. */
function Because(props: { readonly onSay: (because: string) => void; readonly onClose: () => void }) {
  const words = useWords();
  const [because, setBecause] = useState("");
  return (
    <Dialog title={words.endedByMe} onClose={props.onClose}>
      <form
        className="dialog-form"
        onSubmit={(event) => {
          event.preventDefault();
          if (because.trim() === "") return;
          props.onSay(because.trim());
          props.onClose();
        }}
      >
        <p className="aside">{words.endedSay}</p>
        <label className="label">
          {words.endedWhy}
          <input className="field" autoFocus required maxLength={500} value={because} onChange={(event) => setBecause(event.target.value)} />
        </label>
        <div className="doing">
          <button type="button" className="button" onClick={props.onClose}>
            {words.cancel}
          </button>
          <button type="submit" className="button main">
            {words.endedByMe}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function UnsureCall({ call }: { readonly call: Call }) {
  const words = useWords();
  return (
    <li className="notice" data-tone="unsure">
      <Icon name="wrench" />
      <div>
        <p className="card-head">
          <span className="tag mono" data-tone="unsure">
            {call.state}
          </span>
          <span className="mono">{call.name}</span>
        </p>
        <p>{words.unknownCallShort}</p>
      </div>
      <div className="doing">
        <Link place={{ page: "conversation", id: call.conversation }} className="button small" current={false}>
          {words.openConversation}
        </Link>
      </div>
    </li>
  );
}

function Figures({ metrics }: { readonly metrics: Metrics }) {
  const words = useWords();
  const times = useTimes();
  const runs = sumBy(metrics, "antiphon_runs_total", "outcome");
  const tokens = sumBy(metrics, "antiphon_tokens_total", "direction");
  const stays = [
    ["antiphon_partial_tool_dispatches_total", words.figurePartial],
    ["antiphon_commit_conflicts_total", words.figureConflicts],
  ] as const;
  const shown: readonly (readonly [string, string, string?])[] = [
    [words.figureRuns, times.number(sumOf(metrics, "antiphon_runs_total")), listed(words, runs)],
    [words.figureTokens, times.number(sumOf(metrics, "antiphon_tokens_total")), listed(words, tokens)],
    [words.figureWithdrawn, times.number(sumOf(metrics, "antiphon_previews_withdrawn_total"))],
    [words.figureLate, times.number(sumOf(metrics, "antiphon_late_blocks_total"))],
    [words.figureCalls, times.number(sumOf(metrics, "antiphon_tool_calls_total")), listed(words, sumBy(metrics, "antiphon_tool_calls_total", "outcome"))],
    [words.figureStreams, times.number(sumOf(metrics, "antiphon_streams"))],
  ];
  return (
    <>
      <dl className="figures">
        {shown.map(([name, value, more]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>
              <Ticking value={value} />
              {more !== undefined && more !== "" && <small>{more}</small>}
            </dd>
          </div>
        ))}
        {stays.map(([metric, name]) => {
          const value = sumOf(metrics, metric);
          return (
            <div key={metric}>
              <dt>{name}</dt>
              <dd>
                <span className="tag" data-tone={value === 0 ? "good" : "bad"}>
                  {times.number(value)}
                </span>
                <small>{words.figureStays}</small>
              </dd>
            </div>
          );
        })}
      </dl>
      <p className="aside">
        <a href="/metrics" target="_blank" rel="noopener">
          {words.allMetrics}
        </a>
      </p>
    </>
  );
}

/** A figure that shows when it changes. */
function Ticking({ value }: { readonly value: string }) {
  const [fresh, setFresh] = useState(false);
  const known = useRef(value); // the first one is no change
  useEffect(() => {
    if (known.current === value) return;
    known.current = value;
    setFresh(true);
    const timer = setTimeout(() => setFresh(false), 900);
    return () => clearTimeout(timer);
  }, [value]);
  return (
    <span className="ticking tabular" data-fresh={fresh || undefined}>
      {value}
    </span>
  );
}

function listed(words: Words, parts: ReadonlyMap<string, number>): string {
  return [...parts].map(([label, value]) => `${words.figureLabel(label)} ${value}`).join(" · ");
}

function Refusals({ metrics }: { readonly metrics: Metrics }) {
  const words = useWords();
  const times = useTimes();
  const { language } = usePrefs();
  const refused = [...sumBy(metrics, "antiphon_validator_refusals_total", "reason")].sort((a, b) => b[1] - a[1]);
  return (
    <section aria-labelledby="refused">
      <h2 id="refused">{words.refusedTitle}</h2>
      <p className="aside">{words.refusedSay}</p>
      {refused.length === 0 ? (
        <p className="all-well">
          <Icon name="tick" />
          {words.refusedNone}
        </p>
      ) : (
        <table className="facts">
          <tbody>
            {refused.map(([reason, count]) => (
              <tr key={reason}>
                <th scope="row" className="mono">
                  {reason}
                </th>
                <td>{reasonOf(language, reason)}</td>
                <td className="to-right tabular">{times.number(count)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}
