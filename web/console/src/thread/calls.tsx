/** A tool call, from the moment its message is committed to its one result; and what a person decides about it. */

import type { Block, Call, ToolCallBlock, ToolResultBlock } from "@antiphon/client";
import { useId, useState } from "react";
import { Icon } from "../ui/icons";
import { useWords, type Words } from "../words";
import { useDoing } from "./doing";
import { useHeld } from "./held";
import { Code } from "./markdown";

type Tone = "good" | "open" | "unsure" | "bad" | "plain";

export function CallCard(props: {
  readonly block: ToolCallBlock;
  readonly run: string | null;
  readonly result: ToolResultBlock | null;
}) {
  const words = useWords();
  const { block, result, run } = props;
  const { details } = useHeld();
  const call = run === null ? undefined : details.get(run)?.calls.find((one) => one.call_id === block.call_id);
  const [state, tone] = stateOf(words, call, result);
  const decides = call !== undefined && call.state === "PENDING" && call.approval === "needed";
  const answers = call !== undefined && call.state === "PENDING" && call.runner === "client" && !decides;
  const unsure = call?.state === "UNKNOWN";
  const [open, setOpen] = useState(false);
  const content = call !== undefined && call.content.length > 0 ? call.content : (result?.content ?? []);
  return (
    <section className="call-card" data-tone={tone} aria-label={`${words.call} ${block.name}`}>
      <button type="button" className="call-head" aria-expanded={open || decides} onClick={() => setOpen(!open)}>
        <Icon name="wrench" />
        <span className="mono call-name">{block.name}</span>
        <span className="mono call-brief">{open || decides ? "" : brief(call?.changed_arguments ?? block.arguments)}</span>
        {call !== undefined && call.attempt > 1 && <span className="tag">{words.attempt(call.attempt)}</span>}
        <span className="tag" data-tone={tone}>
          {state}
        </span>
      </button>
      {(open || decides || answers || unsure) && (
        <div className="call-body">
          {call?.reused_from != null && <p className="aside">{words.callReused}</p>}
          {!decides && (
            <>
              <p className="caps">{words.callArguments}</p>
              <Code text={pretty(call?.changed_arguments ?? block.arguments)} language="json" />
              {call?.changed_arguments != null && <p className="aside">{words.callChanged}</p>}
            </>
          )}
          {decides && run !== null && <Decision run={run} call={call} />}
          {answers && run !== null && <GiveResult run={run} call={call} />}
          {unsure && run !== null && <SayFate run={run} call={call} />}
          {content.length > 0 && (
            <>
              <p className="caps">{words.callResult}</p>
              <Code text={pretty(textOfBlocks(content))} />
            </>
          )}
          {(result?.code ?? call?.code) != null && <p className="mono aside">{result?.code ?? call?.code}</p>}
        </div>
      )}
    </section>
  );
}

function stateOf(words: Words, call: Call | undefined, result: ToolResultBlock | null): readonly [string, Tone] {
  if (result !== null) {
    const outcome = result.outcome ?? "success";
    if (outcome === "success") return [words.callSuccess, "good"];
    return outcome === "error" ? [words.callError, "bad"] : [words.callCanceled, "plain"];
  }
  switch (call?.state) {
    case undefined:
      return [words.callPending, "plain"];
    case "PENDING":
      if (call.approval === "needed") return [words.callNeedsApproval, "unsure"];
      return call.runner === "client" ? [words.callNeedsOutput, "unsure"] : [words.callPending, "open"];
    case "EXECUTING":
      return [words.callExecuting, "open"];
    case "SUCCESS":
      return [words.callSuccess, "good"];
    case "ERROR":
      return [words.callError, "bad"];
    case "CANCELED":
      return [words.callCanceled, "plain"];
    case "UNKNOWN":
      return [words.callUnknown, "unsure"];
  }
}

/** Approve, refuse, or approve with other arguments. */
function Decision({ run, call }: { readonly run: string; readonly call: Call }) {
  const words = useWords();
  const doing = useDoing();
  const [text, setText] = useState(() => pretty(call.arguments));
  const [editing, setEditing] = useState(false);
  const [refusing, setRefusing] = useState(false);
  const [reason, setReason] = useState("");
  const [wrong, setWrong] = useState(false);
  const field = useId();
  if (refusing) {
    return (
      <form
        className="deciding"
        onSubmit={(event) => {
          event.preventDefault();
          doing.refuse(run, call.call_id, reason);
        }}
      >
        <label className="label" htmlFor={field}>
          {words.refuseWhy}
        </label>
        <input id={field} className="field" autoFocus value={reason} onChange={(event) => setReason(event.target.value)} />
        <div className="doing-row">
          <button type="submit" className="button danger small">
            {words.refuse}
          </button>
          <button type="button" className="button small" onClick={() => setRefusing(false)}>
            {words.cancel}
          </button>
        </div>
      </form>
    );
  }
  const approve = () => {
    if (!editing) return doing.approve(run, call.call_id);
    const wanted = compact(text);
    setWrong(wanted === null);
    if (wanted !== null) doing.approve(run, call.call_id, wanted);
  };
  return (
    <div className="deciding">
      <p className="caps">{words.callArguments}</p>
      {editing ? (
        <textarea
          className="field mono"
          aria-label={words.callArguments}
          aria-invalid={wrong}
          autoFocus
          rows={Math.min(12, text.split("\n").length + 1)}
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
      ) : (
        <Code text={pretty(call.arguments)} language="json" />
      )}
      {wrong && <p role="alert" className="problem">{words.badJson}</p>}
      <div className="doing-row">
        <button type="button" className="button main small" onClick={approve}>
          {editing ? words.approveChanged : words.approve}
        </button>
        {!editing && (
          <button type="button" className="button small" onClick={() => setEditing(true)}>
            {words.editArguments}
          </button>
        )}
        <button type="button" className="button danger small" onClick={() => setRefusing(true)}>
          {words.refuse}
        </button>
      </div>
    </div>
  );
}

/** The result of a call that the client runs, given by hand. All open calls of a run are answered at once. */
function GiveResult({ run, call }: { readonly run: string; readonly call: Call }) {
  const words = useWords();
  const doing = useDoing();
  const { details } = useHeld();
  const open = (details.get(run)?.calls ?? []).filter((one) => one.state === "PENDING" && one.runner === "client");
  const [results, setResults] = useState<Readonly<Record<string, string>>>({});
  if (open[0]?.call_id !== call.call_id) return null; // the first of them asks for all
  return (
    <form
      className="deciding"
      onSubmit={(event) => {
        event.preventDefault();
        doing.answer(
          run,
          open.map(({ call_id }) => ({ call_id, output: results[call_id] ?? "", error: false })),
        );
      }}
    >
      {open.map((one) => (
        <label key={one.call_id} className="label">
          {words.resultField(one.name)}
          <textarea
            className="field mono"
            rows={2}
            value={results[one.call_id] ?? ""}
            onChange={(event) => setResults({ ...results, [one.call_id]: event.target.value })}
          />
        </label>
      ))}
      <div className="doing-row">
        <button type="submit" className="button main small">
          {words.giveResult}
        </button>
      </div>
    </form>
  );
}

/** What became of a call that may have taken effect; only a person can say. */
function SayFate({ run, call }: { readonly run: string; readonly call: Call }) {
  const words = useWords();
  const doing = useDoing();
  const [output, setOutput] = useState("");
  const [failed, setFailed] = useState(false);
  return (
    <form
      className="deciding"
      onSubmit={(event) => {
        event.preventDefault();
        doing.resolveCall(run, call.call_id, output, failed);
      }}
    >
      <label className="label">
        {words.unknownCallSay}
        <textarea className="field mono" rows={2} value={output} onChange={(event) => setOutput(event.target.value)} />
      </label>
      <div className="doing-row">
        <label className="check">
          <input type="checkbox" checked={failed} onChange={(event) => setFailed(event.target.checked)} />
          {words.isError}
        </label>
        <button type="submit" className="button main small">
          {words.giveResult}
        </button>
      </div>
    </form>
  );
}

function textOfBlocks(blocks: readonly Block[]): string {
  return blocks.map((block) => (block.kind === "text" ? block.text : `[${block.kind}]`)).join("\n");
}

/** Return JSON indented, and anything else as it is. */
export function pretty(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function compact(text: string): string | null {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? JSON.stringify(value) : null;
  } catch {
    return null;
  }
}

function brief(text: string): string {
  return text === "{}" ? "" : text;
}
