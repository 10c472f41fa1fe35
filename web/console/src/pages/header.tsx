/** The top of a conversation: its title, its whole tree, and what can be done with all of it. */

import { type AntiphonError, Branches, type View } from "@antiphon/client";
import { useState } from "react";
import { go } from "../address";
import { hasKey, keyNow, noteError, server } from "../server";
import { useShortcuts } from "../shortcuts";
import { conversationsChanged } from "../store/list";
import { useDoing } from "../thread/doing";
import { Icon } from "../ui/icons";
import { Confirm, Dialog, Menu } from "../ui/overlays";
import { useTitle, useWords } from "../words";
import { Link, MenuButton } from "./sidebar";
import type { SessionTold } from "../store/sessions";
import { KnowledgeDialog } from "./knowledge";
import { SessionsDialog } from "./sessions";
import { TreeDialog } from "./tree";

export function Header(props: {
  readonly view: View;
  readonly sessions: readonly SessionTold[];
  readonly leaf: string | null;
  readonly branches: Branches;
  readonly onProblem: (error: AntiphonError) => void;
}) {
  const words = useWords();
  const doing = useDoing();
  const { view } = props;
  const [asking, setAsking] = useState<"rename" | "delete" | "tree" | "sessions" | "knowledge" | null>(null);
  useShortcuts({ tree: () => setAsking("tree") });
  const row = view.conversation;
  const title = row === null ? "" : (row.title ?? titleFrom(view) ?? words.untitled);
  useTitle(title);
  const close = () => setAsking(null);
  const id = row?.id ?? "";
  return (
    <header className="top">
      <MenuButton />
      <h1 className="top-title">
        <button type="button" title={words.rename} disabled={row === null} onClick={() => setAsking("rename")}>
          {title}
        </button>
      </h1>
      {row?.metadata["forked_from"] !== undefined && (
        <Link place={{ page: "conversation", id: row.metadata["forked_from"] }} className="goal" current={false}>
          <Icon name="fork" />
          <span>{words.forkedFrom}</span>
        </Link>
      )}
      <button
        type="button"
        className="goal"
        title={words.sessions}
        aria-haspopup="dialog"
        disabled={row === null}
        onClick={() => setAsking("sessions")}
      >
        <Icon name="goal" />
        <span>{props.sessions.find((session) => session.active)?.goal ?? words.noGoal}</span>
      </button>
      <button
        type="button"
        className="tool big"
        aria-label={words.wholeTree}
        title={words.wholeTree}
        aria-haspopup="dialog"
        disabled={row === null}
        onClick={() => setAsking("tree")}
      >
        <Icon name="tree" />
      </button>
      <Menu
        className="tool big"
        label={words.conversationMenu}
        icon="more"
        choices={() => [
          { name: words.rename, icon: "edit", onChoose: () => setAsking("rename") },
          { name: words.knowledge, icon: "file", onChoose: () => setAsking("knowledge") },
          {
            name: words.exportConversation,
            icon: "download",
            onChoose: () => {
              exported(id).catch((error: unknown) => props.onProblem(noteError(error)));
            },
          },
          { name: words.deleteConversation, icon: "trash", danger: true, onChoose: () => setAsking("delete") },
        ]}
      />
      {asking === "rename" && row !== null && <Rename title={row.title ?? ""} onClose={close} />}
      {asking === "delete" && (
        <Confirm
          danger
          title={words.deleteConversationTitle}
          say={words.deleteConversationSay}
          action={words.deleteConversation}
          onAgree={() => {
            server.conversations.delete(id).then(
              () => {
                conversationsChanged();
                go({ page: "new" });
              },
              (error: unknown) => props.onProblem(noteError(error)),
            );
          }}
          onClose={close}
        />
      )}
      {asking === "sessions" && row !== null && <SessionsDialog conversation={row} sessions={props.sessions} onClose={close} />}
      {asking === "knowledge" && <KnowledgeDialog conversation={id} onClose={close} />}
      {asking === "tree" && (
        <TreeDialog
          view={view}
          branches={props.branches}
          leaf={props.leaf}
          onChoose={(message) => {
            doing.look(props.branches.leafBelow(message));
            close();
          }}
          onClose={close}
        />
      )}
    </header>
  );
}

/** Where nobody gave a title, the first words stand in. */
function titleFrom(view: View): string | null {
  for (const message of view.messages.values()) {
    if (message.role !== "user") continue;
    for (const block of message.blocks) if (block.kind === "text") return block.text.slice(0, 80);
  }
  return null;
}

function Rename(props: { readonly title: string; readonly onClose: () => void }) {
  const doing = useDoing();
  const words = useWords();
  const [title, setTitle] = useState(props.title);
  return (
    <Dialog title={words.rename} onClose={props.onClose}>
      <form
        className="dialog-form"
        onSubmit={(event) => {
          event.preventDefault();
          doing.rename(title.trim() === "" ? null : title.trim());
          props.onClose();
        }}
      >
        <label className="label">
          {words.titleField}
          <input className="field" autoFocus maxLength={500} value={title} onChange={(event) => setTitle(event.target.value)} />
        </label>
        <div className="doing">
          <button type="button" className="button" onClick={props.onClose}>
            {words.cancel}
          </button>
          <button type="submit" className="button main">
            {words.save}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

/** Save the conversation as the file that `antiphon import` reads. */
async function exported(id: string): Promise<void> {
  const path = `/antiphon/v1/conversations/${encodeURIComponent(id)}/export`;
  const headers: HeadersInit = hasKey() ? { authorization: `Bearer ${keyNow()}` } : {};
  const answer = await fetch(path, { headers });
  if (!answer.ok) throw new Error(String(answer.status));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await answer.blob());
  link.download = `${id}.jsonl`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
