/**
 * A cluster of two or three agents, whose leadership moves twenty times while other clusters export and withdraw. The
 * broker is up, away or restored meanwhile. Each agent has the records that it saved in its last leadership. No live
 * import is removed, and no withdrawn import comes back.
 */
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { restoreState } from '../../compose/broker/backup.ts'
import { backupOf } from '../support/broker-store.ts'
import { MemoryApi } from '../../kubeapi/memory/memory-api.ts'
import type { KubeObject } from '../../model/objects.ts'
import { eventually } from '../support/eventually.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { Member, NEVER, clock, startBroker } from '../agent/real-members.ts'
import { service, serviceExport, slice } from '../agent/site.ts'

const LEADERSHIPS = 20
const LATER = { deadlineMs: 60_000 }

/** The state of the broker in each leadership, in turn. */
const BROKER = ['restored', 'up', 'up', 'away', 'still away', 'up'] as const

/** An API that answers late, and that completes a request even after the caller has stopped waiting. */
class SlowApi extends MemoryApi {
  readonly #lateMs: number

  constructor(lateMs: number) {
    super()
    this.#lateMs = lateMs
  }

  override async apply(object: KubeObject, signal?: AbortSignal): Promise<void> {
    const done = this.#late().then(() => super.apply(object))
    await (signal === undefined ? done : Promise.race([done, aborted(signal)]))
  }

  override async remove(kind: KubeObject['kind'], name: string, namespace?: string): Promise<void> {
    await this.#late()
    await super.remove(kind, name, namespace)
  }

  #late(): Promise<void> {
    return this.#lateMs === 0 ? Promise.resolve() : clock.sleep(this.#lateMs, NEVER)
  }
}

async function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_resolve, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true })
  })
}

/** Two exporters, and a cluster in which one of several agents acts. */
class Clusterset {
  readonly #directory: string
  readonly #exporters: readonly Member[]
  readonly #acting: Member
  readonly #agents: number
  #broker: Awaited<ReturnType<typeof startBroker>> | undefined
  #port = 0
  readonly #exported = new Set<string>()
  readonly #present = new Set<string>()
  readonly flaps: string[] = []

  constructor(t: Test, { agents, lateMs }: { readonly agents: number; readonly lateMs: number }) {
    this.#directory = temporaryFolder(t)
    this.#agents = agents
    this.#exporters = ['milano', 'paris'].map((id) => new Member(id, this.#directory))
    this.#acting = new Member('tokyo', this.#directory, new SlowApi(lateMs))
    t.teardown(async () => {
      await Promise.all([...this.#exporters, this.#acting].map((member) => member.stop()))
      await this.#broker?.stop()
    })
  }

  get #state(): string {
    return join(this.#directory, 'broker')
  }

  async run(): Promise<void> {
    await this.#brokerUp()
    for (const member of [...this.#exporters, this.#acting]) await member.join(this.#state, this.#port)
    for (const exporter of this.#exporters) exporter.start()
    this.#watch()
    for (const name of ['kept', 'also-kept']) this.#offer(name)
    this.#act(0)
    await this.#agreed('at first')
    for (let i = 1; i <= LEADERSHIPS; i += 1) await this.#leadership(i)
  }

  async #leadership(i: number): Promise<void> {
    const does = BROKER[i % BROKER.length]
    if (does === 'away') await this.#brokerAway()
    else if (does !== 'still away') await this.#churn(i)
    await this.#acting.stop()
    this.#act(i)
    if (does === 'away' || does === 'still away') await this.#looksAtOwn(i)
    if (does === 'away') return
    if (this.#broker === undefined) await this.#brokerUp()
    if (does === 'restored') await this.#brokerRestored(i)
    await this.#agreed(`after leadership ${i}`)
  }

  /** Exports and withdraws services. The standby agents do not learn of these changes. */
  async #churn(i: number): Promise<void> {
    this.#offer(`n${i}`)
    if (i > 3) this.#withdraw(`n${i - 3}`)
    // In the other rounds, the acting agent stops in the middle of these changes.
    if (i % 2 === 0) await this.#agreed(`in leadership ${i}`)
  }

  #act(i: number): void {
    this.#acting.start({ replicaDirectory: join(this.#directory, `replica-${i % this.#agents}`) })
  }

  /** Checks that the acting agent evaluates the exports of its own cluster, whatever it had saved. */
  async #looksAtOwn(i: number): Promise<void> {
    const { api } = this.#acting
    api.put(service('shop', `ours${i}`))
    api.put(serviceExport('shop', `ours${i}`))
    const conditions = (): unknown => api.get('ServiceExport', `ours${i}`, 'shop')?.status?.conditions
    await eventually(() => conditions() !== undefined, { ...LATER, say: 'it looks at its own exports' })
    api.drop('ServiceExport', `ours${i}`, 'shop')
  }

  async #brokerUp(): Promise<void> {
    this.#broker = await startBroker(this.#state, this.#port)
    this.#port = this.#broker.port
  }

  async #brokerAway(): Promise<void> {
    await this.#broker?.stop()
    this.#broker = undefined
  }

  /** Restores the broker from a backup that lacks the latest writes. */
  async #brokerRestored(i: number): Promise<void> {
    const backup = join(this.#directory, `backup-${i}`)
    const warn = (): void => undefined
    await backupOf(this.#state, backup)
    this.#offer(`later${i}`)
    await this.#agreed('what comes after the backup')
    await this.#brokerAway()
    await restoreState(this.#state, backup, { force: true, warn })
    await this.#brokerUp()
    this.#withdraw(`later${i}`)
  }

  #offer(name: string): void {
    this.#exported.add(name)
    for (const { api, id } of this.#exporters) {
      api.put(service('shop', name))
      api.put(slice('shop', name, id === 'milano' ? '10.42.0.5' : '10.42.0.6'))
      api.put(serviceExport('shop', name))
    }
  }

  #withdraw(name: string): void {
    this.#exported.delete(name)
    for (const { api } of this.#exporters) api.drop('ServiceExport', name, 'shop')
  }

  #watch(): void {
    const { api } = this.#acting
    api.cache('ServiceImport').onChange((change) => {
      if (change === undefined) return
      const { name } = change.object.metadata
      const before = this.#present.has(name)
      if (change.type === 'removed') this.#present.delete(name)
      else this.#present.add(name)
      const is = this.#present.has(name)
      if (is !== before && is !== this.#exported.has(name)) this.flaps.push(`ServiceImport ${name} ${change.type}`)
    })
    api.cache('EndpointSlice').onChange((change) => {
      const name = change?.object.metadata.labels?.['multicluster.kubernetes.io/service-name']
      if (change?.type !== 'removed' || name === undefined || !this.#exported.has(name)) return
      this.flaps.push(`${change.object.metadata.name} of ${name} removed`)
    })
  }

  /** Waits until the imports equal the exports. */
  async #agreed(say: string): Promise<void> {
    const imported = (): string[] => [...this.#present].sort()
    await eventually(() => imported().join() === [...this.#exported].sort().join(), { ...LATER, say })
  }
}

const SETS = [
  { agents: 2, lateMs: 0 },
  { agents: 3, lateMs: 100 },
]

t.test('leadership moves twenty times, and no import flaps', { timeout: 180_000 }, async (t) => {
  const sets = SETS.map((init) => ({ init, set: new Clusterset(t, init) }))
  await Promise.all(sets.map(({ set }) => set.run()))
  for (const { init, set } of sets) t.same(set.flaps, [], JSON.stringify(init))
})
