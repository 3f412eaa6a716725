/**
 * The reach of a gateway without its cable, in the namespace where it runs: `node reach-end-program.ts JSON`. It binds
 * at relays, probes far ends and calls relays on port 443, and prints a line of JSON when something changes. A link
 * counts as up when a relay carries it or a place is proven. HTTPS_PROXY counts.
 */
import { agreementOf } from '../../../gateway/cable/agreement.ts'
import { RelayCalls } from '../../../gateway/reach/relay/relay-calls.ts'
import { type WebLink, type WebUse, planWebUse, webWants } from '../../../gateway/reach/web/plan-web-use.ts'
import { WebRelays } from '../../../gateway/reach/web/web-relays.ts'
import { NftSession } from '../../../kernel/nft/nft.ts'
import { openUdpProbeSocket } from '../../../kernel/probing/probing.ts'
import { formatAddressPort, parseAddress, parseAddressPort } from '../../../model/addresses/addresses.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { proxyChoice } from '../../../runtime/proxy/proxy.ts'

export interface ReachEndProgramInit {
  readonly clusterset: string
  readonly privateKey: string
  readonly identity: string
  /** The number of this gateway in its cluster. */
  readonly lane: number
  readonly relays: readonly { readonly identity: string; readonly address: string }[]
  /** Far ends, with where they say that they can be called. */
  readonly far: readonly FarEnd[]
  /** encodeRelayNotice(): relays on port 443. */
  readonly notice: string
}

interface FarEnd {
  readonly name: string
  readonly identity: string
  readonly lane: number
  readonly places: readonly string[]
}

/** What an end knows of its link to a far end. */
export interface ReachedEnd {
  /** Relays by which packets get to the far end. */
  readonly relays: number
  /** Relays on port 443 at which the far end is, too. */
  readonly web: number
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
    ...{ key: far.name, remoteLane: far.lane, identity: far.identity },
    relay: {
      ...{ cluster: `relay${i}`, endpoint: `relay${i}`, identity: relay.identity },
      address: parseAddress(relay.address),
    },
  })),
)
const places = new Map(init.far.map((far) => [far.name, far.places.map((text) => parseAddressPort(text))]))
/** As a gateway has a device for each number of far gateways. */
const ports = new Map(init.far.map(({ lane }) => [lane, 4500 + lane]))
const own = { clusterset, identity, agree: agreementOf(init.privateKey) }
await calls.apply(wants, { own, ports, places, mayProbe: () => true }, AbortSignal.timeout(60_000))

const web = new WebRelays({
  clock,
  logger: new CapturingLogger(),
  proxies: proxyChoice(process.env),
  onChange: () => undefined,
  onDue: () => undefined,
  onDropped: () => undefined,
})
const LOOPBACK = parseAddressPort('127.0.0.1:1')
let uses: ReadonlyMap<string, WebUse> = new Map()

function callWebRelays(): void {
  const [relayed, punched, webbed] = [calls.places(), calls.punched(), web.places()]
  const links = init.far.map(({ name, identity, lane }): WebLink => {
    const isWeb = !relayed.has(name) && !punched.has(name) && webbed.has(name)
    const isUp = isWeb || relayed.has(name) || punched.has(name)
    return {
      ...{ key: name, remoteLane: lane, identity, state: isUp ? 'up' : 'connecting' },
      ...(isWeb ? { at: LOOPBACK } : {}),
    }
  })
  const nowMs = clock.monotonic()
  uses = planWebUse(links, uses, nowMs)
  web.apply({ links: webWants(links, uses, nowMs), own, notice: init.notice, ports })
}

function look(): ReachEndLine {
  const [places, punched, webbed] = [calls.places(), calls.punched(), web.places()]
  const links = init.far.map(({ name }): readonly [string, ReachedEnd] => {
    const place = punched.get(name)
    const [relays, webs] = [places.get(name)?.length ?? 0, webbed.get(name)?.length ?? 0]
    return [name, { relays, web: webs, why: calls.whyRelayed(name), ...(place && { place: formatAddressPort(place) }) }]
  })
  return { mapping: calls.mapping(), links: Object.fromEntries(links) }
}

let said = ''
setInterval(callWebRelays, 200)
setInterval(() => {
  calls.send()
  const text = JSON.stringify(look())
  if (text !== said) process.stdout.write(`${text}\n`)
  said = text
}, 50)
