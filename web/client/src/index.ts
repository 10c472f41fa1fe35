/** Client of an Antiphon server for browsers and for whatever else has `fetch`. */

export { type Ask, Client, connect, type Content, type Output, type Part, type Sending, type Tool } from "./client.ts";
export { AntiphonError, type Finding } from "./errors.ts";
export { type Connection, Feed, type Listener, pageWakes, type Wakes } from "./feed.ts";
export type * from "./frames.ts";
export { newId } from "./ids.ts";
export { Live, type View, type Withdrawal } from "./live.ts";
export * from "./rows.ts";
export { sharing } from "./sharing.ts";
export { attached, beginning, reduce, type Shown, type ShownBlock, type State, type Told, told } from "./state.ts";
export { Branches, leafOf } from "./tree.ts";
export type { Change, Options, Patience, Query } from "./wire.ts";
