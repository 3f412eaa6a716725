/** Why a lane may never come up, and what can be done: neither end can be called. Pure. */
import { containsAddress, parseAddress, prefixOf } from '../../model/addresses/ip.ts'
import { ANNOTATION_PUBLIC_ADDRESS } from '../../model/lanes/gateway-node.ts'
import type { ConnectionCause, EndpointCandidate } from '../../model/objects.ts'
import { UNGRANTED_SPACE } from '../../model/addresses/needed-ranges.ts'
import { NEITHER_CALLABLE } from '../../model/status-text.ts'
import type { RemoteLink } from '../remotes/check-endpoints.ts'
import type { GatewayLaneConfig } from '../config.ts'
import { planCandidates } from './plan-candidates.ts'
import type { GatewayWorld } from '../world.ts'

export interface LaneDoubtInit {
  readonly world: GatewayWorld
  readonly own: GatewayLaneConfig
  /** UDP, of this end of the link. */
  readonly port: number
  readonly remote: RemoteLink
  /** This end cannot be called from outside, as far as is known. */
  readonly hidden: boolean
}

export interface LaneDoubt {
  /** One clause for the status. */
  readonly text: string
  readonly cause?: ConnectionCause
}

/** Undefined where nothing speaks against the lane. */
export function laneDoubt(init: LaneDoubtInit): LaneDoubt | undefined {
  const { world, own, port, remote, hidden } = init
  if (hidden && remote.hidden) {
    const there = remote.candidates.find(({ kind }) => kind === 'observed')?.address
    const seen = `here seen as ${world.observedAddress ?? 'nobody'}${there === undefined ? '' : `, there as ${there}`}`
    return { text: `${NEITHER_CALLABLE} (${seen}): ${whatToDo(port)}`, cause: 'NeitherCallable' }
  }
  if (!isPrivateOnly(planCandidates(world, own)) || !isPrivateOnly(remote.candidates)) return undefined
  if (remote.candidates.some(({ address }) => isNear(world, address))) return undefined
  const text = `both ends tell addresses of private networks alone; where these do not lead from one to the other: ${whatToDo(port)}`
  return { text }
}

function whatToDo(port: number): string {
  return (
    `give one of them a public address, or forward UDP ${port} of one to it, and tell that address ` +
    `(annotation ${ANNOTATION_PUBLIC_ADDRESS} of its Node, publicAddress in site.yaml)`
  )
}

function isPrivateOnly(candidates: readonly EndpointCandidate[]): boolean {
  const isPrivate = (text: string): boolean =>
    UNGRANTED_SPACE.some((prefix) => containsAddress(prefix, parseAddress(text)))
  return candidates.length > 0 && candidates.every(({ address }) => isPrivate(address))
}

/** In a network that this node is in. */
function isNear({ addresses }: GatewayWorld, text: string): boolean {
  return addresses.some(({ address }) => {
    const [own = '', length = '32'] = address.split('/')
    const at = parseAddress(own)
    return at.family === 4 && containsAddress(prefixOf(at, Number(length)), parseAddress(text))
  })
}
