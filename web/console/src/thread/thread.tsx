/** The thread: every row of the line, of which only those near the window are drawn. */

import type { Ref } from "react";
import { memo, useEffect, useImperativeHandle, useLayoutEffect, useMemo, useRef, useState } from "react";
import { VList, type VListHandle } from "virtua";
import type { Parcel } from "../store/outbox";
import { Icon } from "../ui/icons";
import { useWords } from "../words";
import { LiveTurn, OutcomeNote, ParcelTurn, QueuedTurn, WithdrawnNote } from "./open";
import type { Row } from "./rows";
import { SessionDivider } from "./session";
import { MessageTurn } from "./turn";

export interface ParcelRow {
  readonly kind: "parcel";
  readonly key: string;
  readonly parcel: Parcel;
}

export interface ThreadHandle {
  /** Put the keyboard on the row that many places on. */
  step(by: number): void;
  /** The row that the keyboard is on; the last one where it is on none. */
  current(): number;
  toEnd(): void;
}

interface ThreadProps {
  readonly rows: readonly (Row | ParcelRow)[];
  /** The message that is being edited, by a shortcut. */
  readonly editing: string | null;
  readonly onAgain: (parcel: string) => void;
  readonly onDiscard: (parcel: string) => void;
  readonly ref?: Ref<ThreadHandle>;
}

/** Within this many pixels of the end one is at the end. */
const NEAR = 48;

/** How high a row usually is, until it has been drawn: with a lower guess, four times as many would be drawn at first. */
const USUAL = 150;

const SCROLLS: ReadonlySet<string> = new Set(["ArrowUp", "ArrowDown", "PageUp", "PageDown", "Home", "End", " "]);

/** Return whether rows came above those that were there: then whoever reads these is not moved. */
function useOlder(rows: ThreadProps["rows"]): boolean {
  const first = useRef<string | undefined>(undefined);
  const older = useMemo(() => first.current !== undefined && rows[0]?.key !== first.current && rows.some((row) => row.key === first.current), [rows[0]?.key]);
  useLayoutEffect(() => {
    first.current = rows[0]?.key;
  });
  return older;
}

export function Thread({ rows, editing, onAgain, onDiscard, ref }: ThreadProps) {
  const words = useWords();
  const list = useRef<VListHandle>(null);
  const frame = useRef<HTMLDivElement>(null);
  const follows = useRef(true);
  const [away, setAway] = useState(false);
  const going = useRef<number | null>(null);
  const scrolled = useRef(false);
  const last = rows.length - 1;
  const older = useOlder(rows);

  const toEnd = () => {
    follows.current = true;
    scrolled.current = false;
    setAway(false);
    if (last >= 0) list.current?.scrollToIndex(last, { align: "end" });
  };
  const current = () => {
    const row = document.activeElement?.closest("[data-row]");
    return row instanceof HTMLElement && frame.current?.contains(row) === true ? Number(row.dataset["row"]) : last;
  };

  useImperativeHandle(ref, () => ({
    current,
    toEnd,
    step(by) {
      const on = document.activeElement?.closest("[data-row]") != null;
      const from = going.current ?? (on ? current() : null);
      const to = Math.max(0, Math.min(last, from === null ? last : from + by));
      if (to !== last) follows.current = false;
      going.current = to; // a row is there to be focused in the next frame; keys come faster
      list.current?.scrollToIndex(to, { align: "nearest" });
      requestAnimationFrame(() => {
        if (going.current !== to) return;
        going.current = null;
        frame.current?.querySelector<HTMLElement>(`[data-row="${to}"]`)?.focus();
      });
    },
  }));

  // Who is at the end stays there, whatever comes; who reads further up is left alone.
  useLayoutEffect(() => {
    if (follows.current && last >= 0) list.current?.scrollToIndex(last, { align: "end" });
  }, [last]);

  // Rows are measured after they are drawn, and grow while they are written.
  useEffect(() => {
    const inner = frame.current?.firstElementChild?.firstElementChild;
    if (!(inner instanceof HTMLElement)) return;
    const watch = new ResizeObserver(() => {
      const handle = list.current;
      if (follows.current && handle !== null) handle.scrollTo(handle.scrollSize);
    });
    watch.observe(inner);
    return () => watch.disconnect();
  }, []);

  return (
    <div
      className="thread"
      ref={frame}
      onWheel={() => (scrolled.current = true)}
      onTouchMove={() => (scrolled.current = true)}
      onKeyDown={(event) => (scrolled.current ||= SCROLLS.has(event.key))}
      onPointerDown={({ target }) => (scrolled.current ||= target === frame.current?.firstElementChild)}
    >
      <VList
        ref={list}
        role="feed"
        aria-label={words.thread}
        data={rows}
        shift={older}
        bufferSize={200}
        itemSize={USUAL}
        className="thread-list"
        onScroll={(offset) => {
          const handle = list.current;
          if (handle === null) return;
          const near = offset + handle.viewportSize >= handle.scrollSize - NEAR;
          // Rows that turn out longer than they were thought to be move the end away, too; only people leave it.
          if (near) scrolled.current = false;
          else if (follows.current && !scrolled.current) return;
          follows.current = near;
          setAway(!near);
        }}
      >
        {(row, at) => (
          <article
            key={row.key}
            className="row"
            tabIndex={-1}
            data-row={at}
            data-kind={row.kind}
            aria-posinset={at + 1}
            aria-setsize={rows.length}
            aria-label={labelOf(words, row)}
          >
            <RowView
              row={row}
              editing={row.kind === "message" && row.message.id === editing}
              onAgain={onAgain}
              onDiscard={onDiscard}
            />
          </article>
        )}
      </VList>
      {away && (
        <button type="button" className="button to-end" aria-label={words.toBottom} title={words.toBottom} onClick={toEnd}>
          <Icon name="down" />
        </button>
      )}
    </div>
  );
}

function labelOf(words: ReturnType<typeof useWords>, row: Row | ParcelRow): string {
  switch (row.kind) {
    case "session":
      return words.sessionBegins;
    case "message":
      return row.message.role === "user" ? words.you : row.message.role === "assistant" ? words.answer : words.systemMessage;
    case "live":
      return `${words.answer}, ${words.notSavedYet}`;
    case "outcome":
      return row.run.status === "unknown" ? words.unknownTitle : words.failedTitle;
    case "withdrawn":
      return words.withdrawnTitle(row.withdrawal.generation);
    case "queued":
    case "parcel":
      return words.you;
  }
}

const RowView = memo(function RowView(props: {
  readonly row: Row | ParcelRow;
  readonly editing: boolean;
  readonly onAgain: (parcel: string) => void;
  readonly onDiscard: (parcel: string) => void;
}) {
  const { row } = props;
  switch (row.kind) {
    case "session":
      return <SessionDivider row={row} />;
    case "message":
      return <MessageTurn row={row} edits={props.editing} />;
    case "live":
      return <LiveTurn row={row} />;
    case "outcome":
      return <OutcomeNote row={row} />;
    case "withdrawn":
      return <WithdrawnNote row={row} />;
    case "queued":
      return <QueuedTurn row={row} />;
    case "parcel": {
      const { id } = row.parcel;
      return <ParcelTurn parcel={row.parcel} onAgain={() => props.onAgain(id)} onDiscard={() => props.onDiscard(id)} />;
    }
  }
});
