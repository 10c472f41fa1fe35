/** What opens above the page: menus and dialogs, on the elements that browsers have for them. */

import { type ReactNode, type RefObject, useEffect, useId, useLayoutEffect, useRef, useState } from "react";
import { useWords } from "../words";
import { Icon, type IconName } from "./icons";

/** A dialog. It is open as long as it is drawn; focus goes in, and back when it closes. */
export function Dialog(props: {
  readonly title: string;
  readonly onClose: () => void;
  readonly children: ReactNode;
  readonly className?: string;
}) {
  const words = useWords();
  const ref = useRef<HTMLDialogElement>(null);
  const title = useId();
  useEffect(() => {
    const dialog = ref.current;
    const before = document.activeElement;
    dialog?.showModal();
    dialog?.querySelector<HTMLElement>("input:not([type=checkbox]), textarea")?.focus();
    return () => {
      dialog?.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={ref}
      className={props.className}
      aria-labelledby={title}
      onCancel={(event) => {
        event.preventDefault();
        props.onClose();
      }}
      onClick={(event) => {
        if (event.target === ref.current) props.onClose();
      }}
    >
      <div className="dialog">
        <header className="dialog-head">
          <h2 id={title}>{props.title}</h2>
          <button type="button" className="tool" aria-label={words.close} onClick={props.onClose}>
            <Icon name="close" />
          </button>
        </header>
        {props.children}
      </div>
    </dialog>
  );
}

/** Ask before something that cannot be taken back. */
export function Confirm(props: {
  readonly title: string;
  readonly say: string;
  readonly action: string;
  readonly danger?: boolean;
  readonly onAgree: () => void;
  readonly onClose: () => void;
}) {
  const words = useWords();
  return (
    <Dialog title={props.title} onClose={props.onClose}>
      <p>{props.say}</p>
      <div className="doing">
        <button type="button" className="button" onClick={props.onClose}>
          {words.cancel}
        </button>
        <button
          type="button"
          className={props.danger === true ? "button danger" : "button main"}
          onClick={() => {
            props.onAgree();
            props.onClose();
          }}
        >
          {props.action}
        </button>
      </div>
    </Dialog>
  );
}

export interface Choice {
  readonly name: string;
  readonly icon?: IconName;
  readonly danger?: boolean;
  readonly onChoose: () => void;
}

/** A button that opens a list of things to do. Arrows walk it, Escape leaves it. */
export function Menu(props: {
  readonly label: string;
  readonly icon: IconName;
  readonly choices: () => readonly Choice[];
  readonly className?: string;
}) {
  const [open, setOpen] = useState(false);
  const list = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  useLayoutEffect(() => {
    if (!open) return;
    list.current?.showPopover();
    place(list, button);
    items(list)[0]?.focus();
  }, [open]);
  const leave = () => {
    setOpen(false);
    button.current?.focus();
  };
  return (
    <>
      <button
        ref={button}
        type="button"
        className={props.className ?? "tool"}
        aria-label={props.label}
        aria-haspopup="menu"
        aria-expanded={open}
        title={props.label}
        onClick={() => setOpen(true)}
      >
        <Icon name={props.icon} />
      </button>
      {open && (
        <div
          ref={list}
          className="menu"
          role="menu"
          aria-label={props.label}
          popover="auto"
          onToggle={(event) => {
            if ((event as unknown as ToggleEvent).newState === "closed") setOpen(false);
          }}
          onKeyDown={(event) => {
            if (event.key === "Escape") {
              event.preventDefault();
              event.stopPropagation();
              leave();
              return;
            }
            const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
            if (step === 0) return;
            event.preventDefault();
            event.stopPropagation();
            const all = items(list);
            const at = all.indexOf(document.activeElement as HTMLButtonElement);
            all[(at + step + all.length) % all.length]?.focus();
          }}
        >
          {props.choices().map((choice) => (
            <button
              key={choice.name}
              type="button"
              role="menuitem"
              tabIndex={-1}
              className={choice.danger === true ? "danger" : undefined}
              onClick={() => {
                leave();
                choice.onChoose();
              }}
            >
              {choice.icon !== undefined && <Icon name={choice.icon} />}
              {choice.name}
            </button>
          ))}
        </div>
      )}
    </>
  );
}

function items(list: RefObject<HTMLDivElement | null>): HTMLButtonElement[] {
  return [...(list.current?.querySelectorAll<HTMLButtonElement>("[role=menuitem]") ?? [])];
}

/** Put the list under its button, or above where there is no room, within the window. */
function place(list: RefObject<HTMLDivElement | null>, button: RefObject<HTMLButtonElement | null>): void {
  if (list.current === null || button.current === null) return;
  const from = button.current.getBoundingClientRect();
  const { width, height } = list.current.getBoundingClientRect();
  const fits = from.bottom + height + 8 < innerHeight;
  list.current.style.top = `${fits ? from.bottom + 4 : Math.max(8, from.top - height - 4)}px`;
  list.current.style.left = `${Math.max(8, Math.min(from.right - width, innerWidth - width - 8))}px`;
}
