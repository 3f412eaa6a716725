/**
 * Errors for tests of messages: t.throws and t.rejects accept a part of the text, whereas t.equal on these does not.
 */

/** The error that `work` throws or rejects with; if it does neither, an error that says so. */
export async function failure(work: Promise<unknown> | (() => unknown)): Promise<Error> {
  try {
    await (typeof work === 'function' ? work() : work)
  } catch (error) {
    if (error instanceof Error) return error
    throw error
  }
  return new Error('(it did not fail)')
}

/** The message of failure(). */
export async function messageOf(work: Promise<unknown> | (() => unknown)): Promise<string> {
  return (await failure(work)).message
}
