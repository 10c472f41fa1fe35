/** A page of assistant-ui's primitives over the same endpoint. */

import {
  ActionBarPrimitive,
  AssistantRuntimeProvider,
  BranchPickerPrimitive,
  ComposerPrimitive,
  MessagePrimitive,
  ThreadPrimitive,
} from "@assistant-ui/react";
import { AssistantChatTransport, useChatRuntime } from "@assistant-ui/react-ai-sdk";
import { createRoot } from "react-dom/client";

function Page() {
  const runtime = useChatRuntime({
    transport: new AssistantChatTransport({ api: "/antiphon/v1/chat", headers: { "antiphon-withdraw": "1" } }),
  });
  return (
    <AssistantRuntimeProvider runtime={runtime}>
      <h1>assistant-ui</h1>
      <ThreadPrimitive.Root>
        <ThreadPrimitive.Viewport>
          <ThreadPrimitive.Messages components={{ UserMessage: () => <Said role="user" />, AssistantMessage: () => <Said role="assistant" /> }} />
        </ThreadPrimitive.Viewport>
        <ComposerPrimitive.Root>
          <ComposerPrimitive.Input aria-label="Message" />
          <ComposerPrimitive.Send>Send</ComposerPrimitive.Send>
        </ComposerPrimitive.Root>
      </ThreadPrimitive.Root>
    </AssistantRuntimeProvider>
  );
}

function Said({ role }: { readonly role: string }) {
  return (
    <MessagePrimitive.Root>
      <section data-role={role} aria-label={role}>
        <MessagePrimitive.Parts />
        {role === "assistant" && (
          <ActionBarPrimitive.Root>
            <ActionBarPrimitive.Reload>Regenerate</ActionBarPrimitive.Reload>
          </ActionBarPrimitive.Root>
        )}
        <BranchPickerPrimitive.Root hideWhenSingleBranch>
          <BranchPickerPrimitive.Previous>Previous</BranchPickerPrimitive.Previous>
          <output>
            <BranchPickerPrimitive.Number />/<BranchPickerPrimitive.Count />
          </output>
        </BranchPickerPrimitive.Root>
      </section>
    </MessagePrimitive.Root>
  );
}

createRoot(document.getElementById("root") as HTMLElement).render(<Page />);
