/** Attacks by strangers and holders of tokens on the list of joins that wait for approval. */
import { MAX_WAITING_OF_TOKEN } from '../../broker/members/waiting-joins.ts'
import { openBrokerStore } from '../support/broker-store.ts'
import { BrokerService, JoinResponse } from '../../protocol/gen/broker.ts'
import { parseJoinToken } from '../../protocol/identity/token.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { attack } from './support/attack.ts'
import { type BrokerHere, brokerHere } from './support/broker-here.ts'
import { RawRefusal, callUnary, openChannel, outcomeOf, textOf } from './support/raw-channel.ts'
import { NO_FACTS, certificatePem, csrOf, joinWith, newKey, tokenSecret } from './support/raw-join.ts'
import { RawPublish } from './support/raw-publish.ts'
import { endpointRecord } from './support/raw-records.ts'

async function store<T>(broker: BrokerHere, work: (of: Awaited<ReturnType<typeof openBrokerStore>>) => Promise<T>) {
  const opened = await openBrokerStore(broker.state, new SystemClock())
  try {
    return await work(opened)
  } finally {
    await opened.close()
  }
}

/** The broker's answer to a request to join by a client that can wait. */
async function ask(
  broker: BrokerHere,
  secret: string,
  cluster: string,
  change: { readonly key?: string; readonly facts?: typeof NO_FACTS; readonly withdraw?: boolean } = {},
): Promise<string> {
  const { key = newKey(), facts = NO_FACTS, withdraw = false } = change
  const csr = await csrOf(key)
  const own = withdraw ? { csr: Buffer.alloc(0), withdrawCsr: csr } : { csr }
  const fields = { secret, cluster, facts, nowMs: Date.now(), waits: true, ...own }
  const channel = openChannel(broker)
  try {
    const answer = await callUnary(channel, BrokerService.join.path, BrokerService.join.requestSerialize(fields))
    return Buffer.isBuffer(answer) ? 'ok' : textOf(answer)
  } finally {
    channel.close()
  }
}

const waiting = (broker: BrokerHere) => store(broker, (of) => of.waiting())

await attack('waiting-unknown-tokens', async (t) => {
  const broker = await brokerHere(t, { approve: true })
  const honest = await tokenSecret(broker.state)
  for (let n = 0; n < 25; n += 1) {
    const said = await ask(broker, Buffer.alloc(32, n).toString('base64url'), `c${n}`)
    t.match(said, /^(UNAUTHENTICATED token: not known|RESOURCE_EXHAUSTED token: not known)/)
  }
  t.same(await waiting(broker), [])
  t.match(await ask(broker, honest, 'paris'), /^FAILED_PRECONDITION approval: cluster "paris" waits/)
})

await attack('waiting-flood-of-a-token', async (t) => {
  const broker = await brokerHere(t, { approve: true })
  const { text } = await store(broker, (of) => of.create({ uses: 1000 }))
  const secret = parseJoinToken(text, Date.now()).secret()
  const honest = await tokenSecret(broker.state)
  const said = new Map<string, number>()
  for (let n = 0; n < MAX_WAITING_OF_TOKEN + 30; n += 1) {
    const word = (await ask(broker, secret, `c${n}`)).replace(/"c\d+"/, 'ID').slice(0, 40)
    said.set(word, (said.get(word) ?? 0) + 1)
  }
  const held = (await waiting(broker)).length
  t.ok(held <= MAX_WAITING_OF_TOKEN, `${held} wait; ${JSON.stringify([...said])}`)
  t.match(
    await ask(broker, honest, 'paris'),
    /^FAILED_PRECONDITION approval: cluster "paris" waits/,
    'others find room',
  )
  t.match(await broker.metrics.text(), new RegExp(`^sealane_broker_waiting_joins\\S* ${held + 1}$`, 'm'))
})

await attack('waiting-stolen-token', async (t) => {
  const broker = await brokerHere(t, { approve: true })
  const [secret, key] = [await tokenSecret(broker.state), newKey()]
  t.match(await ask(broker, secret, 'paris', { key }), /waits for approval by an operator/)
  const thief = newKey()
  t.match(
    await ask(broker, secret, 'paris', { key: thief }),
    /^UNAUTHENTICATED token: .* is in use by a request with another key/,
  )
  t.match(
    await ask(broker, secret, 'paris', { key: thief, withdraw: true }),
    /^FAILED_PRECONDITION withdraw: no request with this token and this key waits/,
  )
  await store(broker, (of) => of.accept({ cluster: 'paris' }))
  t.match(
    await ask(broker, secret, 'paris', { key: thief }),
    /is in use by a request with another key/,
    'a yes is for the key that was shown',
  )
  t.equal(await ask(broker, secret, 'paris', { key }), 'ok')
  t.match(await ask(broker, secret, 'paris', { key: thief }), /^UNAUTHENTICATED token: .* was already used/)
})

await attack('waiting-forged', async (t) => {
  const broker = await brokerHere(t, { approve: true })
  const secret = await tokenSecret(broker.state)
  const labels = Array.from({ length: 65 }, (_, n) => ({ key: `label-${n}`, value: 'x'.repeat(63) }))
  t.match(await ask(broker, secret, 'paris', { facts: { ...NO_FACTS, labels } }), /^INVALID_ARGUMENT /)
  const endless = { ...NO_FACTS, version: 'x'.repeat(80_000) }
  t.match(await ask(broker, secret, 'paris', { facts: endless }), /^(INVALID_ARGUMENT|RESOURCE_EXHAUSTED) /)
  const escape = { ...NO_FACTS, version: '\u001b[2Jaccepted' }
  t.match(await ask(broker, secret, 'paris', { facts: escape }), /^INVALID_ARGUMENT .*expected no control characters/)
  for (const name of ['paris\u001b[1A', '../../etc', 'Paris', 'kube-system', 'x'.repeat(64), '']) {
    t.match(await ask(broker, secret, name), /^INVALID_ARGUMENT cluster/, JSON.stringify(name))
  }
  t.same(await waiting(broker), [], 'nothing of that is shown to an operator')
  t.match(await ask(broker, secret, 'paris'), /waits for approval by an operator/, 'and the token is still good')
})

await attack('waiting-acts-as-member', async (t) => {
  const broker = await brokerHere(t, { approve: true })
  const secret = await tokenSecret(broker.state)
  const key = newKey()
  await ask(broker, secret, 'paris', { key })
  const channel = openChannel(broker)
  t.teardown(() => channel.close())
  const call = (path: string): Promise<string> => outcomeOf(callUnary(channel, path, Buffer.alloc(0)).then(thrown))
  for (const method of [BrokerService.renew, BrokerService.leave, BrokerService.watch])
    t.match(await call(method.path), /^UNAUTHENTICATED /, method.path)
  const old = await outcomeOf(joinWith(broker, secret, 'paris'))
  t.match(
    old,
    /^FAILED_PRECONDITION approval: .* this release of Sealane does not support|is in use by a request with another key/,
  )
  t.equal((await store(broker, (of) => of.members())).length, 0)
})

await attack('waiting-ranges-after-the-join', async (t) => {
  const broker = await brokerHere(t, { approve: true })
  const secret = await tokenSecret(broker.state)
  const enter = async (cluster: string, podCidr: string, own: string) => {
    const [key, facts] = [newKey(), { ...NO_FACTS, podCidrs: [podCidr] }]
    t.match(await ask(broker, own, cluster, { key, facts }), /waits for approval by an operator/)
    await store(broker, (of) => of.accept({ cluster }))
    return joinOf(broker, own, cluster, { key, facts })
  }
  await enter('victim', '10.20.0.0/16', await tokenSecret(broker.state))
  const { identity, key } = await enter('mallory', '10.99.0.0/24', secret)
  const channel = openChannel(broker, identity)
  t.teardown(() => channel.close())
  const stream = await new RawPublish(channel).open()
  t.teardown(() => stream.call.cancel())
  const own = { ...NO_FACTS, podCidrs: ['10.99.0.0/24'] }
  const tries = [
    { ...own, podCidrs: ['10.99.0.0/24', '10.20.0.0/16'] },
    { ...own, serviceCidrs: ['10.20.0.0/16'] },
    { ...own, neededCidrs: ['10.20.0.0/16'] },
  ]
  for (const facts of tries) t.match(await stream.facts(facts), /wait for approval by an operator/)
  const candidates = [{ kind: 'private', address: '10.20.0.7', port: 4500 }]
  const gateway = endpointRecord('mallory', 'gw', Buffer.alloc(32, 'mallory').toString('base64'), candidates)
  t.match(await stream.put(gateway), /10\.20\.0\.7\/32 is a pod address of cluster "victim"/)
  const again = await joinOf(broker, secret, 'mallory', { key, facts: { ...own, podCidrs: ['10.20.0.0/16'] } })
  t.same(again.podCidrs, ['10.99.0.0/24'])
  const members = await store(broker, (of) => of.members())
  t.same(
    members.map(({ id, podCIDRs, globalCIDRs }) => [id, podCIDRs, globalCIDRs]),
    [
      ['mallory', ['10.99.0.0/24'], []],
      ['victim', ['10.20.0.0/16'], []],
    ],
  )
  t.match(await waiting(broker), [{ id: 'mallory', what: 'ranges', renumbers: ['victim'] }])
})

/** Joins with a key that an operator has accepted. */
async function joinOf(
  broker: BrokerHere,
  secret: string,
  cluster: string,
  { key, facts }: { readonly key: string; readonly facts: typeof NO_FACTS },
) {
  const channel = openChannel(broker)
  const fields = { secret, cluster, facts, csr: await csrOf(key), nowMs: Date.now(), waits: true }
  const answer = await callUnary(channel, BrokerService.join.path, BrokerService.join.requestSerialize(fields))
  channel.close()
  if (!Buffer.isBuffer(answer)) throw new RawRefusal(answer)
  const { certificate, caBundle, podCidrs } = JoinResponse.decode(answer)
  const [cert, ca] = [certificate, caBundle[0]].map((der) => certificatePem(der))
  return { identity: { cluster, key, cert: cert ?? '', ca: ca ?? '' }, key, podCidrs }
}

function thrown(answer: Buffer | { readonly code: number; readonly details: string }): void {
  if (!Buffer.isBuffer(answer)) throw new RawRefusal(answer)
}
