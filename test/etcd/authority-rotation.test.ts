/**
 * The certificate authority of three brokers on one etcd is rotated while members work. The operator starts each step
 * of the rotation at one broker, and all three brokers carry it out. One broker is killed in between, and another
 * restarts with an empty state directory.
 */
import { X509Certificate } from 'node:crypto'
import { once } from 'node:events'
import { readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { connect } from 'node:tls'
import t, { type Test } from 'tap'
import type { AuthorityStatus } from '../../protocol/admin/admin-api.ts'
import { fingerprint } from '../../protocol/identity/certificates.ts'
import { AuthorityCommands, PATIENCE, isFree } from '../broker/support/authority-commands.ts'
import { LinkedMember } from '../broker/support/linked-member.ts'
import { Traffic } from '../broker/support/member-traffic.ts'
import { runCli } from '../cli/run-cli.ts'
import type { RawBroker } from '../hostile/support/raw-channel.ts'
import { joinWith, tokenSecret } from '../hostile/support/raw-join.ts'
import { eventually } from '../support/eventually.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { type EtcdCluster, startEtcdCluster } from './support/etcd-cluster.ts'
import { type ServedBrokers, threeBrokers } from './support/served-brokers.ts'

t.setTimeout(300_000)
const PREFIX = '/rotation/demo'

let cluster: EtcdCluster
let brokers: ServedBrokers

t.before(async () => {
  cluster = await startEtcdCluster(t)
  brokers = await threeBrokers(t, cluster, PREFIX)
  await Promise.all(brokers.map((broker) => broker.start()))
})

async function joined(t: Test, broker: RawBroker, id: string): Promise<LinkedMember> {
  const { stdout } = await runCli(['token', 'create', '--state', broker.state, '-o', 'json'])
  return LinkedMember.join(t, (JSON.parse(stdout) as { token: string }).token, id)
}

/** Returns the same broker for a client that trusts every authority in the broker's state directory. */
function trusting(t: Test, { address, state }: RawBroker): RawBroker {
  const folder = temporaryFolder(t)
  const names = readdirSync(state).filter((name) => /^ca\..*crt$/.test(name))
  writeFileSync(join(folder, 'ca.crt'), names.map((name) => readFileSync(join(state, name), 'utf8')).join(''))
  return { address, state: folder }
}

/**
 * Returns the fingerprints of the authority whose certificate the broker serves and of the authority that it signs
 * with.
 */
async function used(t: Test, broker: RawBroker, id: string): Promise<{ serves: string; signs: string }> {
  const [host = '', port = ''] = broker.address.split(':')
  // The certificate is the thing under test, so the client does not verify it.
  const socket = connect({ host, port: Number(port), ALPNProtocols: ['h2'], rejectUnauthorized: false })
  await once(socket, 'secureConnect')
  const served = socket.getPeerX509Certificate()
  socket.destroy()
  const { response } = await joinWith(trusting(t, broker), await tokenSecret(broker.state), id)
  const signed = new X509Certificate(response.certificate)
  const known = response.caBundle.map((der) => ({ name: fingerprint(der), key: new X509Certificate(der).publicKey }))
  const by = (one: X509Certificate | undefined): string => known.find(({ key }) => one?.verify(key))?.name ?? 'another'
  return { serves: by(served), signs: by(signed) }
}

/** Waits until each of these brokers serves and signs with this authority alone. */
async function all(t: Test, which: readonly RawBroker[], authority: string | undefined, round: string): Promise<void> {
  for (const [i, broker] of which.entries()) {
    let last: unknown
    let asked = 0
    const isSo = async (): Promise<boolean> => {
      const now = await used(t, broker, `${round}-${i}-${(asked += 1)}`)
      last = now
      return now.serves === authority && now.signs === authority
    }
    await eventually(isSo, { ...PATIENCE, intervalMs: 500, say: `broker ${i} in ${round}` }).catch((error: unknown) => {
      throw new Error(`${String(error)}: ${JSON.stringify(last)}, wanted ${String(authority)}`)
    })
  }
}

/**
 * Evicts the members that joined only to show which authority signs. They never use their certificates, and without the
 * eviction the rotation would keep waiting for them.
 */
async function forgetProbes(broker: RawBroker): Promise<void> {
  const { stdout } = await runCli(['cluster', 'list', '--state', broker.state, '-o', 'json'])
  const { items } = JSON.parse(stdout) as { items: { id: string }[] }
  for (const { id } of items) {
    if (/-\d+-\d+$/.test(id)) await runCli(['cluster', 'evict', id, '--force', '--state', broker.state])
  }
}

const keysIn = (folder: string): string[] =>
  readdirSync(folder)
    .filter((name) => name.startsWith('ca.') && name.endsWith('.key'))
    .sort()

/** Returns the names, below the prefix, of the keys that hold the private keys of authorities. */
async function sharedKeys(): Promise<string[]> {
  const [from, to] = [`${PREFIX}/authority/`, `${PREFIX}/authority0`].map((text) =>
    Buffer.from(text).toString('base64'),
  )
  const { kvs = [] } = (await cluster.call('kv/range', { key: from, range_end: to, keys_only: true })) as {
    kvs?: { key: string }[]
  }
  return kvs.map(({ key }) => Buffer.from(key, 'base64').toString().slice(`${PREFIX}/authority/`.length)).sort()
}

t.test('asked for at one, done by all; one is killed in between, and one comes back empty', async (t) => {
  const [first, second, third] = brokers
  const [ca, ca2, ca3] = brokers.map((broker) => new AuthorityCommands(broker)) as [
    AuthorityCommands,
    AuthorityCommands,
    AuthorityCommands,
  ]
  const { current } = await ca.status()
  await all(t, brokers, current.fingerprint, 'before')
  await forgetProbes(first)
  const members = [await joined(t, first, 'milano'), await joined(t, second, 'paris'), await joined(t, third, 'roma')]
  const [milano, ...others] = members as [LinkedMember, ...LinkedMember[]]
  const traffic = new Traffic(t, milano)
  await traffic.seen(...others)
  const oslo = await joined(t, third, 'oslo')
  await oslo.stop()

  const { next } = await ca.step(t, 'rotate')
  t.strictSame(await sharedKeys(), [current.fingerprint, String(next?.fingerprint)].sort())
  const waitsForOslo = ({ waitsFor }: AuthorityStatus): boolean =>
    waitsFor.members.map(({ id }) => id).join() === 'oslo'
  for (const one of [ca, ca2, ca3]) await one.until('announced', waitsForOslo)
  for (const member of members) t.strictSame(await member.bundle(), [current.fingerprint, next?.fingerprint])

  await first.kill()
  await oslo.start()
  await ca2.until('switched', isFree)
  await all(t, [second, third], next?.fingerprint, 'switched')
  await forgetProbes(second)
  await traffic.seen(...others, oslo)
  await first.start()
  await all(t, [first], next?.fingerprint, 'killed')
  await forgetProbes(second)

  await third.kill()
  for (const name of readdirSync(third.state))
    if (name !== 'store.json') rmSync(join(third.state, name), { recursive: true })
  await ca2.until('switched', isFree)
  await ca2.step(t, 'finish')
  await third.start()
  for (const one of [ca, ca2, ca3]) await one.until('steady')
  await all(t, brokers, next?.fingerprint, 'after')
  await traffic.seen(...others, oslo)
  for (const member of [...members, oslo]) {
    await eventually(async () => (await member.bundle()).join() === next?.fingerprint, {
      ...PATIENCE,
      say: `${member.id} trusts the new one alone`,
    })
    t.strictSame(member.refusals, [], `${member.id} was never refused`)
  }

  await eventually(async () => (await sharedKeys()).join() === next?.fingerprint, {
    ...PATIENCE,
    say: 'the key of the removed authority is gone from etcd',
  })
  for (const { state } of brokers) {
    await eventually(() => keysIn(state).join() === 'ca.key', { ...PATIENCE, say: `one key in ${state}` })
    t.equal(fingerprint(new X509Certificate(readFileSync(join(state, 'ca.crt'))).raw), next?.fingerprint)
  }
})
