/** Rollouts: how far the traffic of a model has come, and what the shadow found that would differ. */

import { server } from "../server";
import { useLoaded } from "../store/loaded";
import { useTimes, useWords } from "../words";

interface Tally {
  readonly outcome: string;
  readonly count: number;
}

interface Rollout {
  readonly tenant: string;
  readonly model: string;
  readonly stage: "off" | "shadow" | "without_tools" | "tools";
  readonly share: number;
  readonly requests: readonly Tally[];
}

interface Difference {
  readonly kind: string;
  readonly cause: string;
  readonly example: string;
  readonly count: number;
  readonly last_ms: number;
}

/** Of those who may not manage the server it is none of their business: nothing is shown. */
export function Shadow({ beat }: { readonly beat: number }) {
  const words = useWords();
  const told = useLoaded(
    () => server.request<{ readonly data: readonly Rollout[]; readonly paused: Readonly<Record<string, string>> }>("GET", "/rollouts"),
    [beat],
  );
  if (told.value === null) return null;
  const { data, paused } = told.value;
  return (
    <section aria-labelledby="shadow">
      <h2 id="shadow">{words.shadowTitle}</h2>
      <p className="aside">{words.shadowSay}</p>
      {data.length === 0 && <p className="aside">{words.shadowNone}</p>}
      {data.map((rollout) => (
        <Found key={`${rollout.tenant} ${rollout.model}`} rollout={rollout} beat={beat} />
      ))}
      {Object.entries(paused).map(([conversation, kind]) => (
        <p key={conversation} className="card-head">
          <span className="tag" data-tone="unsure">
            {words.shadowPaused}
          </span>
          <span className="mono">{conversation}</span> <span className="mono">{kind}</span>
        </p>
      ))}
    </section>
  );
}

function Found({ rollout, beat }: { readonly rollout: Rollout; readonly beat: number }) {
  const words = useWords();
  const times = useTimes();
  const query = { model: rollout.model, tenant: rollout.tenant };
  const found = useLoaded(
    () => server.request<{ readonly differences: readonly Difference[] }>("GET", "/rollouts/differences", { query }),
    [rollout.model, rollout.tenant, beat],
  );
  const stages = { off: words.stageOff, shadow: words.stageShadow, without_tools: words.stageNoTools, tools: words.stageTools };
  const differences = found.value?.differences ?? [];
  return (
    <div className="rollout">
      <p className="card-head">
        <strong className="mono">{rollout.model === "*" ? words.everyModel : rollout.model}</strong>
        <span className="tag" data-tone="open">
          {stages[rollout.stage]}
        </span>
        <span className="tabular">{words.shareOf(rollout.share)}</span>
        {rollout.requests.map((tally) => (
          <span key={tally.outcome} className="aside tabular">
            <span className="mono">{tally.outcome}</span> {times.number(tally.count)}
          </span>
        ))}
      </p>
      {differences.length > 0 && (
        <table className="facts">
          <thead>
            <tr>
              <th scope="col">{words.differenceKind}</th>
              <th scope="col">{words.differenceWhere}</th>
              <th scope="col">{words.differenceExample}</th>
              <th scope="col" className="to-right">
                {words.differenceCount}
              </th>
            </tr>
          </thead>
          <tbody>
            {differences.map((one) => (
              <tr key={`${one.kind} ${one.cause}`}>
                <td className="mono">{one.kind}</td>
                <td className="mono">{one.cause}</td>
                <td className="mono aside">{one.example}</td>
                <td className="to-right tabular">{times.number(one.count)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </div>
  );
}
