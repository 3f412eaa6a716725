/**
 * The nodes of a site without Kubernetes share its lane numbers by Leases in its state folder. Each node has a driver
 * of its own on the same folders, and a test moves the one clock.
 */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { wireguardRules } from '../../../gateway/cable/wireguard/plan-device.ts'
import { LaneSearch } from '../../../gateway/lease/lane-search.ts'
import { LaneLease } from '../../../gateway/lease/lane-lease.ts'
import type { LeaseWatchDeps } from '../../../gateway/lease/lease-watch.ts'
import { FailedLane } from '../../../gateway/lease/failed-lane.ts'
import { FileApi } from '../../../kubeapi/files/file-api.ts'
import type { NodeGateway } from '../../../model/lanes/gateway-node.ts'
import { laneHolders, laneOfHolder } from '../../../model/lanes/lane-servers.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { eventually } from '../../support/eventually.ts'
import { connectionsTo, gatewayObject } from '../../support/objects/node-objects.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { membership } from '../support/netns-sites.ts'
import { endpoint, node } from '../support/worlds.ts'

const ADDRESSES = { a: '192.0.2.10', b: '192.0.2.11', c: '192.0.2.12' }
type Name = keyof typeof ADDRESSES
const NAMES = Object.keys(ADDRESSES) as Name[]
const STEP_MS = 50

class Site {
  readonly clock = new FakeClock()
  readonly folder: string
  readonly logger = new CapturingLogger()
  readonly deadMachines = new Set<string>()
  /** A reader that is not a node. */
  readonly viewer: FileApi
  readonly #gateways: readonly NodeGateway[]
  readonly #numbers: number
  readonly #processes = new Map<Name, { readonly stop: AbortController; readonly api: FileApi }>()

  private constructor(t: Test, gateways: readonly NodeGateway[], numbers: number) {
    this.folder = temporaryFolder(t)
    this.#gateways = gateways
    this.#numbers = numbers
    mkdirSync(join(this.folder, 'objects'))
    for (const name of NAMES) {
      writeFileSync(join(this.folder, 'objects', `${name}.json`), JSON.stringify(node(name, ADDRESSES[name])))
    }
    this.viewer = this.#open()
    t.teardown(async () => {
      for (const name of this.#processes.keys()) await this.end(name)
      await this.viewer.close()
    })
  }

  static async open(t: Test, gateways: readonly NodeGateway[], numbers: number): Promise<Site> {
    const site = new Site(t, gateways, numbers)
    await site.viewer.apply(membership('milano', 'joined'))
    return site
  }

  start(...names: readonly Name[]): void {
    for (const name of names) {
      const stop = new AbortController()
      const api = this.#open()
      this.#processes.set(name, { stop, api })
      const probeTcp = (address: string): Promise<boolean> => Promise.resolve(!this.deadMachines.has(address))
      const { clock, logger } = this
      const deps = { clock, logger, api, leases: api.leases, probeTcp, cable: { rules: wireguardRules } }
      void this.#run(name, deps, stop.signal)
    }
  }

  /** The process is killed, and has given nothing back. */
  async end(name: Name): Promise<void> {
    const { stop, api } = this.#processes.get(name) ?? {}
    this.#processes.delete(name)
    stop?.abort()
    await api?.close()
  }

  async lose(name: Name): Promise<void> {
    this.deadMachines.add(ADDRESSES[name])
    await this.end(name)
  }

  /** The node that holds each lane, as `a=0 c=1`. */
  get held(): string {
    const leases = this.viewer.cache('Lease').list()
    const holders = [...laneHolders(leases)].sort()
    return holders.map((name) => `${name}=${laneOfHolder(leases, name)}`).join(' ')
  }

  /** Lets time pass until the check holds, and returns how much. */
  async until(say: string, check: () => boolean): Promise<number> {
    const from = this.clock.monotonic()
    const step = async (): Promise<boolean> => {
      await this.clock.advance(STEP_MS)
      return check()
    }
    await eventually(step, { deadlineMs: 60_000, intervalMs: 5, say })
    return this.clock.monotonic() - from
  }

  async pass(ms: number): Promise<void> {
    const end = this.clock.monotonic() + ms
    await this.until('time passes', () => this.clock.monotonic() >= end)
  }

  #open(): FileApi {
    const { clock, logger, folder } = this
    const init = { objects: join(folder, 'objects'), state: join(folder, 'state'), gateways: this.#gateways }
    return new FileApi({ clock, logger }, init)
  }

  /** Does what labelled-gateway.ts does, without a gateway: its links are up as soon as it serves. */
  async #run(name: Name, deps: LeaseWatchDeps & { readonly api: FileApi }, signal: AbortSignal): Promise<void> {
    const failedLane = new FailedLane(deps.clock)
    const search = new LaneSearch(deps, { node: name, numbers: this.#numbers, failedLane })
    const found = new AbortController()
    const searching = search.run(AbortSignal.any([signal, found.signal]))
    while (search.state.is !== 'found' && !signal.aborted) {
      const turn = search.whileTurn()
      await new Promise<void>((resolve) => {
        for (const end of [signal, turn.signal]) end.addEventListener('abort', () => resolve(), { once: true })
      })
      turn.close()
    }
    const chosen = search.state.is === 'found' ? search.state.watch : undefined
    found.abort()
    await searching
    if (chosen === undefined) return
    const tenure = new LaneLease(deps, { node: name, lane: chosen.lane, numbers: this.#numbers, chosen, failedLane })
    tenure.onChange(() => {
      if (tenure.state.is === 'serving') void this.#publish(deps.api, name, chosen.lane).catch(() => undefined)
    })
    await tenure.run(signal)
  }

  async #publish(api: FileApi, name: Name, lane: number): Promise<void> {
    await api.apply(endpoint('milano', name, lane, []))
    const lanes = [{ lane, device: 'sealane0', mtu: 1420, driver: 'wireguard-kernel' }]
    const connections = connectionsTo({ paris: 'up' }).map((one) => ({ ...one, lane }))
    const gateway = gatewayObject(name, { lanes, connections })
    await api.apply(gateway)
    await api.applyStatus(gateway)
  }
}

const OPEN: readonly NodeGateway[] = NAMES.map((name) => ({ node: name }))

t.test('two numbers, three nodes: the third takes the number of one that is gone for 15 s', async (t) => {
  const site = await Site.open(t, OPEN, 2)
  site.start('a', 'b', 'c')
  await site.until('two serve', () => site.held === 'a=0 b=1')
  await site.pass(20_000)
  t.equal(site.held, 'a=0 b=1', 'and they keep it')
  await site.until('its last word is on disk', () => site.viewer.cache('Gateway').get('a')?.status !== undefined)
  await site.lose('a')
  const took = await site.until('c serves', () => site.held === 'b=1 c=0')
  t.ok(took >= 12_000, `not before it has lapsed: ${took} ms after the loss, the last renewal up to 3 s before`)
  t.equal(site.viewer.cache('Lease').get('sealane-lane-0', 'sealane-system')?.spec?.leaseTransitions, 1)
  site.deadMachines.clear()
  site.start('a')
  await site.pass(10_000)
  t.equal(site.held, 'b=1 c=0', 'who comes back stands by')
})

t.test('only the process is gone: its kernel carries, so its machine is asked, and keeps the number', async (t) => {
  const site = await Site.open(t, OPEN, 1)
  site.start('a', 'b')
  await site.until('a serves', () => site.held === 'a=0')
  await site.until('its last word is on disk', () => site.viewer.cache('Gateway').get('a')?.status !== undefined)
  await site.end('a')
  await site.until('it is told', () => site.logger.lines.some(({ fields }) => fields['reason'] === 'LaneHolderSilent'))
  await site.pass(10_000)
  t.equal(site.held, 'a=0')
  site.start('a')
  await site.pass(5000)
  t.equal(site.held, 'a=0', 'and it goes on when it is back')
})

t.test('a number that the site file names is only for that node', async (t) => {
  const site = await Site.open(t, [{ node: 'a', lane: 0 }, { node: 'b' }], 1)
  site.start('b')
  await site.pass(4000)
  t.equal(site.held, '', 'it goes first')
  await site.until('nobody came', () => site.held === 'b=0')
})

t.test('a Lease that is spoilt while it is held stays with its holder', async (t) => {
  const site = await Site.open(t, OPEN, 1)
  site.start('a', 'b')
  await site.until('a serves', () => site.held === 'a=0')
  for (let i = 0; i < 5; i += 1) {
    const version = Number(site.viewer.cache('Lease').get('sealane-lane-0', 'sealane-system')?.metadata.resourceVersion)
    for (const next of [1, 2]) {
      writeFileSync(join(site.folder, 'state/leases/sealane-lane-0', `${version + next}.json`), '{"spec":{"holderIde')
    }
    await site.pass(7000)
  }
  t.equal(site.held, 'a=0')
  t.match(site.logger.messages('warn').join('\n'), /a state file is damaged and ignored: .*sealane-lane-0/)
})
