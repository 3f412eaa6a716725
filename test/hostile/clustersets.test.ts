/** Three clustersets at one broker, and members of one that try to act in another. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { certificatesFromPem, fingerprint, serverNameOf } from '../../protocol/identity/certificates.ts'
import { BrokerService } from '../../protocol/gen/broker.ts'
import { runCli } from '../cli/run-cli.ts'
import { attack } from './support/attack.ts'
import { brokerHere } from './support/broker-here.ts'
import { type RawBroker, type RawIdentity, callMethod, openChannel, outcomeOf } from './support/raw-channel.ts'
import { NO_FACTS, csrOf, joinWith, newKey, rawJoin, tokenSecret } from './support/raw-join.ts'
import { RawPublish } from './support/raw-publish.ts'
import { recordsOf } from './support/raw-watch.ts'

const NAMES = ['demo', 'blue', 'green'] as const
type Name = (typeof NAMES)[number]

interface Set extends RawBroker {
  readonly milano: RawIdentity
  readonly paris: RawIdentity
}

async function start(t: Test): Promise<Readonly<Record<Name, Set>>> {
  const { address, state } = await brokerHere(t)
  const made: [Name, Set][] = []
  for (const name of NAMES) {
    const dir = name === 'demo' ? state : join(state, 'clustersets', name)
    if (name !== 'demo') {
      const { code, stderr } = await runCli(['broker', 'clusterset', 'create', name, '--state', state])
      t.equal(code, 0, stderr)
    }
    const [ca] = certificatesFromPem(readFileSync(join(dir, 'ca.crt'), 'utf8'))
    const serverName = serverNameOf(ca === undefined ? undefined : fingerprint(ca))
    const raw = { address, state: dir, serverName }
    made.push([name, { ...raw, milano: await rawJoin(raw, 'milano'), paris: await rawJoin(raw, 'paris') }])
  }
  return Object.fromEntries(made) as Record<Name, Set>
}

/** The records that a member of the clusterset sees, as `owner/kind/namespace/name`. */
async function seen(set: Set): Promise<string> {
  const channel = openChannel(set, set.paris)
  try {
    return (await recordsOf(channel))
      .map(({ cluster, namespace, name, body }) => `${cluster}/${body?.body?.$case}/${namespace}/${name}`)
      .sort()
      .join('\n')
  } finally {
    channel.close()
  }
}

await attack('clusterset-certificate', async (t) => {
  const sets = await start(t)
  for (const at of NAMES) {
    const before = await seen(sets[at])
    for (const from of NAMES.filter((one) => one !== at)) {
      const channel = openChannel(sets[at], sets[from].milano)
      const refused = new RegExp(`^[A-Z_]+ the certificate belongs to clusterset "${from}", this broker to "${at}"`)
      t.match(await outcomeOf(callMethod(channel, BrokerService.leave, {})), refused, `${from} at ${at}`)
      t.match(await outcomeOf(callMethod(channel, BrokerService.renew, { csr: await csrOf(newKey()) })), refused)
      t.match(await outcomeOf(recordsOf(channel)), refused)
      t.match(await outcomeOf(new RawPublish(channel).open()), refused)
      channel.close()
    }
    t.equal(await seen(sets[at]), before)
    const own = openChannel(sets[at], sets[at].milano)
    t.equal(await outcomeOf(recordsOf(own)), 'ok', 'who has the id there goes on')
    own.close()
  }
})

await attack('clusterset-token', async (t) => {
  const sets = await start(t)
  for (const from of NAMES) {
    const secret = await tokenSecret(sets[from].state)
    for (const at of NAMES.filter((one) => one !== from)) {
      const before = await seen(sets[at])
      const unknown = /^UNAUTHENTICATED token: not known to this broker/
      for (const id of ['milano', 'tokyo', from]) t.match(await outcomeOf(joinWith(sets[at], secret, id)), unknown)
      const channel = openChannel(sets[at])
      const request = { secret, cluster: 'tokyo', csr: Buffer.alloc(0), facts: NO_FACTS, nowMs: Date.now() }
      t.match(await outcomeOf(callMethod(channel, BrokerService.join, { ...request, look: true })), unknown)
      channel.close()
      t.equal(await seen(sets[at]), before)
    }
    t.equal(await outcomeOf(joinWith(sets[from], secret, 'tokyo')), 'ok', 'it is good where it is from')
    t.match(await outcomeOf(joinWith(sets[from], secret, 'lima')), /^[A-Z_]+ /, 'once')
  }
})

await attack('clusterset-forged-record', async (t) => {
  const sets = await start(t)
  const before = { demo: await seen(sets.demo), green: await seen(sets.green) }
  const channel = openChannel(sets.blue, sets.blue.milano)
  const stream = await new RawPublish(channel).open()
  const labels = NAMES.map((name) => ({ key: 'sealane.io/clusterset', value: name }))
  const outcomes: string[] = []
  for (const text of ['green', 'sealane://green', '../green', 'green/milano', 'clustersets/green', '\u202egreen']) {
    const endpointSlice = { service: text, addressType: 'IPv4', ports: [], endpoints: [] }
    const record = { namespace: text, name: text, body: { $case: 'endpointSlice' as const, value: endpointSlice } }
    outcomes.push(await outcomeOf(stream.put(record as never)))
  }
  t.equal(outcomes.length, 6)
  await outcomeOf(stream.facts({ ...NO_FACTS, labels: labels.slice(2) }))
  channel.close()
  t.equal(await seen(sets.demo), before.demo)
  t.equal(await seen(sets.green), before.green)
  for (const name of ['demo', 'green'] as const) {
    const own = openChannel(sets[name], sets[name].milano)
    t.equal(await outcomeOf(recordsOf(own)), 'ok')
    own.close()
  }
})
