/** What goes wrong, as one class with a stable code. */

/** One rule that a history breaks, and where. */
export interface Finding {
  readonly code: string;
  readonly at: string | null;
  readonly message: string;
}

/** What the server says, or what became of asking it. */
export class AntiphonError extends Error {
  override readonly name = "AntiphonError";
  /** Stable; `server_unavailable` and `not_antiphon` are of this client, the others the server's. */
  readonly code: string;
  /** The HTTP status; 0 where there was no answer. */
  readonly status: number;
  /** The id or the place that it is about. */
  readonly at: string | null;
  /** Whether trying again may help. */
  readonly retryable: boolean;
  /** Under which the server's log has it. */
  readonly requestId: string | null;
  readonly findings: readonly Finding[];

  constructor(message: string, code: string, told: Partial<AntiphonError> = {}) {
    super(message);
    this.code = code;
    this.status = told.status ?? 0;
    this.at = told.at ?? null;
    this.retryable = told.retryable ?? false;
    this.requestId = told.requestId ?? null;
    this.findings = told.findings ?? [];
  }
}
