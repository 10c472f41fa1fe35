/** A minimal page of `useChat`, as its documentation shows one. */

import { useChat } from "@ai-sdk/react";
import {
  DefaultChatTransport,
  isToolUIPart,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  type UIMessage,
} from "ai";
import { useState } from "react";
import { createRoot } from "react-dom/client";

const API = "/antiphon/v1/chat";
const asked = new URLSearchParams(location.search);
const id = asked.get("id") ?? "page";

function Chat({ initial }: { readonly initial: UIMessage[] }) {
  const [text, setText] = useState("");
  const [told, setTold] = useState<string[]>([]);
  const chat = useChat({
    id,
    messages: initial,
    resume: true,
    transport: new DefaultChatTransport({
      api: API,
      headers: asked.has("committed") ? {} : { "antiphon-withdraw": "1" },
    }),
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
    onData: (part) => setTold((before) => [...before, part.type]),
  });
  return (
    <>
      <h1>useChat</h1>
      {chat.messages.map((message) => (
        <section key={message.id} data-role={message.role} aria-label={message.role}>
          {message.parts.map((part, at) => {
            if (part.type === "text") return <p key={at}>{part.text}</p>;
            if (part.type === "reasoning") return <em key={at}>{part.text}</em>;
            if (!isToolUIPart(part)) return null;
            return (
              <div key={at} data-tool={part.state}>
                <code>{JSON.stringify(part.input)}</code>
                {part.state === "output-available" && <output>{String(part.output)}</output>}
                {part.state === "approval-requested" && (
                  <>
                    <button onClick={() => chat.addToolApprovalResponse({ id: part.approval.id, approved: true })}>
                      Approve
                    </button>
                    <button onClick={() => chat.addToolApprovalResponse({ id: part.approval.id, approved: false })}>
                      Refuse
                    </button>
                  </>
                )}
              </div>
            );
          })}
          {message.role === "user" && (
            <button onClick={() => void chat.sendMessage({ messageId: message.id, text: `${textOf(message)}, again` })}>
              Edit
            </button>
          )}
        </section>
      ))}
      <p data-status={chat.status}>{chat.error?.message}</p>
      <ol hidden>{told.map((type, at) => <li key={at}>{type}</li>)}</ol>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void chat.sendMessage({ text });
          setText("");
        }}
      >
        <input aria-label="Message" value={text} onChange={(event) => setText(event.target.value)} />
        <button>Send</button>
        <button type="button" onClick={() => void chat.regenerate()}>
          Regenerate
        </button>
        <button type="button" onClick={() => void fetch(`${API}/${id}/stop`, { method: "POST" })}>
          Stop
        </button>
      </form>
    </>
  );
}

function textOf(message: UIMessage): string {
  return message.parts.map((part) => (part.type === "text" ? part.text : "")).join("");
}

const known = await fetch(`${API}/${id}`);
const initial = known.ok ? ((await known.json()) as { messages: UIMessage[] }).messages : [];
createRoot(document.getElementById("root") as HTMLElement).render(<Chat initial={initial} />);
