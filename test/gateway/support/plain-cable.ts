/**
 * The simplest possible cable: in memory, without keys and without sessions. It tells far ends apart by the name of
 * their node, and its Endpoints have nothing that WireGuard could use. So everything that the gateway does over it
 * works without keys.
 */
import type { FakeRouteTable } from '../../../kernel/fake/fake-route-table.ts'
import { type AddressPort, formatAddressPort, sameAddressPort } from '../../../model/addresses/address-port.ts'
import { laneAddress } from '../../../model/addresses/addressing.ts'
import { problem } from '../../../model/reasons/reasons.ts'
import { laneDevice } from '../../../model/kernel-ids.ts'
import {
  type ApplyLaneInit,
  type Cable,
  type CableDevice,
  type CableLink,
  type CableRules,
  type FarEnd,
  type LaneState,
  type LinkState,
  laneDeviceNames,
  linkKey,
} from '../../../gateway/cable/cable-driver.ts'
import type { Round } from '../../../kernel/apply/round.ts'

/** The octets of an outer IPv4 and UDP header (RFC 791, RFC 768). */
const OVERHEAD = 28
/** The cable has no sessions: a far end that was silent for so long may be gone. */
const SESSION_MS = 60_000

const rules: CableRules = {
  overhead: OVERHEAD,
  sessionMs: SESSION_MS,
  endsWithProcess: (driver) => (driver === 'plain' ? 'it is in memory' : undefined),
  probeAddress: laneAddress,
  identityOf: ({ spec }) => `${spec.cluster}/${spec.node}`,
  nextIdentityOf: () => undefined,
  endpointProblem: ({ spec }) =>
    spec.capabilities.includes('plain')
      ? undefined
      : `capabilities ${JSON.stringify(spec.capabilities)}: expected plain`,
  identityTaken: (owner) => problem('InvalidValue', `its node is that of ${owner}`),
  endpointFields: () => ({ publicKey: 'none', capabilities: ['plain'] }),
  plan: (lane) => ({ text: planText(lane) }),
}

function planText({ device, port, mtu, links, successors }: CableDevice): string {
  const text = ({ endpoint, choice }: CableLink): string => {
    const at = choice.at === undefined ? '' : ` ${formatAddressPort(choice.at)}`
    return `link ${endpoint}: ${choice.how}${at}\n`
  }
  return `plain ${device} port ${port} mtu ${mtu}\n${[...links, ...successors].map(text).join('')}`
}

export class PlainCable implements Cable {
  readonly rules: CableRules
  readonly #routes: FakeRouteTable
  readonly #own: string
  /** The links by device, then by linkKey(). */
  readonly #lanes = new Map<string, Map<string, LinkState>>()

  /** `own` is the cluster/node of this end. */
  constructor(routes: FakeRouteTable, own: string) {
    this.#routes = routes
    this.#own = own
    this.rules = rules
  }

  driver(): Promise<{ readonly name: string }> {
    return Promise.resolve({ name: 'plain' })
  }

  prepare(): Promise<void> {
    return Promise.resolve()
  }

  observe(
    lanes: readonly number[],
    ends: readonly FarEnd[],
    signal: AbortSignal,
  ): Promise<ReadonlyMap<number, LaneState>> {
    if (signal.aborted) return Promise.reject(new Error('stopped'))
    const seen = lanes.flatMap((lane) => {
      const all = this.#lanes.get(laneDevice(lane))
      if (all === undefined) return []
      const wanted = new Set(ends.filter((end) => end.remoteLane === lane).map(linkKey))
      const links = new Map([...all].filter(([key]) => wanted.has(key)))
      return [[lane, { identity: this.#own, links }] as const]
    })
    return Promise.resolve(new Map(seen))
  }

  async apply(lane: CableDevice, { seen, callAgain, round, signal }: ApplyLaneInit): Promise<LaneState | undefined> {
    const before = this.#lanes.get(lane.device) ?? new Map<string, LinkState>()
    await this.#ensureDevice(lane, round, signal)
    const after = new Map<string, LinkState>()
    for (const link of [...lane.links, ...lane.successors]) {
      const key = linkKey(link)
      const present = before.get(key)
      const isHeard = !isSame(present, seen?.links.get(key))
      const made = present !== undefined && callAgain.has(key) && !isHeard ? undefined : present
      const at = isHeard || link.choice.how !== 'try' ? made?.at : link.choice.at
      after.set(key, { ...(made ?? { rxBytes: 0, txBytes: 0 }), ...place(at), carries: lane.links.includes(link) })
    }
    this.#lanes.set(lane.device, after)
    const text = (states: ReadonlyMap<string, LinkState>): string =>
      [...states].map(([key, { at, carries }]) => `${key} ${at && formatAddressPort(at)} ${carries}`).join()
    if (text(before) !== text(after)) round.note('peers', planText(lane))
    return { identity: this.#own, links: before }
  }

  async remove(keep: readonly string[], round: Round, signal: AbortSignal): Promise<boolean> {
    for (const name of await laneDeviceNames(this.#routes, signal)) {
      if (keep.includes(name)) continue
      this.#lanes.delete(name)
      await round.change('device', `ip link del ${name}`, () => this.#routes.deleteLink(name, signal))
    }
    return true
  }

  /** The far end sends a packet, for the first time or again. */
  onReason(end: FarEnd, atMs: number, at?: AddressPort): void {
    const links = this.#lanes.get(laneDevice(end.remoteLane))
    const link = links?.get(linkKey(end))
    if (link === undefined) throw new Error(`no link to ${end.endpoint}`)
    links?.set(linkKey(end), { ...link, handshakeMs: atMs, rxBytes: link.rxBytes + 100, ...place(at ?? link.at) })
  }

  async #ensureDevice({ device, mtu, address }: CableDevice, round: Round, signal: AbortSignal): Promise<void> {
    if (!this.#lanes.has(device)) {
      this.#routes.putLink({ name: device, kind: 'tun', mtu, up: true, mac: '' })
      round.note('device', `ip link add ${device}`)
    }
    const link = (await this.#routes.links(signal)).find(({ name }) => name === device)
    if (link?.mtu !== mtu) {
      await round.change('device', `ip link set ${device} mtu ${mtu}`, () =>
        this.#routes.setLink(device, { mtu }, signal),
      )
    }
    const addresses = (await this.#routes.addresses(signal)).filter((one) => one.device === device)
    if (addresses.some((one) => one.address === address)) return
    await round.change('address', `ip address add ${address} dev ${device}`, () =>
      this.#routes.addAddress({ device, address }, signal),
    )
  }
}

function isSame(present: LinkState | undefined, seen: LinkState | undefined): boolean {
  return sameAddressPort(present?.at, seen?.at) && present?.handshakeMs === seen?.handshakeMs
}

function place(at: AddressPort | undefined): Pick<LinkState, 'at'> {
  return at === undefined ? {} : { at }
}
