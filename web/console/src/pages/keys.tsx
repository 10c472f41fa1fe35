/** Keys: who may talk to this server. A secret is shown once, here, and never again. */

import { useState } from "react";
import { usePrefs } from "../prefs";
import { hasKey, noteError, server, takeKey } from "../server";
import { useLoaded } from "../store/loaded";
import { CopyButton } from "../ui/copying";
import { Icon } from "../ui/icons";
import { Notice } from "../ui/notice";
import { Confirm, Dialog } from "../ui/overlays";
import { useTimes, useTitle, useWords } from "../words";
import { reasonOf } from "../words/reasons";
import { MenuButton } from "./sidebar";

interface Key {
  readonly id: string;
  readonly tenant: string;
  readonly name: string;
  readonly rights: readonly string[];
  readonly created_ms: number;
  readonly expires_ms: number | null;
  readonly revoked_ms: number | null;
  readonly terms?: Terms;
}

/** What a key may use; what is absent has no limit. */
interface Terms {
  readonly requests_per_minute?: number | null;
  readonly tokens_per_day?: number | null;
}

const RIGHTS = ["read", "write", "instruct", "operate", "admin"] as const;
const DAY_MS = 24 * 3600 * 1000;

export function KeysPage() {
  const words = useWords();
  useTitle(words.keys);
  const { language } = usePrefs();
  const keys = useLoaded(() => server.request<{ readonly data: readonly Key[] }>("GET", "/keys"), []);
  const [making, setMaking] = useState(false);
  const [made, setMade] = useState<(Key & { readonly secret: string }) | null>(null);
  const [revoking, setRevoking] = useState<Key | null>(null);
  const [problem, setProblem] = useState<ReturnType<typeof noteError> | null>(keys.error);
  const wrong = problem ?? keys.error;
  return (
    <main className="sheet" id="main">
      <header className="top">
        <MenuButton />
        <h1 className="top-title">{words.keys}</h1>
        <button type="button" className="button" onClick={() => setMaking(true)}>
          <Icon name="plus" />
          {words.makeKey}
        </button>
      </header>
      <div className="sheet-body">
        {wrong !== null && (
          <Notice
            tone="bad"
            title={words.wentWrong}
            code={wrong.code}
            say={reasonOf(language, wrong.code, wrong.message)}
            onClose={() => setProblem(null)}
          />
        )}
        {keys.value?.data.length === 0 && (
          <div className="empty">
            <h2>{words.noKeys}</h2>
            <p>{words.noKeysSay}</p>
          </div>
        )}
        <ul className="cards">
          {keys.value?.data.map((key) => (
            <KeyCard key={key.id} one={key} onRevoke={() => setRevoking(key)} />
          ))}
        </ul>
      </div>
      {making && (
        <MakeKey
          onClose={() => setMaking(false)}
          onMake={(name, rights, days, terms) => {
            const body = { name, rights, terms, expires_ms: days === null ? null : Date.now() + days * DAY_MS };
            server.request<Key & { readonly secret: string }>("POST", "/keys", { body, again: false }).then(
              (key) => {
                // The first key shuts the door to who has none; who made it must not stand outside.
                if (!hasKey() && keys.value?.data.length === 0 && rights.includes("admin")) takeKey(key.secret);
                setMade(key);
                keys.again();
              },
              (error: unknown) => setProblem(noteError(error)),
            );
          }}
        />
      )}
      {made !== null && <Secret made={made} onClose={() => setMade(null)} />}
      {revoking !== null && (
        <Confirm
          danger
          title={words.revokeTitle(revoking.name)}
          say={words.revokeSay}
          action={words.revoke}
          onAgree={() => {
            server
              .request("DELETE", `/keys/${encodeURIComponent(revoking.id)}`)
              .then(keys.again, (error: unknown) => setProblem(noteError(error)));
          }}
          onClose={() => setRevoking(null)}
        />
      )}
    </main>
  );
}

function KeyCard({ one, onRevoke }: { readonly one: Key; readonly onRevoke: () => void }) {
  const words = useWords();
  const times = useTimes();
  const over = one.revoked_ms !== null || (one.expires_ms !== null && one.expires_ms < Date.now());
  return (
    <li className="key-card" data-over={over || undefined}>
      <Icon name="key" />
      <div className="card-body">
        <p className="card-head">
          <strong>{one.name}</strong>
          <span className="mono aside">{one.id}</span>
          <span className="tag">{one.tenant}</span>
        </p>
        <p className="card-head">
          {RIGHTS.filter((right) => one.rights.includes(right)).map((right) => (
            <span key={right} className="tag" data-tone={right === "admin" ? "unsure" : "open"}>
              {words.rightNamed(right)}
            </span>
          ))}
        </p>
        <p className="aside">
          {one.revoked_ms !== null
            ? words.revokedAt(times.full(one.revoked_ms))
            : one.expires_ms !== null
              ? words.expiresAt(times.full(one.expires_ms))
              : words.neverExpires}
          {one.terms?.requests_per_minute != null && ` · ${words.limitPerMinute(times.number(one.terms.requests_per_minute))}`}
          {one.terms?.tokens_per_day != null && ` · ${words.limitPerDay(times.number(one.terms.tokens_per_day))}`}
        </p>
      </div>
      {!over && (
        <button type="button" className="button danger small" onClick={onRevoke}>
          {words.revoke}
        </button>
      )}
    </li>
  );
}

function MakeKey(props: {
  readonly onMake: (name: string, rights: readonly string[], days: number | null, terms: Terms) => void;
  readonly onClose: () => void;
}) {
  const words = useWords();
  const [name, setName] = useState("");
  const [rights, setRights] = useState<readonly string[]>(["read", "write", "instruct"]);
  const [days, setDays] = useState("90");
  const [perMinute, setPerMinute] = useState("");
  const [perDay, setPerDay] = useState("");
  return (
    <Dialog title={words.makeKey} onClose={props.onClose}>
      <form
        className="dialog-form"
        onSubmit={(event) => {
          event.preventDefault();
          const terms = { requests_per_minute: numberOf(perMinute), tokens_per_day: numberOf(perDay) };
          props.onMake(name.trim(), rights, numberOf(days), terms);
          props.onClose();
        }}
      >
        <p className="aside">{words.makeKeySay}</p>
        <label className="label">
          {words.keyName}
          <input className="field" autoFocus required maxLength={100} value={name} onChange={(event) => setName(event.target.value)} />
        </label>
        <fieldset className="rights">
          <legend className="label">{words.rights}</legend>
          {RIGHTS.map((right) => (
            <label key={right} className="check">
              <input
                type="checkbox"
                checked={rights.includes(right)}
                onChange={(event) =>
                  setRights(event.target.checked ? [...rights, right] : rights.filter((other) => other !== right))
                }
              />
              <span>
                <strong>{words.rightNamed(right)}</strong> <span className="aside">{words.rightMeans(right)}</span>
              </span>
            </label>
          ))}
        </fieldset>
        <label className="label">
          {words.daysValid}
          <input className="field" type="number" min={1} max={3650} value={days} onChange={(event) => setDays(event.target.value)} />
        </label>
        <label className="label">
          {words.perMinute}
          <input className="field" type="number" min={1} value={perMinute} onChange={(event) => setPerMinute(event.target.value)} />
        </label>
        <label className="label">
          {words.perDay}
          <input className="field" type="number" min={0} value={perDay} onChange={(event) => setPerDay(event.target.value)} />
        </label>
        <div className="doing">
          <button type="button" className="button" onClick={props.onClose}>
            {words.cancel}
          </button>
          <button type="submit" className="button main">
            {words.makeKey}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function numberOf(text: string): number | null {
  return text === "" ? null : Number(text);
}

function Secret({ made, onClose }: { readonly made: Key & { readonly secret: string }; readonly onClose: () => void }) {
  const words = useWords();
  return (
    <Dialog title={words.secretTitle(made.name)} onClose={onClose}>
      <p className="aside">{words.secretSay}</p>
      <p className="secret mono">
        {made.secret}
        <CopyButton label={words.copy} text={() => made.secret} />
      </p>
      <div className="doing">
        <button type="button" className="button main" onClick={onClose}>
          {words.secretKept}
        </button>
      </div>
    </Dialog>
  );
}
