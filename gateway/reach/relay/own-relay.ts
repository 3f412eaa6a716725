/** The relay that this gateway is, while its node offers one that others can call. */
import { randomBytes } from 'node:crypto'
import { removeTable } from '../../../kernel/nft/nft.ts'
import type { OpenProbeSocket } from '../../../kernel/probing/probing.ts'
import { type Address, formatAddress, ipv4Among, parseAddress } from '../../../model/addresses/addresses.ts'
import { NFT_TABLE_RELAY, RELAY_LAST_PORT, RELAY_PORT } from '../../../model/model.ts'
import { transitOf } from '../../../model/schemas/schemas.ts'
import type { GatewayDeps, GatewayWorld } from '../../world/world.ts'
import { isOwnLaneHidden, ownAddresses, planCandidates } from '../plan-candidates.ts'
import { DEFAULT_LIMITS } from '../relay-server/bindings.ts'
import { planRelayEnds } from '../relay-server/plan-relay-ends.ts'
import type { OwnEnd } from '../frames/bind-frame.ts'
import { RelayServer } from '../relay-server/relay-server.ts'

/** One run of the server, until what names it changes. */
interface Serving {
  /** What it would have to begin again for. */
  readonly name: string
  readonly server: RelayServer
  readonly stop: AbortController
  readonly ended: Promise<void>
}

/** What one end, and all ends of one member, may send: a link of one gigabit, and two of them. */
const RATES = { bytesPerSecond: 125_000_000, memberBytesPerSecond: 250_000_000 }

export interface OwnRelayDeps extends Pick<GatewayDeps, 'nft' | 'clock' | 'logger' | 'cable'> {
  readonly openSocket: OpenProbeSocket
  /** It serves at another address or by another key now, so its load is another one. */
  readonly onStart: () => void
  readonly onError: (error: unknown) => void
}

export class OwnRelay {
  readonly #deps: OwnRelayDeps
  #serving: Serving | undefined
  /** At first, one of an earlier run of the process may be there. */
  #mayHaveTable = true

  constructor(deps: OwnRelayDeps) {
    this.#deps = deps
  }

  /** RelayServer.load(). Undefined: this gateway does not relay now. */
  load(): number | undefined {
    return this.#serving?.server.load()
  }

  /**
   * Serves the ends of these clusters if the node offers that, and removes the table if it does not. `ownEnd`: this node
   * as it proves itself, or undefined without a key.
   */
  async apply(
    world: GatewayWorld,
    accepted: ReadonlySet<string>,
    ownEnd: () => Promise<OwnEnd | undefined>,
    signal: AbortSignal,
  ): Promise<void> {
    const [lane] = world.lanes
    const offers = lane?.relay === true && !isOwnLaneHidden(world, lane)
    if (!offers) {
      await this.stop()
      if (this.#mayHaveTable) await removeTable(this.#deps.nft, NFT_TABLE_RELAY, signal)
      this.#mayHaveTable = false
      return
    }
    const [own, address] = [await ownEnd(), addressHere(world)]
    if (own === undefined || address === undefined) {
      await this.stop()
      return
    }
    const name = [own.clusterset, own.identity, formatAddress(address)].join(' ')
    if (this.#serving?.name !== name) {
      await this.stop()
      this.#serving = this.#start(name, own, address)
      this.#deps.onStart()
    }
    const transit = transitOf(world)
    const mayLink = (a: string, b: string): boolean => transit.mayRelay(world.own.spec.id, [a, b])
    const isTransit = (a: string, b: string): boolean => transit.isTransit([a, b])
    this.#serving.server.setEnds(planRelayEnds(world.endpoints, accepted, this.#deps.cable.rules), mayLink, isTransit)
  }

  #start(name: string, { clusterset, identity, agree }: OwnEnd, address: Address): Serving {
    const { nft, clock, logger, openSocket, onError } = this.#deps
    const server = new RelayServer(
      { nft, clock, openSocket, onError },
      {
        ...{ clusterset, identity, agree, address, randomBytes, limits: DEFAULT_LIMITS, ...RATES },
        controlPort: RELAY_PORT,
        ports: { first: RELAY_PORT + 1, last: RELAY_LAST_PORT },
      },
    )
    this.#mayHaveTable = true
    const stop = new AbortController()
    const ended = server.run(stop.signal).catch(onError)
    logger.info(`relays between other members at UDP ${RELAY_PORT} to ${RELAY_LAST_PORT}`)
    return { name, server, stop, ended }
  }

  /** The table stays: the packets of bound pairs go on. */
  async stop(): Promise<void> {
    const serving = this.#serving
    this.#serving = undefined
    serving?.stop.abort()
    await serving?.ended
  }
}

/** The address of this node at which packets for the relay arrive: the best candidate that the node has itself. */
function addressHere(world: GatewayWorld): Address | undefined {
  const [lane] = world.lanes
  if (lane === undefined) return undefined
  const ours = ownAddresses({ nodes: [], addresses: world.addresses })
  const own = planCandidates(world, lane).map(({ address }) => address)
  const [found] = ipv4Among(own.filter((text) => ours.has(text)))
  return found === undefined ? undefined : parseAddress(found)
}
