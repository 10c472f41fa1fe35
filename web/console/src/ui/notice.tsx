/** Something that happened, in a box of its own. */

import { useWords } from "../words";
import { Icon } from "./icons";

export function Notice(props: {
  readonly tone: "bad" | "unsure" | "open";
  readonly title: string;
  readonly code?: string;
  readonly say: string;
  readonly onClose: () => void;
}) {
  const words = useWords();
  return (
    <div className="notice closable" data-tone={props.tone} role="alert">
      <Icon name={props.tone === "unsure" ? "unsure" : "wrong"} />
      <div>
        <strong>{props.title}</strong> {props.code !== undefined && <span className="mono">{props.code}</span>}
        <p>{props.say}</p>
      </div>
      <button type="button" className="tool" aria-label={words.close} onClick={props.onClose}>
        <Icon name="close" />
      </button>
    </div>
  );
}
