/** One turn of the thread: a call or a response, with its versions and what can be done with it. */

import type { Message } from "@antiphon/client";
import { memo, type ReactNode, useState } from "react";
import { useModels } from "../store/models";
import { CopyButton } from "../ui/copying";
import { Icon, Mark } from "../ui/icons";
import { type Choice, Confirm, Menu } from "../ui/overlays";
import { useTimes, useWords } from "../words";
import { Blocks } from "./blocks";
import { Composer } from "./composer";
import { draftOf, useDoing } from "./doing";
import { useHeld } from "./held";
import { countBelow, type MessageRow, newestRun, textOf } from "./rows";

export type Ink = "saved" | "preview" | "stopped" | "failed" | "waiting";

/** The frame that calls and responses share: the mark in the margin, and the line that tells how sure it is. */
export function Turn(props: {
  readonly of: "call" | "response";
  readonly who: string;
  readonly ink: Ink;
  readonly foot?: ReactNode;
  readonly children: ReactNode;
}) {
  return (
    <div className={`turn ${props.of}`} data-ink={props.ink}>
      <div className="margin">
        <Mark of={props.of} />
      </div>
      <div className="said">
        <span className="unseen">{props.who}</span>
        <div className="words">{props.children}</div>
        {props.foot !== undefined && <footer className="said-foot">{props.foot}</footer>}
      </div>
    </div>
  );
}

export const MessageTurn = memo(function MessageTurn({ row, edits }: { readonly row: MessageRow; readonly edits: boolean }) {
  const words = useWords();
  const { message } = row;
  const [editing, setEditing] = useState(false);
  const doing = useDoing();
  const { runs } = useHeld();
  if (message.role === "system" || message.role === "developer") return <Instruction message={message} />;
  const call = message.role === "user";
  if (call && (editing || edits)) {
    return (
      <Turn of="call" who={words.you} ink="saved">
        <Composer
          editing={draftOf(message)}
          lastModel={(runs.get(message.run ?? "") ?? newestRun(runs))?.options.model}
          onSend={(draft, ask) => {
            doing.edit(message, draft, ask);
            setEditing(false);
            doing.stopEditing();
          }}
          onCancel={() => {
            setEditing(false);
            doing.stopEditing();
          }}
        />
      </Turn>
    );
  }
  return (
    <Turn
      of={call ? "call" : "response"}
      who={call ? words.you : words.answer}
      ink={inkOf(message)}
      foot={<Foot row={row} onEdit={() => setEditing(true)} />}
    >
      <Origin message={message} />
      {message.erased === true ? <p className="aside">{words.erased}</p> : <Blocks message={message} results={row.results} />}
      {message.status === "canceled" && (
        <p className="aside">
          {words.canceledText}{" "}
          {textOf(message) !== "" && (
            <button type="button" className="link" onClick={() => doing.keep(message)}>
              {words.keepText}
            </button>
          )}
        </p>
      )}
    </Turn>
  );
});

function inkOf(message: Message): Ink {
  switch (message.status ?? "success") {
    case "pending":
      return "waiting";
    case "canceled":
      return "stopped";
    case "error":
      return "failed";
    default:
      return "saved";
  }
}

function Origin({ message }: { readonly message: Message }) {
  const words = useWords();
  const said = { kept: words.keptText, imported: words.importedText }[message.origin as "kept"];
  return said === undefined ? null : <p className="aside">{said}</p>;
}

function Instruction({ message }: { readonly message: Message }) {
  const words = useWords();
  return (
    <details className="instruction">
      <summary>{words.systemMessage}</summary>
      <p className="literal">{textOf(message)}</p>
    </details>
  );
}

/** Under a message: its versions, what it cost, what can be done. */
function Foot({ row, onEdit }: { readonly row: MessageRow; readonly onEdit: () => void }) {
  const words = useWords();
  const times = useTimes();
  const doing = useDoing();
  const { branches } = useHeld();
  const [asking, setAsking] = useState(false);
  const { message } = row;
  const call = message.role === "user";
  const { run } = message;
  return (
    <>
      {row.beside.length > 1 && <Versions row={row} />}
      <div className="doings">
        <CopyButton label={words.copy} text={() => textOf(message)} />
        {call && (
          <button type="button" className="tool" aria-label={words.edit} title={words.edit} onClick={onEdit}>
            <Icon name="edit" />
          </button>
        )}
        {!call && (
          <button
            type="button"
            className="tool"
            aria-label={words.regenerate}
            title={words.regenerate}
            onClick={() => doing.regenerate(message.id, {})}
          >
            <Icon name="again" />
          </button>
        )}
        {!call && run !== undefined && (
          <button type="button" className="tool" aria-label={words.why} title={words.why} onClick={() => doing.explain(run)}>
            <Icon name="why" />
          </button>
        )}
        <More message={message} onRemove={() => setAsking(true)} />
      </div>
      <span className="meta">
        {row.last && <Cost message={message} />}
        {message.created_ms !== undefined && message.created_ms > 0 && (
          <time dateTime={new Date(message.created_ms).toISOString()} title={times.full(message.created_ms)}>
            {times.clock(message.created_ms)}
          </time>
        )}
      </span>
      {asking && (
        <Confirm
          danger
          title={words.removeTitle}
          say={words.removeSay(countBelow(branches, message.id))}
          action={words.remove}
          onAgree={() => doing.remove(message)}
          onClose={() => setAsking(false)}
        />
      )}
    </>
  );
}

function More({ message, onRemove }: { readonly message: Message; readonly onRemove: () => void }) {
  const words = useWords();
  const doing = useDoing();
  const models = useModels();
  const choices = (): readonly Choice[] => [
    ...(message.role === "assistant" ? models : []).map((model): Choice => ({
      name: words.regenerateWith(model.name),
      icon: "again",
      onChoose: () => doing.regenerate(message.id, { model: model.name }),
    })),
    { name: words.fork, icon: "fork", onChoose: () => doing.fork(message) },
    { name: words.remove, icon: "trash", danger: true, onChoose: onRemove },
  ];
  return <Menu label={words.more} icon="more" choices={choices} />;
}

function Versions({ row }: { readonly row: MessageRow }) {
  const words = useWords();
  const doing = useDoing();
  const { branches, whole } = useHeld();
  const at = row.beside.indexOf(row.message.id);
  const go = (to: number) => {
    const id = row.beside[to];
    if (id !== undefined) doing.look(branches.leafBelow(id));
  };
  return (
    <div className="versions" role="group" aria-label={words.versions}>
      <button
        type="button"
        className="tool"
        aria-label={words.previousVersion}
        disabled={at === 0 || !whole}
        onClick={() => go(at - 1)}
      >
        <Icon name="left" />
      </button>
      <span>
        <span className="unseen">{words.version(at + 1, row.beside.length)}</span>
        <span aria-hidden="true">{words.versionShort(at + 1, row.beside.length)}</span>
      </span>
      <button
        type="button"
        className="tool"
        aria-label={words.nextVersion}
        disabled={at === row.beside.length - 1 || !whole}
        onClick={() => go(at + 1)}
      >
        <Icon name="right" />
      </button>
    </div>
  );
}

/** What the run of an answer cost, and which model it was. */
function Cost({ message }: { readonly message: Message }) {
  const words = useWords();
  const times = useTimes();
  const { runs } = useHeld();
  const run = message.run === undefined ? undefined : runs.get(message.run);
  if (run === undefined) return null;
  return (
    <>
      {run.end_code === "truncated_by_length" && <span className="tag" data-tone="unsure">{words.cutByLength}</span>}
      <span>{run.options.model}</span>
      {run.output_tokens > 0 && (
        <span>{words.tokensInOut(times.number(run.input_tokens), times.number(run.output_tokens))}</span>
      )}
      {run.cost !== null && run.cost !== undefined && <span>{times.money(run.cost)}</span>}
    </>
  );
}
