/** The whole tree: every version there ever was, one message a line, forks set off. */

import type { Branches, Message, View } from "@antiphon/client";
import { useEffect, useMemo, useRef } from "react";
import { VList, type VListHandle } from "virtua";
import { textOf } from "../thread/rows";
import { Mark } from "../ui/icons";
import { Dialog } from "../ui/overlays";
import { useTimes, useWords } from "../words";
import { type Node, nodesOf } from "./nodes";

export function TreeDialog(props: {
  readonly view: View;
  readonly branches: Branches;
  readonly leaf: string | null;
  readonly onChoose: (message: string) => void;
  readonly onClose: () => void;
}) {
  const words = useWords();
  const { branches, leaf } = props;
  const nodes = useMemo(() => nodesOf(branches), [branches]);
  const line = useMemo(() => new Set(branches.line(leaf).map((message) => message.id)), [branches, leaf]);
  const list = useRef<VListHandle>(null);
  const here = nodes.findLastIndex((node) => line.has(node.message.id));
  useEffect(() => {
    const timer = setTimeout(() => {
      if (here >= 0) list.current?.scrollToIndex(here, { align: "center" });
    });
    return () => clearTimeout(timer);
  }, [props.view.whole]);
  const leaves = nodes.filter((node) => node.leaf).length;
  return (
    <Dialog title={words.treeTitle} className="tree-dialog" onClose={props.onClose}>
      <p className="aside">{props.view.whole ? words.treeSay(nodes.length, leaves) : words.loading}</p>
      <VList ref={list} data={nodes} className="tree">
        {(node) => (
          <Line key={node.message.id} node={node} on={line.has(node.message.id)} end={node.message.id === leaf} onChoose={props.onChoose} />
        )}
      </VList>
    </Dialog>
  );
}

function Line(props: {
  readonly node: Node;
  readonly on: boolean;
  readonly end: boolean;
  readonly onChoose: (message: string) => void;
}) {
  const words = useWords();
  const times = useTimes();
  const { message, depth, first } = props.node;
  return (
    <button
      type="button"
      className="tree-line"
      data-on={props.on || undefined}
      data-status={message.status ?? "success"}
      data-first={first || undefined}
      aria-current={props.end ? "true" : undefined}
      onClick={() => props.onChoose(message.id)}
    >
      <span className="lanes" aria-hidden="true">
        {Array.from({ length: Math.min(depth, DEEPEST) }, (_, at) => (
          <i key={at} />
        ))}
      </span>
      <Mark of={message.role === "user" ? "call" : "response"} />
      <span className="tree-text">{briefOf(message)}</span>
      {props.end && <span className="tag" data-tone="open">{words.treeHere}</span>}
      {message.status === "canceled" && <span className="tag">{words.stateCanceled}</span>}
      {message.status === "error" && <span className="tag" data-tone="bad">{words.stateError}</span>}
      <time>{message.created_ms === undefined ? "" : times.clock(message.created_ms)}</time>
    </button>
  );
}

/** Deeper than this is drawn no further in: there is no room. */
const DEEPEST = 12;

function briefOf(message: Message): string {
  const text = textOf(message).slice(0, 200).replace(/^[#>]+ |```\w*|[*`]/gm, "").trim();
  if (text !== "") return text;
  const calls = message.blocks.flatMap((block) => (block.kind === "tool_call" ? [`${block.name}(…)`] : []));
  return calls.length > 0 ? calls.join(", ") : "…";
}
