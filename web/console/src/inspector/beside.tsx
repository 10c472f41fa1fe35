/** What was looked up for a message, how each search ended, and what of it the model was shown. */

import type { Explanation } from "@antiphon/client";
import { server } from "../server";
import { useLoaded } from "../store/loaded";
import { useTimes, useWords } from "../words";

interface Searched {
  readonly source: string;
  readonly status: string;
  readonly reason?: string;
  readonly candidates?: number;
  readonly best_score?: number | null;
  readonly used?: number;
}

interface Beside {
  readonly inputs?: readonly { readonly kind: string; readonly text: string; readonly source?: string; readonly key?: string }[];
  readonly searched?: readonly Searched[];
}

const TONES: Readonly<Record<string, string>> = { hit: "good", empty: "", low_score: "unsure", timeout: "bad", failed: "bad" };

export function BesideView({ explanation }: { readonly explanation: Explanation }) {
  const words = useWords();
  const times = useTimes();
  const { run } = explanation;
  const message = explanation.input?.id ?? run.asked_parent;
  const told = useLoaded(
    async (): Promise<Beside> =>
      message === null
        ? {}
        : server.request<Beside>("GET", `/messages/${encodeURIComponent(message)}/beside`, {
            query: { conversation: run.conversation },
          }),
    [message, run.conversation, run.status],
  );
  const searched = told.value?.searched ?? [];
  const inputs = told.value?.inputs ?? [];
  if (searched.length + inputs.length === 0) return null;
  return (
    <section>
      <h3 className="caps">{words.lookedUp}</h3>
      <ul className="plain-list">
        {searched.map((one) => (
          <li key={one.source}>
            <span className="tag mono" data-tone={TONES[one.status] ?? ""}>
              {one.status}
            </span>{" "}
            <span className="mono">{one.source}</span>{" "}
            <span className="aside tabular">
              {words.searchedSay(one.candidates ?? 0, one.used ?? 0)}
              {one.best_score != null && ` ${words.bestScore(times.number(Math.round(one.best_score * 100) / 100))}`}{" "}
              {one.reason}
            </span>
          </li>
        ))}
      </ul>
      {inputs.map((input, at) => (
        <details key={at} className="thoughts">
          <summary>
            <span className="tag mono">{input.kind}</span>
            <span className="mono">{input.source ?? input.key ?? ""}</span>
          </summary>
          <p className="literal">{input.text}</p>
        </details>
      ))}
    </section>
  );
}
