/** A relay in the namespace where it runs: `node relay-program.ts JSON`. SIGUSR2 withdraws all ends but one. */
import { randomBytes } from 'node:crypto'
import { agreementOf } from '../../../gateway/cable/agreement.ts'
import { DEFAULT_LIMITS } from '../../../gateway/reach/relay-server/bindings.ts'
import type { RelayEnd } from '../../../gateway/reach/relay-server/relay-events.ts'
import { RelayServer } from '../../../gateway/reach/relay-server/relay-server.ts'
import { NftSession } from '../../../kernel/nft/nft.ts'
import { parseAddress } from '../../../model/addresses/addresses.ts'
import { SystemClock } from '../../../reconcile/clock.ts'

export interface RelayProgramInit {
  readonly clusterset: string
  readonly privateKey: string
  readonly identity: string
  readonly address: string
  readonly controlPort: number
  readonly ports: { readonly first: number; readonly last: number }
  readonly bytesPerSecond: number
  readonly memberBytesPerSecond: number
  readonly ends: readonly RelayEnd[]
}

const init = JSON.parse(process.argv[2] ?? '{}') as RelayProgramInit
const clock = new SystemClock()
const nft = new NftSession({ family: 'ip' })
const server = new RelayServer(
  {
    nft,
    clock,
    onError: (error) => process.stdout.write(`${JSON.stringify({ error: String(error) })}\n`),
    onQuestion: (outcome) => process.stdout.write(`${JSON.stringify({ outcome })}\n`),
  },
  {
    ...init,
    address: parseAddress(init.address),
    limits: DEFAULT_LIMITS,
    agree: agreementOf(init.privateKey),
    randomBytes,
  },
)
server.setEnds(init.ends, () => true)
process.on('SIGUSR2', () => server.setEnds(init.ends.slice(0, 1), () => true))
const stop = new AbortController()
process.on('SIGTERM', () => stop.abort())
await server.run(stop.signal)
process.exit(0)
