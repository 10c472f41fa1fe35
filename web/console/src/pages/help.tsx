/** Which keys do what. */

import { choose, usePrefs } from "../prefs";
import { KEYS, PALETTE_KEY } from "../shortcuts";
import { Dialog } from "../ui/overlays";
import { useWords } from "../words";

export function Help({ onClose }: { readonly onClose: () => void }) {
  const words = useWords();
  const { singleKeys } = usePrefs();
  return (
    <Dialog title={words.shortcuts} onClose={onClose}>
      <dl className="keys">
        {KEYS.map(([key, does]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{words.keyDoes(does)}</dd>
          </div>
        ))}
        <div>
          <dt>
            <kbd>{PALETTE_KEY}</kbd>
          </dt>
          <dd>{words.keyDoes("palette")}</dd>
        </div>
      </dl>
      <label className="check">
        <input type="checkbox" checked={singleKeys} onChange={(event) => choose({ singleKeys: event.target.checked })} />
        {words.singleKeys}
      </label>
    </Dialog>
  );
}
