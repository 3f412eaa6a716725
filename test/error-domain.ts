/**
 * Replaces `async-hook-domain`, by which tap finds the test that an uncaught error comes from: that package follows every
 * promise, which takes a large part of the processor time. Here such an error belongs to the innermost test that runs.
 * Either way it fails the file.
 */
import { executionAsyncResource } from 'node:async_hooks'

type OnError = (error: unknown, type: string) => void

/** The property of tap's resource of a test that says whether the test has begun. */
interface Resource {
  readonly test?: { readonly started: boolean }
}

/** The domains of the tests that have not ended, in the order of their creation. */
const open: Domain[] = []

export class Domain {
  readonly onerror: OnError
  readonly #test: Resource['test']

  /** tap creates the domain of a test inside the resource of the test. */
  constructor(onerror: OnError) {
    this.onerror = onerror
    this.#test = (executionAsyncResource() as Resource).test
    open.push(this)
  }

  /** Tests that wait for those before them have domains already. */
  get hasBegun(): boolean {
    return this.#test?.started ?? true
  }

  destroy(): void {
    const at = open.indexOf(this)
    if (at >= 0) open.splice(at, 1)
  }
}

for (const type of ['uncaughtException', 'unhandledRejection'] as const) {
  process.on(type, (error: unknown) => {
    const domain = open.findLast(({ hasBegun }) => hasBegun)
    // After the last test nothing else reports the error, so it ends the process.
    if (domain === undefined) throw error
    domain.onerror(error, type)
  })
}
