/**
 * Loaded before a program: its wall clock (Date) is wrong by what a file says, as a number of milliseconds, and the file
 * is read again at each SIGUSR2. Time that only goes forward is not touched, as no step of a real clock touches it.
 * OpenSSL and the kernel still have the right time.
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
