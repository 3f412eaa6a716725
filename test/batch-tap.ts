/**
 * Replaces `tap` for the test files of one process (run-batch.ts), with the test that stands for the file being read.
 */
import tap, { type Test } from 'tap'

let current: Test = tap

/** From now on, files that are read add their tests to this one. */
export function readFilesInto(test: Test): void {
  current = test
}

/** Tests of tap have private fields, so their methods must be called on the object itself. */
const test = new Proxy(tap, {
  get: (_, key) => {
    const value: unknown = Reflect.get(current, key)
    return typeof value === 'function' ? (value.bind(current) as unknown) : value
  },
  set: (_, key, value) => Reflect.set(current, key, value),
})

/** tap, which this module replaces, has a default export too. */
export { test as default }
