/**
 * A member that behaves towards the broker as its agent does, over real TLS: sessions, identity on disk and renewal,
 * without Kubernetes.
 */
import { join } from 'node:path'
import type { Test } from 'tap'
import type { BrokerLink } from '../../../agent/link/broker-link.ts'
import { openBrokerLink } from '../../../agent/link/protocol-link.ts'
import { agentConfig } from '../../../agent/loop/config.ts'
import { agentMetrics } from '../../../agent/loop/metrics.ts'
import { type ClusterId, parseClusterId } from '../../../model/ids.ts'
import { type MemberRecord, recordKeyText } from '../../../model/records.ts'
import { memberKey, memberKeyText } from '../../../protocol/codec/content-hash.ts'
import { createKey } from '../../../protocol/identity/keys.ts'
import { type MemberIdentity, folderIdentity } from '../../../protocol/membership/member-files.ts'
import { fingerprint } from '../../../protocol/identity/certificates.ts'
import { parseJoinToken } from '../../../protocol/identity/token.ts'
import { askToJoin, joinedIdentity } from '../../../protocol/membership/join.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../../runtime/metrics/prometheus-metrics.ts'
import { eventually } from '../../support/eventually.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { facts } from './harness.ts'

const clock = new SystemClock()
const DEADLINE_MS = 30_000

export class LinkedMember {
  readonly id: ClusterId
  readonly logger = new CapturingLogger()
  /** The reasons for which the broker refused this member, latest last. */
  readonly refusals: string[] = []
  readonly #directory: string
  #link: BrokerLink | undefined
  #stop = new AbortController()
  #running: Promise<unknown> = Promise.resolve()

  private constructor(id: string, directory: string) {
    this.id = parseClusterId(id)
    this.#directory = directory
  }

  /** Joins with the token, and runs until the test ends. */
  static async join(t: Test, text: string, id: string): Promise<LinkedMember> {
    const member = new LinkedMember(id, join(temporaryFolder(t), id))
    const token = parseJoinToken(text, clock.now())
    const ask = { token, cluster: member.id, key: createKey(), facts: facts() }
    const answer = await askToJoin(ask, { clock, logger: member.logger }, AbortSignal.timeout(DEADLINE_MS))
    await folderIdentity(join(member.#directory, 'identity')).write(joinedIdentity(ask, answer))
    t.teardown(() => member.stop())
    await member.start()
    return member
  }

  async start(): Promise<void> {
    await this.begin()
    await this.connected()
  }

  /** Starts a member that the broker may refuse, so unlike start() it does not wait for the connection. */
  async begin(): Promise<void> {
    const metrics = createMetrics('agent')
    const onRefused = (why: string | undefined, reason?: string): void => {
      if (why !== undefined) this.refusals.push(`${String(reason)}: ${why}`)
    }
    const deps = { clock, logger: this.logger, metrics, agentMetrics: agentMetrics(metrics), onRefused }
    const link = await openBrokerLink(deps, agentConfig(this.#directory))
    this.#link = link
    this.#stop = new AbortController()
    link.publisher.setDesired(new Map())
    this.#running = Promise.all([link.run(this.#stop.signal), link.keepIdentity(this.#stop.signal)])
  }

  /** Stops every part of the member, as when its cluster is switched off. */
  async stop(): Promise<void> {
    this.#stop.abort()
    await this.#running
    this.#link = undefined
  }

  async connected(): Promise<void> {
    await eventually(() => this.link.problem() === undefined, {
      say: `${this.id} is connected`,
      deadlineMs: DEADLINE_MS,
    }).catch((error: unknown) => {
      throw new Error(`${String(error)}: ${this.link.problem() ?? ''}\n${this.logger.messages().join('\n')}`)
    })
  }

  get link(): BrokerLink {
    if (this.#link === undefined) throw new Error(`${this.id} does not run`)
    return this.#link
  }

  publish(...records: readonly MemberRecord[]): void {
    this.link.publisher.setDesired(new Map(records.map((record) => [memberKeyText(memberKey(record)), record])))
  }

  /** Returns the record in the member's replica as JSON; undefined when the replica does not have it. */
  knows(key: string): string | undefined {
    for (const record of this.link.replica.records())
      if (recordKeyText(record.key) === key) return JSON.stringify(record.body)
    return undefined
  }

  async identity(): Promise<MemberIdentity> {
    const identity = await folderIdentity(join(this.#directory, 'identity')).read()
    if (identity === undefined) throw new Error(`${this.id} has no identity`)
    return identity
  }

  /** Returns the fingerprints of the authorities that the member trusts. */
  async bundle(): Promise<string[]> {
    return (await this.identity()).caBundle.map((der) => fingerprint(der))
  }
}
