/** One field for everything: a conversation by its words, a page, an action. */

import { useId, useState } from "react";
import { go } from "../address";
import { choose, usePrefs } from "../prefs";
import { useListing } from "../store/list";
import { Icon, type IconName } from "../ui/icons";
import { Dialog } from "../ui/overlays";
import { useTimes, useWords } from "../words";

interface Entry {
  readonly key: string;
  readonly icon: IconName;
  readonly name: string;
  readonly does: () => void;
}

const MOST = 12;

export function Palette({ onHelp, onClose }: { readonly onHelp: () => void; readonly onClose: () => void }) {
  const words = useWords();
  const times = useTimes();
  const prefs = usePrefs();
  const id = useId();
  const [sought, setSought] = useState("");
  const [at, setAt] = useState(0);
  const listing = useListing(sought.trim());
  const pages: readonly Entry[] = [
    { key: "new", icon: "plus", name: words.newConversation, does: () => go({ page: "new" }) },
    { key: "operations", icon: "pulse", name: words.operations, does: () => go({ page: "operations" }) },
    { key: "keys", icon: "key", name: words.keys, does: () => go({ page: "keys" }) },
    { key: "light", icon: "sun", name: `${words.theme}: ${words.themeLight}`, does: () => choose({ theme: "light" }) },
    { key: "dark", icon: "moon", name: `${words.theme}: ${words.themeDark}`, does: () => choose({ theme: "dark" }) },
    {
      key: "language",
      icon: "edit",
      name: `${words.language}: ${prefs.language === "en" ? "中文" : "English"}`,
      does: () => choose({ language: prefs.language === "en" ? "zh" : "en" }),
    },
    { key: "help", icon: "why", name: words.shortcuts, does: onHelp },
  ];
  const wanted = sought.trim().toLowerCase();
  const entries: readonly Entry[] = [
    ...pages.filter((entry) => wanted === "" || entry.name.toLowerCase().includes(wanted)),
    ...(listing.rows ?? []).slice(0, MOST).map(({ row }) => ({
      key: row.id,
      icon: "right" as const,
      name: row.title ?? words.untitledAt(times.full(row.created_ms)),
      does: () => go({ page: "conversation", id: row.id }),
    })),
  ];
  const chosen = Math.min(at, entries.length - 1);
  const take = (entry: Entry | undefined) => {
    if (entry === undefined) return;
    onClose();
    entry.does();
  };
  return (
    <Dialog title={words.palette} className="palette" onClose={onClose}>
      <input
        className="field"
        type="text"
        role="combobox"
        autoFocus
        aria-label={words.paletteField}
        aria-expanded="true"
        aria-controls={`${id}-list`}
        aria-activedescendant={chosen >= 0 ? `${id}-${chosen}` : undefined}
        placeholder={words.paletteField}
        maxLength={200}
        value={sought}
        onChange={(event) => {
          setSought(event.target.value);
          setAt(0);
        }}
        onKeyDown={(event) => {
          if (event.nativeEvent.isComposing) return;
          const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
          if (step !== 0) {
            event.preventDefault();
            setAt((chosen + step + entries.length) % Math.max(1, entries.length));
          } else if (event.key === "Enter") {
            event.preventDefault();
            take(entries[chosen]);
          }
        }}
      />
      <ul id={`${id}-list`} role="listbox" aria-label={words.palette}>
        {entries.map((entry, which) => (
          <li
            key={entry.key}
            id={`${id}-${which}`}
            role="option"
            aria-selected={which === chosen}
            onMouseMove={() => setAt(which)}
            onClick={() => take(entry)}
          >
            <Icon name={entry.icon} />
            <span>{entry.name}</span>
          </li>
        ))}
      </ul>
      {entries.length === 0 && <p className="empty">{words.noMatches(sought)}</p>}
    </Dialog>
  );
}
