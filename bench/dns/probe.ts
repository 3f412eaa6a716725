/**
 * `node bench/dns/probe.ts SERVER COUNT`: queries SERVER for bench-0, bench-1, … one after the other, each about a
 * thousand times a second, and prints a line when a name is first found absent and when it first has an address.
 */
import { createSocket } from 'node:dgram'
import { setTimeout as pause } from 'node:timers/promises'

export interface ProbeLine {
  readonly name: string
  readonly state: 'absent' | 'present'
  /** When the answer arrived, in nanoseconds of the monotonic clock. */
  readonly atNs: string
  readonly roundTripMs: number
}

const NOERROR = 0
const NXDOMAIN = 3

function question(id: number, name: string): Buffer {
  const labels = name.split('.').flatMap((label) => [Buffer.from([label.length]), Buffer.from(label)])
  const header = Buffer.from([id >> 8, id & 0xff, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0])
  return Buffer.concat([header, ...labels, Buffer.from([0, 0, 1, 0, 1])])
}

async function main(): Promise<void> {
  const [server = '', count = '0'] = process.argv.slice(2)
  const socket = createSocket('udp4')
  const waiting = new Map<number, (answer: Buffer) => void>()
  socket.on('message', (answer) => waiting.get(answer.readUInt16BE(0))?.(answer))
  let id = 0
  const ask = async (name: string): Promise<{ state?: ProbeLine['state']; atNs: bigint; roundTripMs: number }> => {
    id = (id + 1) & 0xffff
    const own = id
    const started = process.hrtime.bigint()
    const answer = await new Promise<Buffer | undefined>((resolve) => {
      waiting.set(own, resolve)
      socket.send(question(own, name), 53, server)
      void pause(500).then(() => resolve(undefined))
    })
    waiting.delete(own)
    const atNs = process.hrtime.bigint()
    const roundTripMs = Number(atNs - started) / 1e6
    if (answer === undefined) return { atNs, roundTripMs }
    const code = answer.readUInt16BE(2) & 0xf
    if (code === NXDOMAIN) return { state: 'absent', atNs, roundTripMs }
    return code === NOERROR && answer.readUInt16BE(6) > 0
      ? { state: 'present', atNs, roundTripMs }
      : { atNs, roundTripMs }
  }
  for (let i = 0; i < Number(count); i += 1) {
    const name = `bench-${i}.shop.svc.clusterset.local`
    for (const wanted of ['absent', 'present'] as const) {
      for (;;) {
        const answer = await ask(name)
        if (answer.state === wanted) {
          const line: ProbeLine = { name, state: wanted, atNs: String(answer.atNs), roundTripMs: answer.roundTripMs }
          process.stdout.write(`${JSON.stringify(line)}\n`)
          break
        }
        await pause(1)
      }
    }
  }
  socket.close()
}

if (import.meta.main) await main()
