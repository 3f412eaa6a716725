/** Waits that may be given up. */

/** True when the action ended by itself, false when the signal ended it. Throws what else it throws. */
export async function unlessAborted(action: Promise<unknown>, signal: AbortSignal): Promise<boolean> {
  try {
    await action
    return true
  } catch (error) {
    if (signal.aborted) return false
    throw error
  }
}
