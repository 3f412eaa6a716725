/** A join that gives other members global addresses, and a token that is used to find out which members those are. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Client, credentials } from '@grpc/grpc-js'
import t, { type Test } from 'tap'
import type { JoinResponse, MemberStatus } from '../../protocol/gen/broker.ts'
import { BrokerService, type JoinRequest } from '../../protocol/gen/broker.ts'
import { createKey } from '../../protocol/identity/keys.ts'
import { parseJoinToken } from '../../protocol/identity/token.ts'
import { createCsr } from '../../protocol/identity/x509.ts'
import { LoopbackBroker } from '../cli/loopback-broker.ts'
import { eventually } from '../support/eventually.ts'
import { attack } from './support/attack.ts'
import { RawMember, startTarget } from './support/raw-member.ts'

t.setTimeout(120_000)

const NAME = 'broker.sealane.internal'
const OPTIONS = { 'grpc.ssl_target_name_override': NAME, 'grpc.default_authority': NAME }

interface Ask {
  readonly cluster: string
  readonly pods: string
  readonly look?: true
}

await attack('renumbering-named', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const milano = [{ cluster: 'milano', globalCidrs: ['244.0.0.0/16'] }]
  await ask(t, broker, await broker.token(), { cluster: 'milano', pods: '10.42.0.0/16' })
  const token = await broker.token()
  const paris: Ask = { cluster: 'paris', pods: '10.42.0.0/16' }
  t.match(await ask(t, broker, token, { ...paris, look: true }), { renumbered: milano, certificate: Buffer.alloc(0) })
  t.strictSame(await states(broker), ['milano silent -'], 'and nothing has changed')
  t.match(
    await ask(t, broker, token, paris),
    { globalCidrs: ['244.1.0.0/16'], renumbered: milano },
    'the join says so too',
  )
  t.strictSame(await states(broker), ['milano silent 244.0.0.0/16', 'paris silent 244.1.0.0/16'])
})

await attack('open-connections-absurd', async (t) => {
  const { broker } = await startTarget(t)
  const token = (): Promise<string> => broker.token()
  const mallory = await RawMember.join(t, broker, 'mallory', { podCidrs: ['10.42.0.0/16'] })
  const milano = await RawMember.join(t, broker, 'milano', { podCidrs: ['10.50.0.0/16'] })
  const [liar, honest] = [await mallory.publish().open(), await milano.publish().open()]
  const status = (count: number): MemberStatus => {
    return { notImported: [], leftOut: 0, openConnections: { count, atLeast: false }, report: undefined }
  }
  t.equal(await honest.report(status(12)), 'ok')
  t.equal(await liar.report(status(3)), 'ok')
  for (const count of [2 ** 31, 2 ** 32 - 1]) {
    t.match(await liar.report(status(count)), /^status\.openConnections: /, `${count}`)
  }
  const reported = async (): Promise<unknown> => {
    const paris: Ask = { cluster: 'paris', pods: '10.42.0.0/16', look: true }
    const [one, other] = [
      await ask(t, broker, await token(), paris),
      await ask(t, broker, await token(), { ...paris, pods: '10.50.0.0/16' }),
    ]
    return [one, other].map((said) =>
      typeof said === 'string' ? said : said.renumbered.map((of) => of.openConnections),
    )
  }
  t.strictSame(await reported(), [[{ count: 3, atLeast: false }], [{ count: 12, atLeast: false }]])
  const most = 2 ** 31 - 1
  t.equal(await liar.report(status(most)), 'ok')
  await eventually(async () => JSON.stringify(await reported()).includes(String(most)), {
    deadlineMs: 20_000,
    intervalMs: 500,
  })
  t.strictSame(await reported(), [[{ count: most, atLeast: false }], [{ count: 12, atLeast: false }]])
  const joined = await ask(t, broker, await token(), { cluster: 'paris', pods: '10.42.0.0/16' })
  t.match(joined, { renumbered: [{ cluster: 'mallory', openConnections: { count: most } }] })
})

await attack('look-with-a-spent-token', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const token = await broker.token()
  await ask(t, broker, token, { cluster: 'milano', pods: '10.42.0.0/16' })
  const look: Ask = { cluster: 'paris', pods: '10.0.0.0/9', look: true }
  t.match(await ask(t, broker, token, look), /was already used/)
  t.match(await ask(t, broker, await revoked(broker), look), /was revoked/)
  t.strictSame(await states(broker), ['milano silent -'])
})

await attack('range-exhausted', async (t) => {
  const broker = await LoopbackBroker.start(t, { globalRange: '244.0.0.0/16' })
  await ask(t, broker, await broker.token(), { cluster: 'milano', pods: '10.42.0.0/17' })
  await ask(t, broker, await broker.token(), { cluster: 'paris', pods: '10.42.0.0/18' })
  const refused =
    'podCIDRs: the global range 244.0.0.0/16 is exhausted: pod CIDR 10.42.0.0/16 of cluster "tokyo" overlaps another ' +
    "cluster's and needs a /16 block, and the largest free block is a /18 (16384 of 65536 addresses are free, 2 blocks are given): "
  for (const look of [{ look: true }, {}] as const) {
    const said = await ask(t, broker, await broker.token(), { cluster: 'tokyo', pods: '10.42.0.0/16', ...look })
    t.ok(typeof said === 'string' && said.includes(refused), JSON.stringify(said))
    t.match(said, /sealane cluster evict/, 'and what can be done')
  }
  t.strictSame(await states(broker), ['milano silent 244.0.0.0/17', 'paris silent 244.0.128.0/18'])
})

await attack('join-refused-after-signing', async (t) => {
  const broker = await LoopbackBroker.start(t, { globalRange: '244.0.0.0/16' })
  await ask(t, broker, await broker.token(), { cluster: 'milano', pods: '10.42.0.0/16' })
  const [token, other] = [await broker.token(), await broker.token()]
  const said: (JoinResponse | string)[] = []
  for (let i = 0; i < 40; i += 1) said.push(await ask(t, broker, token, { cluster: 'tokyo', pods: '10.42.0.0/16' }))
  const why = 'token: too many joins that used it were refused or repeated: try again in'
  const paced = said.filter((one) => typeof one === 'string' && one.startsWith(why))
  t.ok(paced.length >= 10, `${paced.length} of 40 cost no signature`)
  const paris = await ask(t, broker, other, { cluster: 'paris', pods: '10.50.0.0/16' })
  t.match(paris, { podCidrs: ['10.50.0.0/16'] }, 'another token of the same address is good')
})

/** The broker's answer, or the text of its refusal. */
async function ask(
  t: Test,
  broker: LoopbackBroker,
  token: string,
  { cluster, pods, look }: Ask,
): Promise<JoinResponse | string> {
  const client = new Client(
    `127.0.0.1:${broker.port}`,
    credentials.createSsl(readFileSync(join(broker.state, 'ca.crt'))),
    OPTIONS,
  )
  t.teardown(() => client.close())
  const csr = look === undefined ? Buffer.from(await createCsr(createKey())) : Buffer.alloc(0)
  const facts = { podCidrs: [pods], serviceCidrs: [], neededCidrs: [], labels: [], version: '0' }
  const nowMs = broker.clock.now()
  const secret = parseJoinToken(token, nowMs).secret()
  const request: JoinRequest = { secret, cluster, csr, facts, nowMs, look }
  const { path, requestSerialize, responseDeserialize } = BrokerService.join
  return new Promise((resolve) => {
    client.makeUnaryRequest(path, requestSerialize, responseDeserialize, request, (error, answer) => {
      resolve(answer ?? error?.details ?? 'no answer')
    })
  })
}

async function revoked(broker: LoopbackBroker): Promise<string> {
  return broker.tokens(async (store) => {
    const { id, text } = await store.create({})
    await store.revoke(id)
    return text
  })
}

/** Each member as an operator sees it: id, state and global addresses. */
async function states(broker: LoopbackBroker): Promise<readonly string[]> {
  const members = await broker.tokens((store) => store.members())
  return members.map(({ id, state, globalCIDRs }) => `${id} ${state} ${globalCIDRs.join(',') || '-'}`)
}
