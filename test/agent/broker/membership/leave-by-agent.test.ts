/** Leaving: the agent removes nothing before the broker knows, and a withdrawn request has no effect. */
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { type Socket, createServer } from 'node:net'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { reportLeaving } from '../../../../agent/membership/lifecycle.ts'
import { MembershipChanges } from '../../../../kubeapi/membership.ts'
import { MemoryApi } from '../../../../kubeapi/memory/memory-api.ts'
import { parseClusterId } from '../../../../model/ids.ts'
import { LEAVE_REQUESTED_ANNOTATION, LEAVE_UNREPORTED_ANNOTATION } from '../../../../model/membership.ts'
import { MEMBERSHIP_NAME, type Membership } from '../../../../model/objects.ts'
import { createKey } from '../../../../protocol/identity/keys.ts'
import { certificatesFromPem } from '../../../../protocol/identity/certificates.ts'
import { joinedIdentity } from '../../../../protocol/membership/join.ts'
import { joinProblem, secretIdentity } from '../../../../protocol/membership/secret-identity.ts'
import { parseJoinToken } from '../../../../protocol/identity/token.ts'
import { createCsr } from '../../../../protocol/identity/x509.ts'
import { connectBroker } from '../../../../protocol/transport/grpc-client.ts'
import { SystemClock, type Clock } from '../../../../reconcile/clock.ts'
import { CapturingLogger } from '../../../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../../../runtime/metrics/prometheus-metrics.ts'
import { StatusBoard } from '../../../../runtime/component.ts'
import { openBrokerStore } from '../../../support/broker-store.ts'
import { eventually } from '../../../support/eventually.ts'
import { MemorySecret } from '../../../support/memory-secret.ts'
import { membershipObject } from '../../../support/objects/cluster-objects.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { NEVER, clock, startBroker } from '../../real-members.ts'

const CLUSTER = parseClusterId('milano')

class Cluster {
  readonly api = new MemoryApi()
  readonly secret = new MemorySecret({})
  readonly identity = secretIdentity(this.secret)
  readonly logger = new CapturingLogger()
  readonly #t: Test
  readonly #state: string
  #broker: Awaited<ReturnType<typeof startBroker>> | undefined
  #port = 0

  private constructor(t: Test) {
    this.#t = t
    this.#state = join(temporaryFolder(t), 'broker')
    t.teardown(() => this.brokerAway())
  }

  static async member(t: Test): Promise<Cluster> {
    const cluster = new Cluster(t)
    await cluster.brokerUp()
    await cluster.#join()
    return cluster
  }

  async brokerUp(): Promise<void> {
    this.#broker = await startBroker(this.#state, this.#port)
    this.#port = this.#broker.port
  }

  async brokerAway(): Promise<void> {
    await this.#broker?.stop()
    this.#broker = undefined
  }

  async #join(): Promise<void> {
    const store = await openBrokerStore(this.#state, clock)
    const token = parseJoinToken((await store.create({})).text, clock.now())
    await store.close()
    const ca = certificatesFromPem(await readFile(join(this.#state, 'ca.crt'), 'utf8'))
    const addresses = [`127.0.0.1:${this.#port}`]
    const client = connectBroker({ addresses, clusterset: 'default', ca, clock, logger: this.logger })
    const facts = { podCIDRs: ['10.42.0.0/16'], serviceCIDRs: [], labels: {}, version: '0' }
    const key = createKey()
    const request = { secret: token.secret(), cluster: CLUSTER, csr: await createCsr(key), facts, nowMs: clock.now() }
    const answer = await client.join(request, NEVER)
    client.close()
    const identity = joinedIdentity({ token, cluster: CLUSTER, key, facts }, answer)
    await this.identity.write({ ...identity, brokerAddresses: addresses })
    await this.api.apply(membershipObject({ clusterId: CLUSTER, phase: 'joined' }))
  }

  agent(own: Clock = clock): { readonly ended: Promise<void>; readonly stop: () => Promise<void> } {
    const stop = new AbortController()
    const changes = new MembershipChanges(this.api)
    const deps = { api: this.api, changes, clock: own, logger: this.logger, metrics: createMetrics('agent') }
    const ended = reportLeaving({ ...deps, status: new StatusBoard() }, this.identity, stop.signal)
    const end = async (): Promise<void> => {
      stop.abort()
      await ended
    }
    this.#t.teardown(end)
    return { ended, stop: end }
  }

  /** Writes the Membership as an administrator does. */
  async says(
    annotations: Readonly<Record<string, string>>,
    phase: Membership['spec']['phase'] = 'joined',
  ): Promise<void> {
    const membership = membershipObject({ clusterId: CLUSTER, phase })
    await this.api.apply({ ...membership, metadata: { ...membership.metadata, annotations } })
  }

  get port(): number {
    return this.#port
  }

  get phase(): string | undefined {
    return this.api.get('Membership', MEMBERSHIP_NAME)?.spec.phase
  }

  async isKnownHere(): Promise<boolean> {
    return (await this.identity.read()) !== undefined
  }

  failures(): number {
    return this.logger.messages('warn').filter((text) => text.startsWith('cannot tell the broker')).length
  }

  async isMemberThere(): Promise<boolean> {
    const store = await openBrokerStore(this.#state, clock)
    const members = await store.members()
    await store.close()
    return members.some(({ id, state }) => id === CLUSTER && state !== 'left')
  }
}

/** A clock that counts the sleeping callers. */
class CountingClock extends SystemClock {
  sleeping = 0

  override async sleep(ms: number, signal: AbortSignal): Promise<void> {
    this.sleeping += 1
    try {
      await super.sleep(ms, signal)
    } finally {
      this.sleeping -= 1
    }
  }
}

const ASKED = { [LEAVE_REQUESTED_ANNOTATION]: 'true' }

t.test('the broker is told first; only then the parts hear of it, and the identity goes', async (t) => {
  const cluster = await Cluster.member(t)
  const phases = new Set<string>()
  cluster.api.cache('Membership').onChange((change) => {
    if (change?.type !== 'set') return
    const isKnown = Object.keys(cluster.secret.content?.data ?? {}).length > 0
    phases.add(`${change.object.spec.phase}, ${isKnown ? 'with' : 'without'} identity`)
  })
  const { ended } = cluster.agent()
  t.ok(await cluster.isMemberThere())
  await cluster.says(ASKED)
  await ended
  t.notOk(await cluster.isMemberThere(), 'the broker knows')
  t.equal(cluster.phase, 'leaving')
  t.notOk(await cluster.isKnownHere())
  t.same([...phases], ['joined, with identity', 'leaving, with identity'], 'the identity goes last')
})

t.test('what another part wrote of the Membership before the cache shows it stays', async (t) => {
  const cluster = await Cluster.member(t)
  const { api } = cluster
  const read = api.read.bind(api) as (...args: unknown[]) => Promise<Membership | undefined>
  // The server has a change that the watch has not brought yet.
  api.read = (async (...args: unknown[]) => {
    const found = await read(...args)
    return args[0] !== 'Membership' || found === undefined
      ? found
      : { ...found, spec: { ...found.spec, exposure: 'pods' } }
  }) as typeof api.read
  const { ended } = cluster.agent()
  await cluster.says({ ...ASKED, other: 'stays' })
  await ended
  const { spec, metadata } = api.get('Membership', MEMBERSHIP_NAME) ?? {}
  t.match(spec, { phase: 'leaving', exposure: 'pods' })
  t.same(metadata?.annotations, { other: 'stays' }, 'the request is fulfilled')
})

t.test('while the broker is away nothing is taken away, and the request can be taken back', async (t) => {
  const cluster = await Cluster.member(t)
  await cluster.brokerAway()
  const own = new CountingClock()
  const { stop } = cluster.agent(own)
  await cluster.says(ASKED)
  await eventually(() => cluster.failures() === 2 && own.sleeping > 0, { deadlineMs: 60_000, say: 'it tries twice' })
  t.equal(cluster.phase, 'joined', 'no part hears of it')
  t.ok(await cluster.isKnownHere())
  await cluster.says({})
  await cluster.brokerUp()
  t.match(joinProblem(cluster.secret.content, ''), { text: /no connection|refused/ }, 'it is noted while it lasts')
  await eventually(() => joinProblem(cluster.secret.content, '') === undefined, { deadlineMs: 60_000, say: 'no more' })
  t.equal(own.sleeping, 0, 'nothing is to be tried again')
  await stop()
  t.equal(cluster.failures(), 2, 'and does not')
  t.equal(cluster.phase, 'joined')
  t.ok(await cluster.isMemberThere(), 'a member as before')
})

t.test('taken back while a call waits for the broker: it does not get through later', async (t) => {
  const cluster = await Cluster.member(t)
  await cluster.brokerAway()
  // This server accepts the connection and never answers.
  const silent = createServer().listen(cluster.port, '127.0.0.1')
  t.teardown(() => void silent.close())
  await once(silent, 'listening')
  const { stop } = cluster.agent()
  const called = once(silent, 'connection')
  await cluster.says(ASKED)
  const [socket] = (await called) as [Socket]
  const ended = once(socket.resume(), 'close')
  await cluster.says({})
  await ended
  await stop()
  t.equal(cluster.failures(), 0, 'what is taken back is no failure')
  t.equal(cluster.phase, 'joined')
})

t.test('asked for again when the broker is back', async (t) => {
  const cluster = await Cluster.member(t)
  await cluster.brokerAway()
  const { ended } = cluster.agent()
  await cluster.says(ASKED)
  await eventually(() => cluster.failures() > 0, { deadlineMs: 60_000 })
  await cluster.brokerUp()
  await ended
  t.equal(cluster.phase, 'leaving')
  t.notOk(await cluster.isMemberThere())
})

t.test('by force it leaves without a word', async (t) => {
  const cluster = await Cluster.member(t)
  await cluster.brokerAway()
  const { ended } = cluster.agent()
  await cluster.says({ [LEAVE_UNREPORTED_ANNOTATION]: 'true' }, 'leaving')
  await ended
  t.notOk(await cluster.isKnownHere())
})

t.test('taken back after the parts have begun: it ends, to begin again as a member', async (t) => {
  const cluster = await Cluster.member(t)
  await cluster.brokerAway()
  const { ended } = cluster.agent()
  await cluster.says({}, 'leaving')
  await eventually(() => cluster.failures() > 0, { deadlineMs: 60_000 })
  await cluster.says({})
  await ended
  t.ok(await cluster.isKnownHere())
  t.equal(joinProblem(cluster.secret.content, ''), undefined)

  const again = cluster.agent()
  await cluster.says(ASKED)
  await eventually(() => cluster.failures() > 1, { deadlineMs: 60_000 })
  // The Membership changes twice while the agent waits for the next attempt.
  await cluster.says({}, 'leaving')
  await cluster.says({})
  await again.ended
  t.ok(await cluster.isKnownHere(), 'also where that was over before it looked again')
})

t.test('without an identity nobody can tell: all stays', async (t) => {
  const cluster = await Cluster.member(t)
  await cluster.identity.dropIdentity()
  const { stop } = cluster.agent()
  await cluster.says(ASKED)
  await eventually(() => cluster.failures() > 0, { deadlineMs: 60_000 })
  t.equal(cluster.phase, 'joined')
  t.match(cluster.logger.lines.at(-1)?.fields, {
    why: 'there is no identity in Secret sealane-system/sealane-identity',
  })
  await stop()
})
