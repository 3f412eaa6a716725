/**
 * The reach of a gateway without its cable, in the namespace where it runs: `node reach-end-program.ts JSON`. It binds
 * at relays and probes far ends, and prints a line of JSON when something changes.
 */
import { agreementOf } from '../../../gateway/cable/agreement.ts'
import { RelayCalls } from '../../../gateway/reach/relay/relay-calls.ts'
import { NftSession } from '../../../kernel/nft/nft.ts'
import { openUdpProbeSocket } from '../../../kernel/probing/probing.ts'
import { formatAddressPort, parseAddress, parseAddressPort } from '../../../model/addresses/addresses.ts'
import { SystemClock } from '../../../reconcile/clock.ts'

export interface ReachEndProgramInit {
  readonly clusterset: string
  readonly privateKey: string
  readonly identity: string
  readonly relays: readonly { readonly identity: string; readonly address: string }[]
  /** Far ends, with where they say that they can be called. */
  readonly far: readonly { readonly name: string; readonly identity: string; readonly places: readonly string[] }[]
}

/** What an end knows of its link to a far end. */
export interface ReachedEnd {
  /** Relays by which packets get to the far end. */
  readonly relays: number
  /** Where it can be called without one. */
  readonly place?: string
  readonly why: string
}

export interface ReachEndLine {
  readonly mapping: string
  readonly links: Readonly<Record<string, ReachedEnd>>
}

const init = JSON.parse(process.argv[2] ?? '{}') as ReachEndProgramInit
const { clusterset, identity } = init
const clock = new SystemClock()
const calls = new RelayCalls({
  nft: new NftSession({ family: 'ip' }),
  clock,
  openSocket: openUdpProbeSocket,
  onError: (error) => process.stderr.write(`${String(error)}\n`),
  onChange: () => undefined,
  onDue: () => void calls.send(),
})
const wants = init.far.flatMap((far) =>
  init.relays.map((relay, i) => ({
    ...{ key: far.name, remoteLane: 0, identity: far.identity },
    relay: {
      ...{ cluster: `relay${i}`, endpoint: `relay${i}`, identity: relay.identity },
      address: parseAddress(relay.address),
    },
  })),
)
const places = new Map(init.far.map((far) => [far.name, far.places.map((text) => parseAddressPort(text))]))
const own = { clusterset, identity, agree: agreementOf(init.privateKey) }
await calls.apply(
  wants,
  { own, ports: new Map([[0, 4500]]), places, mayProbe: () => true },
  AbortSignal.timeout(60_000),
)

function look(): ReachEndLine {
  const [places, punched] = [calls.places(), calls.punched()]
  const links = init.far.map(({ name }): readonly [string, ReachedEnd] => {
    const place = punched.get(name)
    const relays = places.get(name)?.length ?? 0
    return [name, { relays, why: calls.whyRelayed(name), ...(place && { place: formatAddressPort(place) }) }]
  })
  return { mapping: calls.mapping(), links: Object.fromEntries(links) }
}

let said = ''
setInterval(() => {
  calls.send()
  const text = JSON.stringify(look())
  if (text !== said) process.stdout.write(`${text}\n`)
  said = text
}, 50)
