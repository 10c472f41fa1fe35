/** A server with keys opens to a key. */

import { useState } from "react";
import { takeKey } from "../server";
import { useWords } from "../words";

export function KeyDoor() {
  const words = useWords();
  const [secret, setSecret] = useState("");
  return (
    <main className="door" id="main">
      <form
        className="dialog"
        onSubmit={(event) => {
          event.preventDefault();
          if (secret.trim() === "") return;
          takeKey(secret.trim());
        }}
      >
        <h1>{words.keyNeeded}</h1>
        <p className="aside">{words.keyNeededSay}</p>
        <label className="label">
          {words.keyField}
          <input
            className="field mono"
            type="password"
            autoComplete="off"
            autoFocus
            value={secret}
            onChange={(event) => setSecret(event.target.value)}
          />
        </label>
        <div className="doing">
          <button type="submit" className="button main">
            {words.keyUse}
          </button>
        </div>
      </form>
    </main>
  );
}
