/** A process that floods until it is ended. Its argument is the JSON that flood.ts passes. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { RawBroker, RawIdentity } from '../../test/hostile/support/raw-channel.ts'
import { FLOODS } from './floods.ts'

export interface FloodArguments {
  readonly flood: string
  readonly broker: RawBroker
  readonly member: RawIdentity
  readonly connections?: number
  /** It always ends by itself after this time. */
  readonly ms: number
}

const { flood, ms, ...init } = JSON.parse(process.argv[2] ?? '') as FloodArguments
const run = FLOODS[flood]
if (run === undefined)
  throw new Error(`no flood ${JSON.stringify(flood)}: expected one of ${Object.keys(FLOODS).join()}`)
process.stdout.write('flooding\n')
void run({ ...init, signal: AbortSignal.timeout(ms) })
await sleep(ms + 200)
process.exit(0)
