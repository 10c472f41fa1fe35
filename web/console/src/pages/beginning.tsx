/** Where a conversation begins: nothing is made on the server before something is said. */

import type { AntiphonError, Ask } from "@antiphon/client";
import { useRef, useState } from "react";
import { go } from "../address";
import { usePrefs } from "../prefs";
import { noteError, server } from "../server";
import { conversationsChanged } from "../store/list";
import { useModels } from "../store/models";
import { type Draft, postLater } from "../store/outbox";
import { Composer, type ComposerHandle } from "../thread/composer";
import { Notice } from "../ui/notice";
import { useTitle, useWords } from "../words";
import { reasonOf } from "../words/reasons";
import { MenuButton } from "./sidebar";

/** Orders that the rehearsal model obeys, each of which shows something else. */
const ORDERS = ["long 120", "cut 12 once", "slowly 你好，世界", "fail 503 once", "stall 6"] as const;

/** Until somebody gives it another, a conversation has its first line for a title. */
function titleOf(text: string): string | null {
  const line = text.trim().split("\n")[0]!.trim();
  return line === "" ? null : line.slice(0, 80);
}

export function BeginningPage() {
  const words = useWords();
  useTitle(words.newConversation);
  const { language } = usePrefs();
  const models = useModels();
  const [problem, setProblem] = useState<AntiphonError | null>(null);
  const [beginning, setBeginning] = useState(false);
  const composer = useRef<ComposerHandle>(null);
  const rehearsing = models.find((model) => model.default)?.name === "rehearsal";
  const begin = async (draft: Draft, ask: Ask): Promise<void> => {
    setBeginning(true);
    try {
      const { id } = await server.conversations.create({ title: titleOf(draft.text) });
      postLater(id, draft, ask);
      conversationsChanged();
      go({ page: "conversation", id });
    } catch (error) {
      setProblem(noteError(error));
      composer.current?.put(draft);
    } finally {
      setBeginning(false);
    }
  };
  return (
    <main className="conversation beginning" id="main">
      <header className="top">
        <MenuButton />
        <h1 className="unseen">{words.newConversation}</h1>
      </header>
      <div className="start">
        <h2>{words.startTitle}</h2>
        <p>{words.startSay}</p>
        {problem !== null && (
          <Notice
            tone="bad"
            title={words.notSent}
            code={problem.code}
            say={reasonOf(language, problem.code, problem.message)}
            onClose={() => setProblem(null)}
          />
        )}
        <Composer ref={composer} draftName="new" autoFocus busy={false} stopping={beginning} onSend={(draft, ask) => void begin(draft, ask)} />
        {rehearsing && (
          <div className="orders">
            <p>{words.rehearsalSay}</p>
            {ORDERS.map((order) => (
              <button key={order} type="button" className="button small mono" onClick={() => void begin({ text: order, files: [] }, {})}>
                {order}
              </button>
            ))}
          </div>
        )}
      </div>
    </main>
  );
}
