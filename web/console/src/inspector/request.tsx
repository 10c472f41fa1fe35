/** The exact request: as it left, verified by its digest; as a command; against the one before. */

import type { Explanation, Sent } from "@antiphon/client";
import { useMemo, useState } from "react";
import { usePrefs } from "../prefs";
import { server } from "../server";
import { useLoaded } from "../store/loaded";
import { pretty } from "../thread/calls";
import { CopyButton } from "../ui/copying";
import { Icon } from "../ui/icons";
import { useTimes, useWords } from "../words";
import { reasonOf } from "../words/reasons";
import { curlOf } from "./curl";
import { commonBytes, diff, folded } from "./diff";

export interface DispatchName {
  readonly run: string;
  readonly operation: string;
}

export function RequestView(props: { readonly explanation: Explanation; readonly before: DispatchName | null }) {
  const words = useWords();
  const { language } = usePrefs();
  const { run, operations } = props.explanation;
  const names = operations.map((one) => one.manifest.operation);
  const [chosen, setChosen] = useState<string | null>(null);
  const operation = chosen ?? names.at(-1) ?? null;
  const at = operation === null ? -1 : names.indexOf(operation);
  const before: DispatchName | null = at > 0 ? { run: run.id, operation: names[at - 1]! } : props.before;
  const [comparing, setComparing] = useState(false);
  const sent = useLoaded(
    () => (operation === null ? Promise.resolve(null) : server.runs.request(run.id, operation)),
    [run.id, operation],
  );
  const last = useLoaded(
    () => (before === null ? Promise.resolve(null) : server.runs.request(before.run, before.operation).catch(() => null)),
    [before?.operation],
  );
  if (operation === null) return <p className="empty">{words.nothingSent}</p>;
  return (
    <>
      <div className="bar-of-choices">
        {names.length > 1 && (
          <select className="model" aria-label={words.dispatch} value={operation} onChange={(event) => setChosen(event.target.value)}>
            {names.map((name, step) => (
              <option key={name} value={name}>
                {words.stepAt(step + 1)}
              </option>
            ))}
          </select>
        )}
        <label className="check">
          <input
            type="checkbox"
            checked={comparing}
            disabled={last.value === null}
            onChange={(event) => setComparing(event.target.checked)}
          />
          {words.compare}
        </label>
      </div>
      {sent.error !== null && (
        <p className="notice" data-tone="bad">
          <Icon name="wrong" />
          <span>
            <span className="mono">{sent.error.code}</span> {reasonOf(language, sent.error.code, sent.error.message)}
          </span>
        </p>
      )}
      {sent.value !== null && <Shown sent={sent.value} last={last.value} comparing={comparing} />}
    </>
  );
}

function Shown({ sent, last, comparing }: { readonly sent: Sent; readonly last: Sent | null; readonly comparing: boolean }) {
  const words = useWords();
  const times = useTimes();
  const body = useMemo(() => pretty(sent.body), [sent.body]);
  const size = new TextEncoder().encode(sent.body).length;
  const kept = useMemo(() => (last === null ? null : commonBytes(last.body, sent.body)), [last, sent]);
  const lastSize = last === null ? 0 : new TextEncoder().encode(last.body).length;
  return (
    <>
      <p className="verified">
        <Icon name="tick" />
        <span>
          {words.verified(times.number(size))} <span className="mono digest">{sent.request_digest}</span>
        </span>
      </p>
      {kept !== null && lastSize > 0 && (
        <div className="meter">
          <div className="meter-track" aria-hidden="true">
            <i style={{ width: `${(100 * kept) / size}%` }} />
          </div>
          <p className="aside tabular">{words.prefixKept(times.number(kept), times.number(lastSize))}</p>
        </div>
      )}
      <div className="doing-row">
        <CopyButton className="button small" shown label={words.copyCurl} text={() => curlOf(sent)} />
        <CopyButton className="button small" shown label={words.copyBody} text={() => sent.body} />
      </div>
      <pre className="head-lines" tabIndex={0}>
        {`${sent.method} ${sent.url}\n${Object.entries(sent.headers)
          .map(([name, value]) => `${name}: ${value}`)
          .join("\n")}`}
      </pre>
      {comparing && last !== null ? <Compared before={pretty(last.body)} after={body} /> : (
        <pre className="body-lines" tabIndex={0}>
          {body}
        </pre>
      )}
    </>
  );
}

function Compared({ before, after }: { readonly before: string; readonly after: string }) {
  const words = useWords();
  const lines = useMemo(() => folded(diff(before, after)), [before, after]);
  return (
    <pre className="body-lines compared" tabIndex={0} aria-label={words.compare}>
      {lines.map((line, at) =>
        line === null ? (
          <span key={at} className="gap">
            ⋯{"\n"}
          </span>
        ) : (
          <span key={at} data-sign={line.sign}>
            {`${line.sign} ${line.text}\n`}
          </span>
        ),
      )}
    </pre>
  );
}
