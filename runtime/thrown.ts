/** What a `catch` gets may be anything. */

/** What an error says; of anything else its text. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

/** The error itself; anything else becomes one that says it. */
export function errorOf(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error))
}
