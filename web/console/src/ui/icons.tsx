/** Pictures, drawn here: one set of lines of one weight. They say nothing; their buttons do. */

const PATHS = {
  plus: "M12 5v14M5 12h14",
  search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14ZM20 20l-4-4",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M7.5 7.5h9v9h-9z",
  edit: "M4 20h4L19 9l-4-4L4 16zM13 7l4 4",
  again: "M20 11a8 8 0 1 0-2.3 6.3M20 5v6h-6",
  copy: "M9 9h10v11H9zM5 15V4h10",
  tick: "M5 13l4.5 4.5L19 7.5",
  left: "M14 6l-6 6 6 6",
  right: "M10 6l6 6-6 6",
  down: "M6 10l6 6 6-6",
  why: "M9.2 9a3 3 0 1 1 4.3 2.9c-1 .5-1.5 1.2-1.5 2.3M12 18h.01",
  tree: "M6 4v16M6 9h6a4 4 0 0 1 4 4v1M18 17a2 2 0 1 1-4 0 2 2 0 0 1 4 0Z",
  fork: "M7 5v6a4 4 0 0 0 4 4h6M14 12l3 3-3 3M7 11v8",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  menu: "M4 7h16M4 12h16M4 17h16",
  close: "M6 6l12 12M18 6L6 18",
  gear: "M4 7h9M17 7h3M4 17h3M11 17h9M15 9.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5ZM9 19.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5Z",
  pulse: "M3 12h4l3-7 4 14 3-7h4",
  key: "M14 10a4 4 0 1 0-3.5 4L13 11.5M13.5 11L20 17.5V20h-3v-2h-2v-2",
  download: "M12 4v11M7 11l5 5 5-5M5 20h14",
  attach: "M19 11l-7.5 7.5a4.5 4.5 0 0 1-6.4-6.4L13 4.3a3 3 0 0 1 4.3 4.3L9.6 16.2a1.5 1.5 0 0 1-2.1-2.1L14.5 7",
  unsure: "M12 8v5M12 16.5h.01M12 3.5l9.5 16.5h-19z",
  wrong: "M12 8v5M12 16h.01M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18Z",
  clock: "M12 7v5l3 2M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18Z",
  wrench: "M15 6a4 4 0 0 1 5-1l-2.5 2.5 1 2L21 9a4 4 0 0 1-5.5 3.5L8 20l-3-3 7.5-7.5A4 4 0 0 1 15 6Z",
  undo: "M8 5L4 9l4 4M4 9h10a5 5 0 0 1 0 10h-3",
  sun: "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8ZM12 3v1.5M12 19.5V21M3 12h1.5M19.5 12H21M5.6 5.6l1.1 1.1M17.3 17.3l1.1 1.1M5.6 18.4l1.1-1.1M17.3 6.7l1.1-1.1",
  moon: "M19 14.5A7.5 7.5 0 0 1 9.5 5 7.5 7.5 0 1 0 19 14.5Z",
  thought: "M12 4a7 7 0 0 0-4 12.7V20h8v-3.3A7 7 0 0 0 12 4ZM9 20h6",
  file: "M6 3h8l4 4v14H6zM14 3v4h4",
  goal: "M6 21V4M6 5h11l-2 4 2 4H6",
  keep: "M7 4h10v16l-5-4-5 4z",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { readonly name: IconName }) {
  return (
    <svg className="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}

/** The versicle and the response of a psalter: who calls, who answers. */
export function Mark({ of }: { readonly of: "call" | "response" }) {
  return (
    <svg className="mark" data-of={of} viewBox="0 0 20 20" aria-hidden="true" focusable="false">
      {of === "call" ? <path d="M3 4l7 13 7-13M2 10.5l9-5" /> : <path d="M4 17V4h6.5a3.6 3.6 0 0 1 0 7.2H4M9 11.2l7 6M7.5 18.5l9.5-8" />}
    </svg>
  );
}
