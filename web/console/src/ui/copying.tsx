/** A button that copies, and says that it did. */

import { useEffect, useState } from "react";
import { useWords } from "../words";
import { Icon } from "./icons";

export function CopyButton(props: {
  readonly label: string;
  readonly text: () => string | Promise<string>;
  readonly shown?: boolean;
  readonly className?: string;
}) {
  const words = useWords();
  const [done, setDone] = useState(false);
  useEffect(() => {
    if (!done) return;
    const timer = setTimeout(() => setDone(false), 1600);
    return () => clearTimeout(timer);
  }, [done]);
  const label = done ? words.copied : props.label;
  return (
    <button
      type="button"
      className={props.className ?? "tool"}
      aria-label={label}
      title={label}
      onClick={() => {
        void (async () => {
          await copy(await props.text());
          setDone(true);
        })();
      }}
    >
      <Icon name={done ? "tick" : "copy"} />
      {props.shown === true && <span aria-hidden="true">{label}</span>}
    </button>
  );
}

/** Copy to the clipboard; a page that came over plain HTTP from elsewhere has only the old way. */
async function copy(text: string): Promise<void> {
  if (navigator.clipboard !== undefined) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "unseen";
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}
