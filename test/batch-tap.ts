/** What test files of one process import as `tap` (run-batch.ts): the test that stands for the file being read. */
import tap, { type Test } from 'tap'

let current: Test = tap

/** From now on files that are read write their tests into this one. */
export function readFilesInto(test: Test): void {
  current = test
}

/** tap's tests keep private fields, so their methods want the object itself. */
const test = new Proxy(tap, {
  get: (_, key) => {
    const value: unknown = Reflect.get(current, key)
    return typeof value === 'function' ? (value.bind(current) as unknown) : value
  },
  set: (_, key, value) => Reflect.set(current, key, value),
})

/** As in tap, whose place it takes. */
export { test as default }
