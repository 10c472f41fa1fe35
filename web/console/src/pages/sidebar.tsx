/** The list of conversations, and the way to everything else. */

import type { Conversation, RunStatus } from "@antiphon/client";
import { createContext, useContext, useEffect, useRef, useState } from "react";
import { go, pathOf, type Place } from "../address";
import { choose, type Language, type Theme, usePrefs } from "../prefs";
import { hasKey, takeKey } from "../server";
import { useShortcuts } from "../shortcuts";
import { useListing } from "../store/list";
import { useNow } from "../thread/open";
import { Icon } from "../ui/icons";
import { useTimes, useWords, type Words } from "../words";
import { reasonOf } from "../words/reasons";

interface Drawer {
  readonly open: boolean;
  readonly set: (open: boolean) => void;
}

export const DrawerContext = createContext<Drawer>({ open: false, set: () => {} });

/** On a narrow screen the list is a drawer, and this opens it. */
export function MenuButton() {
  const words = useWords();
  const drawer = useContext(DrawerContext);
  return (
    <button
      type="button"
      className="tool big only-narrow"
      aria-label={words.openSidebar}
      aria-expanded={drawer.open}
      onClick={() => drawer.set(true)}
    >
      <Icon name="menu" />
    </button>
  );
}

export function Sidebar({ place }: { readonly place: Place }) {
  const words = useWords();
  const drawer = useContext(DrawerContext);
  const [sought, setSought] = useState("");
  const field = useRef<HTMLInputElement>(null);
  const leave = useRef<HTMLButtonElement>(null);
  // Over a narrow page the keyboard goes into the drawer, and back to where it was.
  useEffect(() => {
    if (!drawer.open) return;
    const before = document.activeElement;
    leave.current?.focus();
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, [drawer.open]);
  useShortcuts({
    begin: () => go({ page: "new" }),
    find: () => {
      drawer.set(true);
      field.current?.focus();
    },
  });
  return (
    <nav
      className="sidebar"
      data-open={drawer.open || undefined}
      aria-label={words.conversations}
      onKeyDown={(event) => {
        if (event.key === "Escape") drawer.set(false);
      }}
    >
      <div className="brand">
        <Wordmark />
        <span>{words.product}</span>
        <button ref={leave} type="button" className="tool only-narrow" aria-label={words.closeSidebar} onClick={() => drawer.set(false)}>
          <Icon name="close" />
        </button>
      </div>
      <div className="sidebar-top">
        <Link place={{ page: "new" }} className="button main" current={place.page === "new"}>
          <Icon name="plus" />
          {words.newConversation}
        </Link>
        <div className="search">
          <Icon name="search" />
          <input
            ref={field}
            type="search"
            className="field"
            aria-label={words.searchConversations}
            placeholder={words.searchConversations}
            maxLength={200}
            value={sought}
            onChange={(event) => setSought(event.target.value)}
            onKeyDown={(event) => {
              if (event.key === "Escape" && sought !== "") {
                event.stopPropagation();
                setSought("");
              }
            }}
          />
        </div>
      </div>
      <Conversations sought={sought.trim()} here={place.page === "conversation" ? place.id : null} />
      <div className="sidebar-foot">
        <Link place={{ page: "operations" }} className="way-to" current={place.page === "operations"}>
          <Icon name="pulse" />
          {words.operations}
        </Link>
        <Link place={{ page: "keys" }} className="way-to" current={place.page === "keys"}>
          <Icon name="key" />
          {words.keys}
        </Link>
        <Preferences />
      </div>
    </nav>
  );
}

function Conversations({ sought, here }: { readonly sought: string; readonly here: string | null }) {
  const words = useWords();
  const { language } = usePrefs();
  const listing = useListing(sought);
  const now = useNow(60_000);
  if (listing.rows === null) {
    const { error } = listing;
    return (
      <div className="conversations">
        <p className="empty">{error === null ? words.loading : reasonOf(language, error.code, error.message)}</p>
      </div>
    );
  }
  return (
    <div className="conversations">
      {listing.rows.length === 0 && (
        <p className="empty">{sought === "" ? words.noConversations : words.noMatches(sought)}</p>
      )}
      <ul>
        {listing.rows.map(({ row, open }) => (
          <Entry key={row.id} row={row} open={open} here={row.id === here} now={now} />
        ))}
      </ul>
      {listing.more !== null && (
        <button type="button" className="button" onClick={listing.more}>
          {words.moreConversations}
        </button>
      )}
    </div>
  );
}

/** What is to be said of a conversation in which a run is open. */
const OPEN = {
  queued: "openQueued",
  pending: "openPending",
  waiting: "openWaiting",
  unknown: "openUnknown",
} as const satisfies Partial<Record<RunStatus, keyof Words>>;

function Entry(props: {
  readonly row: Conversation;
  readonly open: RunStatus | null;
  readonly here: boolean;
  readonly now: number;
}) {
  const words = useWords();
  const times = useTimes();
  const { row, here, now } = props;
  const open = props.open !== null && props.open in OPEN ? (props.open as keyof typeof OPEN) : null;
  return (
    <li>
      <Link place={{ page: "conversation", id: row.id }} className="entry" current={here}>
        <span className="entry-title">{row.title ?? words.untitledAt(times.full(row.created_ms))}</span>
        {open !== null && (
          <span className="standing" data-open={open} role="img" aria-label={words[OPEN[open]]} title={words[OPEN[open]]}>
            {open === "unknown" ? <Icon name="unsure" /> : <i />}
          </span>
        )}
        <span className="entry-time">{times.ago(row.updated_ms, now)}</span>
      </Link>
    </li>
  );
}

/** A link within the console: an address that can be opened elsewhere, and no page load here. */
export function Link(props: {
  readonly place: Place;
  readonly className: string;
  readonly current: boolean;
  readonly children: React.ReactNode;
}) {
  const drawer = useContext(DrawerContext);
  return (
    <a
      href={pathOf(props.place)}
      className={props.className}
      aria-current={props.current ? "page" : undefined}
      onClick={(event) => {
        if (event.metaKey || event.ctrlKey || event.shiftKey || event.button !== 0) return;
        event.preventDefault();
        drawer.set(false);
        go(props.place);
      }}
    >
      {props.children}
    </a>
  );
}

function Preferences() {
  const words = useWords();
  const prefs = usePrefs();
  return (
    <div className="preferences" role="group" aria-label={words.preferences}>
      <select
        className="model"
        aria-label={words.language}
        value={prefs.language}
        onChange={(event) => choose({ language: event.target.value as Language })}
      >
        <option value="en">English</option>
        <option value="zh">中文</option>
      </select>
      <select
        className="model"
        aria-label={words.theme}
        value={prefs.theme}
        onChange={(event) => choose({ theme: event.target.value as Theme })}
      >
        <option value="system">{words.themeSystem}</option>
        <option value="light">{words.themeLight}</option>
        <option value="dark">{words.themeDark}</option>
      </select>
      {hasKey() && (
        <button type="button" className="tool" aria-label={words.forget} title={words.forget} onClick={() => takeKey(null)}>
          <Icon name="close" />
        </button>
      )}
    </div>
  );
}

function Wordmark() {
  return (
    <svg className="wordmark" viewBox="0 0 24 24" aria-hidden="true">
      <path className="call" d="M3 5l5 12 5-12M2 11l6-3.5" />
      <path className="response" d="M14.5 19V8h3a2.5 2.5 0 0 1 0 5h-3M18 13l4 6" />
    </svg>
  );
}

/** Keep the drawer's state, and close it when the window becomes wide. */
export function useDrawer(): Drawer {
  const [open, set] = useState(false);
  useEffect(() => {
    const wide = matchMedia("(min-width: 52rem)");
    const onChange = () => set(false);
    wide.addEventListener("change", onChange);
    return () => wide.removeEventListener("change", onChange);
  }, []);
  return { open, set };
}
