/** A member that does not run our code, with an arbitrary key and certificate. */
import type { Client } from '@grpc/grpc-js'
import type { Test } from 'tap'
import { BrokerService, type ClusterFacts, type JoinResponse, type StoredRecord } from '../../../protocol/gen/broker.ts'
import { parseJoinToken } from '../../../protocol/identity/token.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { LoopbackBroker } from '../../cli/loopback-broker.ts'
import { type RawIdentity, callMethod, openChannel } from './raw-channel.ts'
import { NO_FACTS, certificatePem, csrOf, joinWith } from './raw-join.ts'
import { RawPublish } from './raw-publish.ts'
import { recordsOf } from './raw-watch.ts'

/** The machine's time, shifted. It begins in the past, because OpenSSL checks certificates by the machine's time. */
export class ShiftedClock extends SystemClock {
  shiftMs = -3_600_000
  override now(): number {
    return Date.now() + this.shiftMs
  }
}

/** A broker on a loopback port whose time the test moves. It reports silent members to the others twice a second. */
export async function startTarget(t: Test): Promise<{ readonly broker: LoopbackBroker; readonly clock: ShiftedClock }> {
  const clock = new ShiftedClock()
  return { broker: await LoopbackBroker.start(t, { contactMs: 500 }, clock), clock }
}

export class RawMember {
  readonly identity: RawIdentity
  /** What the broker answered to its join. */
  readonly joined: JoinResponse
  readonly #t: Test
  readonly #broker: LoopbackBroker
  readonly #channel: Client

  private constructor(t: Test, broker: LoopbackBroker, identity: RawIdentity, joined: JoinResponse) {
    this.#t = t
    this.#broker = broker
    this.identity = identity
    this.joined = joined
    this.#channel = openChannel(broker, identity)
    t.teardown(() => this.#channel.close())
  }

  /** Joins with a token made for this cluster, or with the given one. Throws RawRefusal. */
  static async join(
    t: Test,
    broker: LoopbackBroker,
    cluster: string,
    { token, ...facts }: Partial<ClusterFacts> & { readonly token?: string } = {},
  ): Promise<RawMember> {
    const nowMs = broker.clock.now()
    const secret = parseJoinToken(token ?? (await broker.token()), nowMs).secret()
    const { identity, response } = await joinWith(broker, secret, cluster, { facts: { ...NO_FACTS, ...facts }, nowMs })
    return new RawMember(t, broker, identity, response)
  }

  /** An attacker who has read this member's files: it has the same key and certificate, and a connection of its own. */
  stolen(): RawMember {
    return this.with(this.identity)
  }

  /** The same identity, shown by the process with this mark, or by one that shows no mark. */
  by(process: string | undefined): RawMember {
    const { process: _before, ...identity } = this.identity
    return this.with(process === undefined ? identity : { ...identity, process })
  }

  /** Returns a member that shows the renewed certificate; this one still shows the old one. Throws RawRefusal. */
  async renew(): Promise<RawMember> {
    const csr = await csrOf(this.identity.key)
    const { certificate } = await callMethod(this.#channel, BrokerService.renew, { csr })
    return this.with({ ...this.identity, cert: certificatePem(certificate) })
  }

  /** Throws RawRefusal. */
  async leave(): Promise<void> {
    await callMethod(this.#channel, BrokerService.leave, {})
  }

  /** A publish stream that is still to be opened. */
  publish(): RawPublish {
    const stream = new RawPublish(this.#channel)
    this.#t.teardown(() => stream.call.cancel())
    return stream
  }

  /** All records that the broker hands out to this member. Throws RawRefusal. */
  records(): Promise<StoredRecord[]> {
    return recordsOf(this.#channel)
  }

  /** The names of this member's records that the broker hands out, as `Kind/namespace/name`. */
  async stored(cluster = this.identity.cluster): Promise<string[]> {
    const records = await this.records()
    return records
      .filter((one) => one.cluster === cluster)
      .map(({ body, namespace, name }) => `${body?.body?.$case ?? ''}/${namespace}/${name}`)
  }

  /** A member that shows this identity instead, on a connection of its own. */
  with(identity: RawIdentity): RawMember {
    return new RawMember(this.#t, this.#broker, identity, this.joined)
  }
}
