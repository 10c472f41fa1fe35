/** What is recorded about a run: manifests, digests, what a profile changed, what came too late. */

import type { Explanation } from "@antiphon/client";
import { CopyButton } from "../ui/copying";
import { useWords } from "../words";

export function RecordView({ explanation }: { readonly explanation: Explanation }) {
  const words = useWords();
  const { run, operations, quarantined } = explanation;
  return (
    <>
      <Facts facts={[["run", run.id], ["conversation", run.conversation], ["session", run.session], ["kind", run.kind]]} />
      {operations.map(({ manifest, digest, mappings, attempts }, at) => (
        <section key={manifest.operation}>
          <h3 className="caps">{words.stepAt(at + 1)}</h3>
          <Facts
            facts={[
              ["operation", manifest.operation],
              ["purpose", manifest.purpose],
              ["adapter", `${manifest.adapter} v${manifest.adapter_version}`],
              ["provider", manifest.provider],
              ["model", manifest.model_revision],
              ["revision", String(manifest.conversation_revision)],
              ["base leaf", manifest.base_leaf],
              ["manifest", digest],
              ["sequence", manifest.sequence_digest],
              ["request", manifest.request_digest],
              ["handle", attempts.at(-1)?.handle ?? null],
              ["linked to", manifest.linked_to],
            ]}
          />
          {mappings.length > 0 && (
            <>
              <h4 className="caps">{words.mappings}</h4>
              <ul className="plain-list">
                {mappings.map((mapping, which) => (
                  <li key={which}>
                    <span className="tag mono">{String(mapping["rule"])}</span>{" "}
                    <span className="mono aside">{String(mapping["block"])}</span> {String(mapping["detail"] ?? "")}
                  </li>
                ))}
              </ul>
            </>
          )}
        </section>
      ))}
      {quarantined.length > 0 && (
        <section>
          <h3 className="caps">{words.quarantined}</h3>
          <ul className="plain-list">
            {quarantined.map((one, at) => (
              <li key={at}>
                <span className="tag mono">{one.reason}</span> <span className="literal aside">{one.data.slice(0, 400)}</span>
              </li>
            ))}
          </ul>
        </section>
      )}
    </>
  );
}

/** Names of stored fields are the same in every language: they are what one searches for. */
function Facts({ facts }: { readonly facts: readonly (readonly [name: string, value: string | null])[] }) {
  const words = useWords();
  return (
    <dl className="record">
      {facts.map(([name, value]) =>
        value === null ? null : (
          <div key={name}>
            <dt className="mono">{name}</dt>
            <dd className="mono">
              <span>{value}</span>
              <CopyButton label={words.copy} text={() => value} />
            </dd>
          </div>
        ),
      )}
    </dl>
  );
}
