/**
 * Rows as the server returns them: where each thing stands now. What a release of the server adds
 * is there too, untyped; nothing here is ever built by a client.
 */

/** JSON that is passed on as it is. */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

/** Why a conversation is paused: the adapter's version that is pinned for its model does not know a block. */
export interface Pause {
  readonly run: string;
  readonly model: string;
  readonly adapter_version: number;
  readonly block_kind: string;
  readonly reason: string;
  readonly fix: string;
}

export interface Conversation {
  readonly id: string;
  readonly tenant: string;
  readonly session: string;
  readonly head: string | null;
  readonly revision: number;
  readonly cancel_generation: number;
  readonly attempt_generation: number;
  readonly active_operation: string | null;
  readonly slot: string | null;
  readonly title: string | null;
  readonly created_ms: number;
  readonly updated_ms: number;
  readonly last_event: number;
  readonly metadata: Readonly<Record<string, string>>;
  readonly deleted: boolean;
  readonly erased_ms: number | null;
  readonly deletions: readonly string[];
  /** Null where it is not; found when it is asked for, so events do not carry it. */
  readonly paused: Pause | null;
}

export interface Session {
  readonly id: string;
  readonly conversation: string;
  readonly goal: string | null;
  readonly active: boolean;
  readonly head: string | null;
  readonly created_ms: number;
}

export type Role = "system" | "developer" | "user" | "assistant" | "tool";
export type Trust = "operator" | "developer" | "user" | "model" | "tool" | "retrieved";
export type Origin = "client" | "model" | "tool" | "kept" | "copied" | "imported" | "system";
export type MessageStatus = "pending" | "success" | "error" | "canceled";
export type Outcome = "success" | "error" | "canceled";

/** State that only its provider reads. */
export interface Opaque {
  readonly profile: string;
  readonly value: Json;
  readonly model?: string;
}

export interface TextBlock {
  readonly kind: "text";
  readonly text: string;
  readonly opaque?: Opaque;
}
export interface ImageBlock {
  readonly kind: "image";
  readonly url?: string;
  readonly media_type?: string;
  readonly data?: string;
  readonly detail?: string;
}
export interface AudioBlock {
  readonly kind: "audio";
  readonly data: string;
  readonly format: string;
}
export interface FileBlock {
  readonly kind: "file";
  readonly file_id?: string;
  readonly filename?: string;
  readonly media_type?: string;
  readonly data?: string;
}
export interface ReasoningBlock {
  readonly kind: "reasoning";
  readonly text?: string;
  readonly opaque?: Opaque;
}
export interface RefusalBlock {
  readonly kind: "refusal";
  readonly text: string;
}
export interface ToolCallBlock {
  readonly kind: "tool_call";
  readonly call_id: string;
  readonly name: string;
  readonly arguments: string;
  readonly closed?: boolean;
}
export interface ToolResultBlock {
  readonly kind: "tool_result";
  readonly call_id: string;
  readonly content?: readonly (TextBlock | ImageBlock | FileBlock)[];
  readonly outcome?: Outcome;
  readonly code?: string;
  readonly name?: string;
}
export interface UnknownBlock {
  readonly kind: "unknown";
  readonly name: string;
  readonly value?: Json;
}
export type Block =
  | TextBlock
  | ImageBlock
  | AudioBlock
  | FileBlock
  | ReasoningBlock
  | RefusalBlock
  | ToolCallBlock
  | ToolResultBlock
  | UnknownBlock;

/** A node of the tree. What stands at its usual value is left out: no `status` is `success`. */
export interface Message {
  readonly id: string;
  readonly conversation: string;
  readonly parent: string | null;
  readonly role: Role;
  readonly blocks: readonly Block[];
  readonly origin: Origin;
  readonly trust: Trust;
  readonly name?: string;
  readonly session?: string;
  readonly run?: string;
  readonly copied_from?: string;
  readonly created_ms?: number;
  readonly metadata?: Readonly<Record<string, string>>;
  readonly status?: MessageStatus;
  readonly error_code?: string;
  readonly erased?: boolean;
}

export type RunStatus = "queued" | "pending" | "waiting" | "unknown" | "success" | "error" | "canceled";

/** Whether a run of this status has not ended. */
export function isOpen(status: RunStatus): boolean {
  return status === "queued" || status === "pending" || status === "waiting" || status === "unknown";
}

export interface Run {
  readonly id: string;
  readonly conversation: string;
  readonly kind: "send" | "regenerate";
  readonly status: RunStatus;
  readonly options: { readonly model: string; readonly metadata?: Readonly<Record<string, string>> };
  readonly input: string | null;
  readonly asked_parent: string | null;
  readonly session: string | null;
  /** The newest message of the run's own line: its input, then each commit. */
  readonly leaf: string | null;
  /** Where its placement, or its last commit, left the head. */
  readonly head_left: string | null;
  readonly answer: string | null;
  readonly operation: string | null;
  readonly committed: number;
  readonly error_code: string | null;
  readonly end_code: string | null;
  readonly input_tokens: number;
  readonly output_tokens: number;
  /** Inside the input: what a cache gave, and what was put into one. */
  readonly cached_tokens: number;
  readonly cache_write_tokens: number;
  /** Inside the output. */
  readonly reasoning_tokens: number;
  /** Null where nobody knows what its tokens cost. */
  readonly cost: Cost | null;
  readonly created_ms: number;
  readonly started_ms: number | null;
  readonly ended_ms: number | null;
  readonly seq: number;
}

/** Money, in millionths of its unit, at the prices of a day; no day where the configuration named them. */
export interface Cost {
  readonly micros: number;
  readonly currency: string;
  readonly prices_of: string | null;
}

/** What one answer took. */
export interface Used {
  readonly input_tokens: number;
  readonly output_tokens: number;
  readonly cached_tokens: number;
  readonly cache_write_tokens: number;
  readonly reasoning_tokens: number;
  readonly cost: Cost | null;
}

export type AttemptState =
  | "PREPARED"
  | "DISPATCHING"
  | "SENT"
  | "STREAMING"
  | "UNKNOWN"
  | "FAILED"
  | "COMMITTED"
  | "CANCELED"
  | "CLOSED";

/** A provider's own words on why there is no answer; ours where it had none, as for a connection that broke. */
export interface Said {
  readonly message: string;
  readonly status?: number;
  readonly retryable?: boolean;
  readonly retry_after_ms?: number;
}

export interface Attempt {
  readonly operation: string;
  readonly conversation: string;
  readonly run: string;
  readonly number: number;
  readonly generation: number;
  readonly state: AttemptState;
  readonly handle: string | null;
  readonly node: string | null;
  readonly deadline_ms: number;
  readonly sent_again: boolean;
  readonly proof: string | null;
  readonly error_code: string | null;
  readonly prepared_ms: number;
  readonly accepted_ms: number | null;
  readonly written_ms: number | null;
  readonly opened_ms: number | null;
  readonly ended_ms: number | null;
  /** What its answer took, where that was had whole. */
  readonly used: Used | null;
  /** What its provider said in place of an answer; its `message` is empty once it was erased. */
  readonly said: Said | null;
}

export type CallState = "PENDING" | "EXECUTING" | "SUCCESS" | "ERROR" | "CANCELED" | "UNKNOWN";

export interface Call {
  readonly conversation: string;
  readonly run: string;
  readonly message: string;
  readonly call_id: string;
  readonly order: number;
  readonly name: string;
  readonly arguments: string;
  readonly changed_arguments: string | null;
  readonly runner: "client" | "function";
  readonly state: CallState;
  readonly attempt: number;
  readonly deadline_ms: number;
  readonly code: string | null;
  readonly content: readonly Block[];
  readonly ended_ms: number | null;
  readonly approval: "needed" | "given" | null;
  readonly reused_from: string | null;
}

export interface Manifest {
  readonly operation: string;
  readonly session: string;
  readonly run: string;
  readonly purpose: "turn" | "decision" | "summary" | "title";
  readonly base_leaf: string;
  readonly conversation_revision: number;
  readonly sequence_digest: string;
  readonly adapter: string;
  readonly adapter_version: number;
  readonly provider: string;
  readonly model_revision: string;
  readonly request_digest: string;
  readonly max_output_tokens: number | null;
  readonly linked_to: string | null;
}

/** What a profile changed on the way to the wire, and where. */
export interface Mapping {
  readonly [key: string]: Json;
}

export interface Operation {
  readonly manifest: Manifest;
  readonly digest: string;
  readonly mappings: readonly Mapping[];
  readonly attempts: readonly Attempt[];
}

export interface Quarantined {
  readonly operation: string | null;
  readonly generation: number;
  readonly reason: string;
  readonly data: string;
  readonly at_ms: number;
}

/** Everything that is recorded about a run. */
export interface Explanation {
  readonly run: Run;
  readonly input: Message | null;
  readonly operations: readonly Operation[];
  readonly calls: readonly Call[];
  readonly quarantined: readonly Quarantined[];
}

/** A request exactly as it left; keys are added at the socket and never stored. */
export interface Sent {
  readonly operation: string;
  readonly request_digest: string;
  readonly method: string;
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** A dispatch whose outcome is open, and what may safely be done about it. */
export interface Dispatch {
  readonly operation: string;
  readonly conversation: string;
  readonly run: string;
  readonly attempt: number;
  readonly generation: number;
  readonly state: AttemptState;
  readonly code: string | null;
  readonly handle: string | null;
  readonly age_ms: number;
  readonly deadline_ms: number;
  /** By which ways its profile leads out of UNKNOWN, best first. */
  readonly policy: readonly ("handle" | "idempotent" | "connection" | "deadline" | "operator")[];
  readonly actions: readonly DispatchAction[];
  readonly next: string;
}
export type DispatchAction = "settle" | "ended" | "cancel";

export interface Model {
  readonly name: string;
  readonly about: string;
  readonly default: boolean;
}

export interface Tree {
  readonly conversation: Conversation;
  readonly messages: readonly Message[];
  readonly runs: readonly Run[];
  /** Whether that is every message, and every run. */
  readonly whole?: boolean;
}

export interface Page {
  readonly data: readonly Conversation[];
  readonly cursor: string | null;
  /** Of those in which a run is open, the status that most wants somebody. */
  readonly open?: Readonly<Record<string, RunStatus>>;
}

export interface Listed<T> {
  readonly data: readonly T[];
}
