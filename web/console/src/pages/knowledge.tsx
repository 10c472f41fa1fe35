/** What stands beside a conversation: files that its questions are looked up in, and what is remembered for it. */

import type { AntiphonError } from "@antiphon/client";
import { useRef, useState } from "react";
import { usePrefs } from "../prefs";
import { noteError, server } from "../server";
import { useLoaded } from "../store/loaded";
import { base64Of } from "../store/base64";
import { Icon } from "../ui/icons";
import { Notice } from "../ui/notice";
import { Dialog } from "../ui/overlays";
import { useTimes, useWords } from "../words";
import { reasonOf } from "../words/reasons";

interface File {
  readonly id: string;
  readonly name: string;
  readonly bytes: number;
  readonly encoding: string;
  readonly passages: number;
}

interface Remembered {
  readonly key: string;
  readonly text: string;
  readonly kind?: "memory" | "stable";
  readonly conversation?: string | null;
}

export function KnowledgeDialog({ conversation, onClose }: { readonly conversation: string; readonly onClose: () => void }) {
  const words = useWords();
  const { language } = usePrefs();
  const [problem, setProblem] = useState<AntiphonError | null>(null);
  const fail = (error: unknown) => setProblem(noteError(error));
  return (
    <Dialog title={words.knowledge} className="wide-dialog" onClose={onClose}>
      {problem !== null && (
        <Notice
          tone="bad"
          title={words.wentWrong}
          code={problem.code}
          say={reasonOf(language, problem.code, problem.message)}
          onClose={() => setProblem(null)}
        />
      )}
      <Files path={`/conversations/${encodeURIComponent(conversation)}/files`} onFail={fail} />
      <Memories path={`/conversations/${encodeURIComponent(conversation)}/memories`} onFail={fail} />
    </Dialog>
  );
}

interface PartProps {
  readonly path: string;
  readonly onFail: (error: unknown) => void;
}

function Files({ path, onFail }: PartProps) {
  const words = useWords();
  const times = useTimes();
  const input = useRef<HTMLInputElement>(null);
  const [giving, setGiving] = useState(false);
  const files = useLoaded(() => server.request<{ readonly data: readonly File[] }>("GET", path), [path]);
  const give = async (chosen: FileList): Promise<void> => {
    setGiving(true);
    try {
      for (const file of chosen) {
        const body = { name: file.name, data: base64Of(new Uint8Array(await file.arrayBuffer())) };
        await server.request("POST", path, { body, again: false });
      }
    } catch (error) {
      onFail(error);
    }
    setGiving(false);
    files.again();
  };
  return (
    <section className="part" aria-labelledby="files">
      <div className="dialog-head">
        <h3 id="files">{words.files}</h3>
        <input
          ref={input}
          type="file"
          multiple
          hidden
          aria-label={words.giveFile}
          onChange={(event) => {
            if (event.target.files !== null) void give(event.target.files);
            event.target.value = "";
          }}
        />
        <button type="button" className="button small" disabled={giving} onClick={() => input.current?.click()}>
          <Icon name="plus" />
          {giving ? words.sending : words.giveFile}
        </button>
      </div>
      <p className="aside">{words.filesSay}</p>
      <ul>
        {files.value?.data.map((file) => (
          <li key={file.id} className="kept-row">
            <Icon name="file" />
            <span className="kept-name">{file.name}</span>
            <span className="aside tabular">
              {words.fileFacts(times.number(file.bytes), times.number(file.passages), file.encoding)}
            </span>
            <button
              type="button"
              className="tool"
              aria-label={words.detach(file.name)}
              onClick={() => {
                server.request("DELETE", `${path}/${encodeURIComponent(file.id)}`).then(files.again, onFail);
              }}
            >
              <Icon name="close" />
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Memories({ path, onFail }: PartProps) {
  const words = useWords();
  const [key, setKey] = useState("");
  const [text, setText] = useState("");
  const kept = useLoaded(() => server.request<{ readonly data: readonly Remembered[] }>("GET", path), [path]);
  return (
    <section className="part" aria-labelledby="memories">
      <h3 id="memories">{words.memories}</h3>
      <p className="aside">{words.memoriesSay}</p>
      <ul>
        {kept.value?.data.map((one) => (
          <li key={`${one.kind ?? ""} ${one.key}`} className="kept-row">
            <span className="mono">{one.key}</span>
            <span className="kept-name literal">{one.text}</span>
            {one.kind === "stable" && <span className="tag">{words.kindStable}</span>}
            {one.conversation == null ? (
              <span className="tag">{words.everywhere}</span>
            ) : (
              <button
                type="button"
                className="tool"
                aria-label={words.detach(one.key)}
                onClick={() => {
                  server
                    .request("DELETE", `${path}/${encodeURIComponent(one.key)}`, { query: { kind: one.kind ?? "memory" } })
                    .then(kept.again, onFail);
                }}
              >
                <Icon name="close" />
              </button>
            )}
          </li>
        ))}
      </ul>
      <form
        className="remember"
        onSubmit={(event) => {
          event.preventDefault();
          server.request("PUT", `${path}/${encodeURIComponent(key.trim())}`, { body: { text } }).then(() => {
            setKey("");
            setText("");
            kept.again();
          }, onFail);
        }}
      >
        <label className="label">
          {words.memoryKey}
          <input className="field" required maxLength={64} value={key} onChange={(event) => setKey(event.target.value)} />
        </label>
        <label className="label">
          {words.memoryText}
          <input className="field" required value={text} onChange={(event) => setText(event.target.value)} />
        </label>
        <button type="submit" className="button">
          {words.remember}
        </button>
      </form>
    </section>
  );
}
