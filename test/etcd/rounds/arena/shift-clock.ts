/**
 * A module that is loaded before a program and shifts the program's wall clock (Date). A file holds the offset in
 * milliseconds, and each SIGUSR2 makes the module read it again. The monotonic clock is not touched, because a step of
 * a real clock does not touch it either. OpenSSL and the kernel keep the right time.
 */
import { readFileSync } from 'node:fs'

const RealDate = Date
const file = process.env['SEALANE_TEST_CLOCK'] ?? ''
let offsetMs = 0

function read(): void {
  offsetMs = Number(readFileSync(file, 'utf8'))
}

globalThis.Date = new Proxy(RealDate, {
  construct(target, args: [], newTarget: typeof Date) {
    const given: readonly unknown[] = args
    const own = given.length === 0 ? [RealDate.now() + offsetMs] : args
    return Reflect.construct(target, own, newTarget) as Date
  },
  get(target, name, receiver) {
    return name === 'now' ? () => RealDate.now() + offsetMs : (Reflect.get(target, name, receiver) as unknown)
  },
})

read()
process.on('SIGUSR2', read)
