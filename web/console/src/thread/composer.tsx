/** Where a person writes. Enter sends, but not while an input method composes a word. */

import type { Ask, Part } from "@antiphon/client";
import { type KeyboardEvent, type Ref, useEffect, useImperativeHandle, useRef, useState } from "react";
import { keep, kept } from "../prefs";
import { base64Of } from "../store/base64";
import { useModels } from "../store/models";
import type { Draft } from "../store/outbox";
import { Icon } from "../ui/icons";
import { useWords } from "../words";

const EMPTY: Draft = { text: "", files: [] };

export interface ComposerHandle {
  focus(): void;
  /** Put a draft back, such as one that was not sent. */
  put(draft: Draft): void;
}

interface ComposerProps {
  /** Under which name what is written is kept, until it is sent. */
  readonly draftName?: string;
  /** The message of which another version is written. */
  readonly editing?: Draft;
  /** The model that was asked last: it is asked again unless another one is chosen. */
  readonly lastModel?: string | undefined;
  readonly onSend: (draft: Draft, ask: Ask) => void;
  readonly onCancel?: () => void;
  readonly onStop?: (() => void) | undefined;
  readonly stopping?: boolean;
  readonly busy?: boolean;
  readonly note?: string | undefined;
  readonly autoFocus?: boolean;
  readonly ref?: Ref<ComposerHandle>;
}

export function Composer(props: ComposerProps) {
  const words = useWords();
  const models = useModels();
  const { draftName, editing } = props;
  const [draft, setDraft] = useState<Draft>(
    () => editing ?? { text: (draftName !== undefined && kept(`antiphon.draft.${draftName}`)) || "", files: [] },
  );
  const [chosen, setModel] = useState<string | null>(null);
  const last = models.find((one) => one.name === props.lastModel && !one.default);
  const model = chosen ?? last?.name ?? "";
  const [problem, setProblem] = useState<string | null>(null);
  const area = useRef<HTMLTextAreaElement>(null);
  const files = useRef<HTMLInputElement>(null);
  useImperativeHandle(props.ref, () => ({
    focus: () => area.current?.focus(),
    put: (back) => setDraft((now) => (now.text === "" ? back : { ...now, text: `${back.text}\n${now.text}` })),
  }));

  useEffect(() => {
    if (draftName !== undefined) keep(`antiphon.draft.${draftName}`, draft.text === "" ? null : draft.text);
  }, [draftName, draft.text]);

  useEffect(() => {
    if (editing !== undefined || props.autoFocus === true) {
      area.current?.focus();
      area.current?.setSelectionRange(-1, -1);
    }
  }, [editing !== undefined, props.autoFocus]);

  const ready = draft.text.trim() !== "" || draft.files.length > 0;
  const send = () => {
    if (!ready) return;
    props.onSend(draft, model === "" ? {} : { model });
    if (editing === undefined) setDraft(EMPTY);
  };
  const onKeyDown = (event: KeyboardEvent<HTMLTextAreaElement>) => {
    // 229 is what browsers without `isComposing` on this event say of a key that an input method took.
    if (event.nativeEvent.isComposing || event.keyCode === 229) return;
    if (event.key === "Enter" && !event.shiftKey && !event.altKey) {
      event.preventDefault();
      send();
    } else if (event.key === "Escape" && props.onCancel !== undefined) {
      event.stopPropagation();
      props.onCancel();
    }
  };
  const take = async (chosen: Iterable<File>): Promise<void> => {
    const taken: Part[] = [];
    for (const file of chosen) {
      if (file.size > LARGEST_BYTES) setProblem(words.tooLarge(file.name));
      else taken.push(await partOf(file));
    }
    setDraft((before) => ({ ...before, files: [...before.files, ...taken] }));
  };

  return (
    <form
      className="composer"
      data-editing={editing !== undefined || undefined}
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
      onDragOver={(event) => event.preventDefault()}
      onDrop={(event) => {
        event.preventDefault();
        void take(event.dataTransfer.files);
      }}
    >
      {props.note !== undefined && <p className="composer-note">{props.note}</p>}
      {draft.files.length > 0 && (
        <ul className="chips">
          {draft.files.map((part, at) => (
            <li key={at} className="attached">
              <Icon name="file" />
              {nameOf(part)}
              <button
                type="button"
                className="tool"
                aria-label={words.detach(nameOf(part))}
                onClick={() => setDraft({ ...draft, files: draft.files.filter((_, other) => other !== at) })}
              >
                <Icon name="close" />
              </button>
            </li>
          ))}
        </ul>
      )}
      <div className="grow" data-text={`${draft.text}\n`}>
        <textarea
          ref={area}
          rows={1}
          aria-label={editing === undefined ? words.composer : words.editField}
          placeholder={words.composerPlaceholder}
          value={draft.text}
          onChange={(event) => setDraft({ ...draft, text: event.target.value })}
          onKeyDown={onKeyDown}
          onPaste={(event) => {
            if (event.clipboardData.files.length === 0) return;
            event.preventDefault();
            void take(event.clipboardData.files);
          }}
        />
      </div>
      {problem !== null && (
        <p role="alert" className="problem">
          {problem}
        </p>
      )}
      <div className="composer-foot">
        <input
          ref={files}
          type="file"
          multiple
          hidden
          aria-label={words.attach}
          onChange={(event) => {
            void take(event.target.files ?? []);
            event.target.value = "";
          }}
        />
        <button
          type="button"
          className="tool big"
          aria-label={words.attach}
          title={words.attach}
          onClick={() => files.current?.click()}
        >
          <Icon name="attach" />
        </button>
        {models.length > 0 && (
          <select className="model" aria-label={words.model} value={model} onChange={(event) => setModel(event.target.value)}>
            {models.map((one) => (
              <option key={one.name} value={one.default ? "" : one.name} title={one.about}>
                {one.name}
              </option>
            ))}
          </select>
        )}
        <span className="composer-hint" aria-hidden="true">
          {editing === undefined ? words.composerHint : words.editSay}
        </span>
        {props.onCancel !== undefined && (
          <button type="button" className="button" onClick={props.onCancel}>
            {words.cancel}
          </button>
        )}
        {props.onStop !== undefined && (
          <button type="button" className="button stop" disabled={props.stopping === true} onClick={props.onStop}>
            <Icon name="stop" />
            {props.stopping === true ? words.stopping : words.stop}
          </button>
        )}
        {(props.onStop === undefined || ready) && (
          <button
            type="submit"
            className="button main send"
            disabled={!ready}
            title={props.busy === true ? words.sendLater : undefined}
          >
            <Icon name="send" />
            {props.busy === true ? words.sendLater : words.send}
          </button>
        )}
      </div>
    </form>
  );
}

const LARGEST_BYTES = 15 * 1024 * 1024;

function nameOf(part: Part): string {
  if (part.kind === "file") return part.filename ?? part.file_id ?? part.kind;
  if (part.kind === "image") return part.media_type ?? part.kind;
  return part.kind;
}

/** Return a file as a part of a message: a picture, or a document with its name. */
async function partOf(file: File): Promise<Part> {
  const data = base64Of(new Uint8Array(await file.arrayBuffer()));
  if (/^image\/(png|jpeg|gif|webp)$/.test(file.type)) return { kind: "image", media_type: file.type, data };
  return { kind: "file", filename: file.name, media_type: file.type === "" ? "application/octet-stream" : file.type, data };
}
