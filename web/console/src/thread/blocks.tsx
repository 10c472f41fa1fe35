/** What a message is made of: words, thoughts, calls, pictures, files. */

import type { Block, FileBlock, ImageBlock, Message, ToolResultBlock } from "@antiphon/client";
import { memo } from "react";
import { Icon } from "../ui/icons";
import { useWords } from "../words";
import { CallCard } from "./calls";
import { Markdown } from "./markdown";

export const Blocks = memo(function Blocks(props: {
  readonly message: Message;
  readonly results: readonly ToolResultBlock[];
}) {
  const { message, results } = props;
  return message.blocks.map((block, at) => <One key={at} block={block} message={message} results={results} />);
});

function One(props: { readonly block: Block; readonly message: Message; readonly results: readonly ToolResultBlock[] }) {
  const { block, message } = props;
  switch (block.kind) {
    case "text":
      return message.role === "user" ? <p className="literal">{block.text}</p> : <Markdown text={block.text} />;
    case "refusal":
      return <p className="literal refusal">{block.text}</p>;
    case "reasoning":
      return <Thoughts text={block.text ?? ""} />;
    case "tool_call":
      return (
        <CallCard
          block={block}
          run={message.run ?? null}
          result={props.results.find((result) => result.call_id === block.call_id) ?? null}
        />
      );
    case "image":
      return <Picture block={block} />;
    case "file":
      return <Attached block={block} />;
    case "audio":
      return (
        <span className="attached">
          <Icon name="file" /> {block.format}
        </span>
      );
    case "tool_result":
      return null;
    case "unknown":
      return (
        <span className="attached">
          <Icon name="unsure" /> {block.name}
        </span>
      );
  }
}

/** What a model thought, folded: it is not its answer. */
export function Thoughts({ text, open = false }: { readonly text: string; readonly open?: boolean }) {
  const words = useWords();
  if (text === "") return null;
  return (
    <details className="thoughts" open={open}>
      <summary>
        <Icon name="thought" />
        {open ? words.thinking : words.thought}
      </summary>
      <Markdown text={text} />
    </details>
  );
}

/** A picture that is part of the message. One that lies elsewhere is a link, and not loaded. */
function Picture({ block }: { readonly block: ImageBlock }) {
  const words = useWords();
  if (block.data !== undefined) {
    const kind = block.media_type ?? "image/png";
    return <img className="picture" alt={words.picture} src={`data:${kind};base64,${block.data}`} />;
  }
  if (block.url?.startsWith("data:image/") === true) return <img className="picture" alt={words.picture} src={block.url} />;
  return (
    <a className="attached" href={block.url} target="_blank" rel="noopener noreferrer nofollow">
      <Icon name="file" /> {block.url}
    </a>
  );
}

function Attached({ block }: { readonly block: FileBlock }) {
  return (
    <span className="attached">
      <Icon name="file" /> {block.filename ?? block.file_id ?? block.media_type}
    </span>
  );
}
