/** For tests of messages: t.throws and t.rejects take a part of the text for the whole; t.equal on these does not. */

/** The error that `work` throws or rejects with; an error that says so where it does neither. */
export async function failure(work: Promise<unknown> | (() => unknown)): Promise<Error> {
  try {
    await (typeof work === 'function' ? work() : work)
  } catch (error) {
    if (error instanceof Error) return error
    throw error
  }
  return new Error('(it did not fail)')
}

/** As failure(); only the message. */
export async function messageOf(work: Promise<unknown> | (() => unknown)): Promise<string> {
  return (await failure(work)).message
}
