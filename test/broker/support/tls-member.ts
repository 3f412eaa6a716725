/** A member of a broker in this process, over real TLS, with its publications, its replica and its certificate. */
import type { Test } from 'tap'
import { openBrokerStore } from '../../support/broker-store.ts'
import type { MemberRecord } from '../../../model/records.ts'
import { type BrokerClient, BrokerUnreachableError } from '../../../protocol/broker-client.ts'
import { memberKey, memberKeyText } from '../../../protocol/codec/content-hash.ts'
import { createKey } from '../../../protocol/identity/keys.ts'
import { parseJoinToken } from '../../../protocol/identity/token.ts'
import { createCsr } from '../../../protocol/identity/x509.ts'
import { PublishSession } from '../../../protocol/sessions/publish-session.ts'
import { HeldRecords } from '../../../protocol/sessions/held-records.ts'
import { Replica } from '../../../protocol/replica/record-replica.ts'
import { connectBroker, connectForJoin } from '../../../protocol/transport/grpc-client.ts'
import { WatchSession } from '../../../protocol/sessions/watch-session.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { facts } from './harness.ts'

const clock = new SystemClock()
const DEADLINE_MS = 20_000

export class TlsMember {
  readonly replica = new Replica()
  readonly logger = new CapturingLogger()
  #init: Omit<Parameters<typeof connectBroker>[0], 'identity'>
  readonly #key: ReturnType<typeof createKey>
  #certificate: Uint8Array
  #client: BrokerClient
  readonly #publish: PublishSession
  readonly #stop = new AbortController()
  readonly #running: Promise<unknown>

  private constructor(
    init: Omit<Parameters<typeof connectBroker>[0], 'identity'>,
    key: ReturnType<typeof createKey>,
    certificate: Uint8Array,
  ) {
    this.#init = init
    this.#key = key
    this.#certificate = certificate
    this.#client = connectBroker({ ...init, identity: { certificate, key } })
    const { logger, replica } = this
    const connect = (): BrokerClient => this.#client
    const held = new HeldRecords(clock, replica)
    this.#publish = new PublishSession({
      connect,
      clock,
      logger,
      held: (epoch, signal) => held.records(epoch, signal),
    })
    this.#publish.setDesired(new Map())
    const watch = new WatchSession({
      connect,
      replica,
      clock,
      logger,
      onChange: () => undefined,
      onState: () => held.onWatch(),
    })
    this.#running = Promise.all([this.#publish.run(this.#stop.signal), watch.run(this.#stop.signal)])
  }

  /** Joins with a token that is made for it, and ends its streams when the test ends. */
  static async join(t: Test, stateDir: string, cluster: string): Promise<TlsMember> {
    const store = await openBrokerStore(stateDir, clock)
    const { text } = await store.create({ cluster })
    await store.close()
    const signal = AbortSignal.timeout(DEADLINE_MS)
    const logger = new CapturingLogger()
    const key = createKey()
    const token = parseJoinToken(text, clock.now())
    const joining = await connectForJoin({ token, clock, logger }, signal)
    const request = { secret: token.secret(), cluster, csr: await createCsr(key), facts: facts(), nowMs: clock.now() }
    const { certificate, caBundle } = await joining.join(request, signal)
    joining.close()
    const { addresses, clusterset } = token
    const member = new TlsMember({ addresses, clusterset, ca: caBundle, clock, logger }, key, certificate)
    t.teardown(() => member.stop())
    return member
  }

  publish(...records: readonly MemberRecord[]): void {
    this.#publish.setDesired(new Map(records.map((record) => [memberKeyText(memberKey(record)), record])))
  }

  has(key: string): () => boolean {
    return () => this.replica.records.has(key)
  }

  /** Renews the certificate and the trusted authorities, as agents do each day, and connects with the new ones. */
  async renew(): Promise<void> {
    const { certificate, caBundle } = await this.#askToRenew(await createCsr(this.#key))
    this.#certificate = certificate
    this.#init = { ...this.#init, ca: caBundle }
    const before = this.#client
    this.#client = connectBroker({ ...this.#init, identity: { certificate: this.#certificate, key: this.#key } })
    before.close()
  }

  /** Repeats the request when a restarted broker has dropped the connection, as an agent does. */
  async #askToRenew(csr: Uint8Array): ReturnType<BrokerClient['renew']> {
    const signal = AbortSignal.timeout(DEADLINE_MS)
    for (;;) {
      try {
        return await this.#client.renew(csr, signal)
      } catch (error) {
        if (!(error instanceof BrokerUnreachableError) || signal.aborted) throw error
        await clock.sleep(50, signal)
      }
    }
  }

  async stop(): Promise<void> {
    if (this.#stop.signal.aborted) return
    this.#stop.abort()
    await this.#running
    this.#client.close()
  }
}
