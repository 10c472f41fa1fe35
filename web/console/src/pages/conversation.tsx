/** A conversation: what was said, what is being said, and where one writes. */

import { type AntiphonError, Branches, isOpen, type Message, type View } from "@antiphon/client";
import { useCallback, useEffect, useMemo, useRef, useState, useSyncExternalStore } from "react";
import { go } from "../address";
import { noteError, server } from "../server";
import { conversationsChanged } from "../store/list";
import { Outbox } from "../store/outbox";
import { useSessions } from "../store/sessions";
import { Composer, type ComposerHandle } from "../thread/composer";
import { DoingContext, doingOf } from "../thread/doing";
import { type Held, HeldContext } from "../thread/held";
import { leafSeen, newestRun, openRows, type Row, settledRows, stretchesOf, workingRun } from "../thread/rows";
import { Thread, type ThreadHandle } from "../thread/thread";
import { usePrefs } from "../prefs";
import { useShortcuts } from "../shortcuts";
import { useWords, type Words } from "../words";
import { reasonOf } from "../words/reasons";
import { Notice } from "../ui/notice";
import { Inspector } from "../inspector/panel";
import { Header } from "./header";

/** The page of one conversation; another conversation is another page (`key`). */
export function ConversationPage({ id }: { readonly id: string }) {
  const [live] = useState(() => server.live(id));
  useEffect(() => () => live.close(), [live]);
  const [outbox] = useState(() => new Outbox(id, (run) => live.adopt(run)));
  const view = useSyncExternalStore(live.subscribe, live.getSnapshot);
  const parcels = useSyncExternalStore(outbox.subscribe, outbox.parcels);
  const words = useWords();
  const { language } = usePrefs();

  const [elsewhere, setElsewhere] = useState<string | null>(null);
  const [explained, setExplained] = useState<string | null>(null);
  const [editing, setEditing] = useState<string | null>(null);
  const [stopping, setStopping] = useState<string | null>(null);
  const [handingOver, setHandingOver] = useState(false);
  const [problem, setProblem] = useState<AntiphonError | null>(null);
  const composer = useRef<ComposerHandle>(null);
  const thread = useRef<ThreadHandle>(null);

  const deletions = view.conversation?.deletions;
  const branches = useMemo(() => new Branches(view.messages, deletions), [view.messages, deletions]);
  const working = workingRun(view.runs);
  const leaf = leafSeen(view, working === undefined ? null : elsewhere);
  const { runs, withdrawn } = view;
  const line = useMemo(() => branches.line(leaf), [branches, leaf]);
  const seen = useMemo(() => new Set(line.map((message) => message.id)), [line]);
  const sessions = useSessions(view.conversation);
  const settled = useMemo(
    () =>
      stretchesOf(branches, line, sessions).flatMap(({ session, line: part }, at, all): readonly Row[] => {
        const begins: Row[] =
          session?.previous == null
            ? []
            : [{ kind: "session", key: session.id, session, before: all[at - 1]?.session ?? null, active: session.active }];
        return [...begins, ...settledRows({ runs, withdrawn }, branches, part)];
      }),
    [runs, withdrawn, branches, line, sessions],
  );
  const open = openRows(view, seen);
  const onWay = parcels.filter((parcel) => !view.messages.has(parcel.id) && !open.some((row) => row.key === parcel.id));
  const rows = [...settled, ...open, ...onWay.map((parcel) => ({ kind: "parcel", key: parcel.id, parcel }) as const)];

  const forkedTitle = useRef<string | null>(null);
  const title = view.conversation?.title ?? null;
  forkedTitle.current = title === null ? null : words.forkedTitle(title).slice(0, 500);
  const fork = useCallback(
    (message: Message) => {
      server
        .request<{ id: string }>("POST", `/conversations/${encodeURIComponent(id)}/fork`, {
          body: { leaf: message.id, title: forkedTitle.current },
          again: false,
        })
        .then((made) => {
          conversationsChanged();
          go({ page: "conversation", id: made.id });
        })
        .catch((error: unknown) => setProblem(noteError(error)));
    },
    [id],
  );
  const { whole, details } = view;
  const held = useMemo(() => ({ branches, whole, runs, details }), [branches, whole, runs, details]);
  const doing = useMemo(
    () =>
      doingOf({
        live,
        outbox,
        onError: setProblem,
        onLook: setElsewhere,
        onExplain: setExplained,
        onFork: fork,
        onStopEditing: () => setEditing(null),
        onHandingOver: setHandingOver,
      }),
    [live, outbox, fork],
  );

  // The list tells which conversations are at work.
  const newest = newestRun(runs);
  useEffect(conversationsChanged, [working?.id, working?.status, newest?.id, newest?.status]);

  const stop = () => {
    if (working === undefined) return;
    setStopping(working.id);
    doing.stop(working.id);
    composer.current?.focus(); // the button goes, and the keyboard must not go with it
  };
  useShortcuts({
    next: () => thread.current?.step(1),
    previous: () => thread.current?.step(-1),
    write: () => composer.current?.focus(),
    stop,
    edit: () => {
      const message = near(rows, thread.current?.current(), "user");
      if (message !== null) setEditing(message.id);
    },
    regenerate: () => {
      const message = near(rows, thread.current?.current(), "assistant");
      if (message !== null) doing.regenerate(message.id, {});
    },
    why: () => {
      const run = near(rows, thread.current?.current(), "assistant")?.run;
      if (run !== undefined) setExplained(run);
    },
    olderVersion: () => turn(rows, thread.current?.current(), -1, held, doing.look),
    newerVersion: () => turn(rows, thread.current?.current(), 1, held, doing.look),
  });

  if (view.error !== null && view.conversation === null) return <Missing error={view.error} />;
  const waiting = working?.status === "waiting";
  return (
    <DoingContext value={doing}>
      <HeldContext value={held}>
        <div className="page" data-explained={explained !== null || undefined}>
          <main className="conversation" id="main">
            <Header view={view} sessions={sessions} leaf={leaf} branches={branches} onProblem={setProblem} />
            <Way view={view} />
            {view.conversation === null ? (
              <div className="filling" aria-busy="true">
                <p className="empty">{words.loading}</p>
              </div>
            ) : (
              <Thread
                ref={thread}
                rows={rows}
                editing={editing}
                onAgain={(parcel) => outbox.again(parcel)}
                onDiscard={(parcel) => {
                  const draft = outbox.discard(parcel);
                  if (draft !== null) composer.current?.put(draft);
                }}
              />
            )}
            <div className="writing">
              {problem !== null && (
                <Notice
                  tone="bad"
                  title={words.wentWrong}
                  code={problem.code}
                  say={reasonOf(language, problem.code, problem.message)}
                  onClose={() => setProblem(null)}
                />
              )}
              <Composer
                key={id}
                ref={composer}
                draftName={id}
                lastModel={newest?.options.model}
                autoFocus
                busy={working !== undefined}
                stopping={working !== undefined && stopping === working.id}
                note={handingOver ? words.handingOver : waiting ? words.waitsForCalls : undefined}
                onStop={working === undefined ? undefined : stop}
                onSend={(draft, ask) => {
                  doing.say(draft, ask);
                  thread.current?.toEnd();
                }}
              />
            </div>
            <Announcer view={view} words={words} />
          </main>
          {explained !== null && (
            <Inspector
              run={explained}
              onClose={() => {
                setExplained(null);
                composer.current?.focus();
              }}
            />
          )}
        </div>
      </HeldContext>
    </DoingContext>
  );
}

/** Return the message of `role` that row `at` holds, or the nearest one above it. */
function near(rows: readonly { readonly kind: string }[], at: number | undefined, role: string): Message | null {
  for (let row = at ?? rows.length - 1; row >= 0; row--) {
    const one = rows[row] as Row | undefined;
    if (one?.kind === "message" && one.message.role === role) return one.message;
  }
  return null;
}

function turn(
  rows: readonly { readonly kind: string }[],
  at: number | undefined,
  by: number,
  { branches, whole }: Held,
  look: (leaf: string) => void,
): void {
  if (!whole) return;
  for (let row = at ?? rows.length - 1; row >= 0; row--) {
    const one = rows[row] as Row | undefined;
    if (one?.kind !== "message" || one.beside.length < 2) continue;
    const to = one.beside[one.beside.indexOf(one.message.id) + by];
    if (to !== undefined) look(branches.leafBelow(to));
    return;
  }
}

/** How the way to the server is, where that is worth saying. */
function Way({ view }: { readonly view: View }) {
  const words = useWords();
  if (view.connection === "reconnecting") return <p className="way" role="status">{words.reconnecting}</p>;
  if (view.connection === "closed") return <p className="way" role="status">{words.connectionClosed}</p>;
  return null;
}

function Missing({ error }: { readonly error: AntiphonError }) {
  const words = useWords();
  noteError(error);
  const gone = error.status === 404;
  return (
    <main className="conversation" id="main">
      <div className="empty filling">
        <h2>{gone ? words.notFound : words.wentWrong}</h2>
        <p>{gone ? words.notFoundSay : error.message}</p>
        <button type="button" className="button main" onClick={() => go({ page: "new" })}>
          {words.newConversation}
        </button>
      </div>
    </main>
  );
}

/** Says aloud what became of answers, and no token of them. */
function Announcer({ view, words }: { readonly view: View; readonly words: Words }) {
  const said = useRef(new Map<string, string>());
  const [text, setText] = useState("");
  useEffect(() => {
    const known = said.current;
    const first = known.size === 0;
    for (const run of view.runs.values()) {
      const state = isOpen(run.status) && view.previews.has(run.id) ? "writing" : run.status;
      if (known.get(run.id) === state) continue;
      known.set(run.id, state);
      if (first) continue;
      const sentence = SAID[state];
      if (sentence !== undefined) setText(words[sentence] as string);
    }
  }, [view.runs, view.previews, words]);
  const taken = view.withdrawn.length;
  useEffect(() => {
    if (taken > 0) setText(words.saidWithdrawn);
  }, [taken, words]);
  return (
    <div className="unseen" role="status" aria-live="polite">
      {text}
    </div>
  );
}

const SAID: Readonly<Record<string, keyof Words>> = {
  writing: "saidAnswering",
  success: "saidSaved",
  error: "saidFailed",
  canceled: "saidStopped",
  unknown: "saidUnknown",
  waiting: "saidWaiting",
};
