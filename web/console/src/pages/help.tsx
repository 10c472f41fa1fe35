/** Which keys do what. */

import { KEYS } from "../shortcuts";
import { Dialog } from "../ui/overlays";
import { useWords } from "../words";

export function Help({ onClose }: { readonly onClose: () => void }) {
  const words = useWords();
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
      </dl>
    </Dialog>
  );
}
