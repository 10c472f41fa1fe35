/** What the model saw: the parts of the prompt against its window, and what stayed out. */

import type { Explanation } from "@antiphon/client";
import { usePrefs } from "../prefs";
import { server } from "../server";
import { useLoaded } from "../store/loaded";
import { useTimes, useWords, type Words } from "../words";
import { reasonOf } from "../words/reasons";
import { BesideView } from "./beside";
import { type PlanBlock, planOf, type PromptPlan } from "./plan";

export function PromptView({ explanation }: { readonly explanation: Explanation }) {
  const run = explanation.run.id;
  const attempts = explanation.operations.length;
  const words = useWords();
  const { language } = usePrefs();
  const told = useLoaded(async () => planOf(await server.runs.plan(run)), [run, attempts]);
  if (told.value === null) {
    if (told.error === null) return <p className="empty">{words.loading}</p>;
    return <p className="empty">{reasonOf(language, told.error.code, told.error.message)}</p>;
  }
  const plan = told.value;
  return (
    <>
      <Window plan={plan} />
      <table className="facts">
        <thead>
          <tr>
            <th scope="col">{words.promptPart}</th>
            <th scope="col" className="to-right">
              {words.promptPieces}
            </th>
            <th scope="col" className="to-right">
              {words.tokens}
            </th>
            <th scope="col">{words.promptCacheable}</th>
          </tr>
        </thead>
        <tbody>
          {plan.blocks.map((block) => (
            <Part key={block.kind} block={block} />
          ))}
        </tbody>
      </table>
      {plan.retrieval.map((one, at) => (
        <p key={at} className="aside">
          {words.retrievalWas(one.status, one.candidates)} {one.reason}
        </p>
      ))}
      <h3 className="caps">{words.leftOut}</h3>
      {plan.leftOut.length === 0 ? (
        <p className="aside">{words.nothingLeftOut}</p>
      ) : (
        <ul className="plain-list">
          {plan.leftOut.map((one) => (
            <li key={one.reason}>
              <span className="tag mono">{one.reason}</span> {words.messagesLeftOut(one.count)}
            </li>
          ))}
        </ul>
      )}
      <BesideView explanation={explanation} />
      {plan.prefix !== null && <Prefix prefix={plan.prefix} />}
    </>
  );
}

function Part({ block }: { readonly block: PlanBlock }) {
  const words = useWords();
  const times = useTimes();
  return (
    <tr>
      <th scope="row">
        <i className={`swatch ${block.kind}`} aria-hidden="true" />
        {kindOf(words, block.kind)}
      </th>
      <td className="to-right tabular">{times.number(block.sources)}</td>
      <td className="to-right tabular">{block.tokens === null ? "–" : times.number(block.tokens)}</td>
      <td>{block.cacheable ? words.yes : words.no}</td>
    </tr>
  );
}

function kindOf(words: Words, kind: string): string {
  const known: Readonly<Record<string, string>> = {
    system_policy: words.kindPolicy,
    tool_guidance: words.kindTools,
    stable_context: words.kindStable,
    transcript: words.kindTranscript,
    dynamic_context: words.kindDynamic,
  };
  return known[kind] ?? kind;
}

/** Two bars: what the prompt is made of; and what it takes of the window, what the answer may take, what is free. */
function Window({ plan }: { readonly plan: PromptPlan }) {
  const words = useWords();
  const times = useTimes();
  const used = plan.total ?? plan.blocks.reduce((sum, block) => sum + (block.tokens ?? 0), 0);
  const counted = plan.blocks.some((block) => block.tokens !== null);
  const all = plan.window ?? Math.max(1, used + (plan.output ?? 0));
  if (!counted) return null;
  return (
    <figure className="window">
      <div className="window-track" aria-hidden="true">
        {plan.blocks.map((block) => (
          <i key={block.kind} className={block.kind} style={{ width: `${(100 * (block.tokens ?? 0)) / Math.max(1, used)}%` }} />
        ))}
      </div>
      <div className="window-share" aria-hidden="true">
        <i className="used" style={{ width: `${(100 * used) / all}%` }} />
        {plan.output !== null && <i className="output" style={{ width: `${(100 * plan.output) / all}%` }} />}
      </div>
      <figcaption className="aside tabular">
        {plan.window === null
          ? words.windowUnknown(times.number(used))
          : words.windowUsed(times.number(used), times.number(plan.window), times.share(used / plan.window))}
        {plan.output !== null && ` ${words.windowOutput(times.number(plan.output))}`}
        {plan.outputReducedFrom !== null && ` ${words.windowReduced(times.number(plan.outputReducedFrom))}`}
        {plan.countedBy !== null && ` ${words.countedBy(plan.countedBy)}`}
      </figcaption>
    </figure>
  );
}

function Prefix({ prefix }: { readonly prefix: NonNullable<PromptPlan["prefix"]> }) {
  const words = useWords();
  const times = useTimes();
  return (
    <>
      <h3 className="caps">{words.prefix}</h3>
      <p className="aside tabular">{words.prefixKept(times.number(prefix.matched), times.number(prefix.last))}</p>
      {prefix.movedBy.length > 0 && (
        <p className="aside">
          {words.prefixMoved} <span className="mono">{prefix.movedBy.join(", ")}</span>
        </p>
      )}
    </>
  );
}
