/** A broker started as a user starts it, in the namespace that is the router between the sites. */
import type { ChildProcess } from 'node:child_process'
import { join } from 'node:path'
import type { Test } from 'tap'
import { openBrokerStore } from '../../support/broker-store.ts'
import { DATABASE_FILE } from '../../../broker/store/state-directory.ts'
import { openSqliteLog } from '../../../broker/store/sqlite/sqlite-log.ts'
import type { Cluster } from '../../../model/objects.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { eventually } from '../../support/eventually.ts'
import type { Netns } from '../../support/netns.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

export const SEALANE = join(import.meta.dirname, '../../../bin/sealane')
/** The broker's address, behind the default route of every site. */
export const BROKER = '203.0.113.2'

export class HubBroker {
  readonly state: string
  readonly #ns: Netns
  #said = ''
  #process: ChildProcess | undefined

  constructor(t: Test, ns: Netns) {
    this.#ns = ns
    this.state = join(temporaryFolder(t), 'broker')
  }

  async start(): Promise<void> {
    await this.#ns.exec('ip', ['address', 'add', `${BROKER}/32`, 'dev', 'lo'])
    const serve = [
      'broker',
      'serve',
      '--state',
      this.state,
      '--listen',
      '0.0.0.0:7443',
      '--advertise',
      `${BROKER}:7443`,
    ]
    const child = this.#ns.spawn(SEALANE, serve)
    for (const stream of [child.stdout, child.stderr])
      stream?.on('data', (text: Buffer) => (this.#said += String(text)))
    this.#process = child
    await eventually(() => this.#said.includes('listening'), { deadlineMs: 30_000, say: 'the broker listens' })
  }

  stop(): void {
    this.#process?.kill('SIGTERM')
  }

  async store<T>(work: (store: Awaited<ReturnType<typeof openBrokerStore>>) => Promise<T>): Promise<T> {
    const store = await openBrokerStore(this.state, new SystemClock())
    try {
      return await work(store)
    } finally {
      await store.close()
    }
  }

  async token(...allowedCIDRs: string[]): Promise<string> {
    return (await this.store((store) => store.create({ allowedCIDRs }))).text
  }

  /** The ranges that a member has stated for its machines. */
  async needsOf(member: string): Promise<readonly string[]> {
    const log = openSqliteLog({ file: join(this.state, DATABASE_FILE), create: false })
    try {
      return log.get('member', member)?.facts.neededCIDRs ?? []
    } finally {
      await log.close()
    }
  }

  /** Tells all members of a cluster that has passed no admission. */
  async report(...specs: Cluster['spec'][]): Promise<void> {
    const log = openSqliteLog({ file: join(this.state, DATABASE_FILE), create: false })
    try {
      await log.transact((tx) => {
        for (const spec of specs)
          tx.put('record', `${spec.id}/Cluster//${spec.id}`, {
            createdAtMs: Date.now(),
            body: { kind: 'Cluster', spec },
          })
      })
    } finally {
      await log.close()
    }
  }
}
