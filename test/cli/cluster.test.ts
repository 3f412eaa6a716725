/** `sealane cluster` beside the broker, and in the pod of a broker on a cluster. */
import { once } from 'node:events'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { podBroker } from '../../cli/broker/pod-broker.ts'
import { KubeError } from '../../kubeapi/kube/kube-error.ts'
import { adminSocket } from '../../protocol/admin/admin-socket.ts'
import { openSqliteLog } from '../../broker/store/sqlite/sqlite-log.ts'
import { DATABASE_FILE } from '../../broker/store/state-directory.ts'
import { messageOf } from '../support/failure.ts'
import { MemoryAdmin } from '../support/memory-admin.ts'
import { dialSocket } from '../support/served-admin.ts'
import { LoopbackBroker } from './loopback-broker.ts'
import { runCli, spawnServing } from './run-cli.ts'
import { SiteFolder } from './site-folder.ts'

async function joined(t: Test, broker: LoopbackBroker, ...ids: string[]): Promise<void> {
  for (const id of ids) {
    const site = new SiteFolder(t, id)
    const { code, stderr } = await runCli(['join', '--site', site.file, '--token', await broker.token()])
    t.equal(code, 0, stderr)
  }
}

const TIME = /\d{4}-\d\d-\d\dT[0-9:.]+Z/g
const timeless = (text: string): string => text.replace(TIME, 'TIME')

t.test('list and evict beside a running broker', async (t) => {
  const broker = await LoopbackBroker.start(t)
  await joined(t, broker, 'milano', 'paris')
  const cluster = async (...words: string[]) => {
    const { code, stdout, stderr } = await runCli(['cluster', ...words, '--state', broker.state])
    return { code, stdout: timeless(stdout).replaceAll(/ +/g, ' '), stderr: timeless(stderr) }
  }
  const head = 'CLUSTER STATE SINCE RECORDS PODS GLOBAL JOINED\n'
  const row = (id: string, state: string, blocks: string): string =>
    `${id} ${state} TIME 0/50000 10.42.0.0/16 ${blocks} TIME\n`
  const { members } = await broker.tokens(async (store) => ({ members: await store.members() }))
  const [milano = '', paris = ''] = members.map(({ globalCIDRs }) => globalCIDRs.join())
  t.not(milano, paris, 'they overlap: each has a block of its own')
  t.same(await cluster('list'), {
    code: 0,
    stdout: head + row('milano', 'silent', milano) + row('paris', 'silent', paris),
    stderr:
      'milano: its pods have global addresses: 10.42.0.0/16 overlaps pods 10.42.0.0/16 of cluster paris\n' +
      'paris: its pods have global addresses: 10.42.0.0/16 overlaps pods 10.42.0.0/16 of cluster milano\n',
  })
  t.same(await cluster('evict', 'tokyo'), {
    code: 1,
    stdout: '',
    stderr: 'sealane: cluster "tokyo" is not a member; the members are milano, paris\nreason: MemberUnknown\n',
  })
  t.same(await cluster('evict', 'Paris'), {
    code: 2,
    stdout: '',
    stderr:
      'sealane: cluster "Paris": expected an RFC 1123 label: 1 to 63 of a-z, 0-9 and -\n' +
      'see: sealane cluster evict --help\n',
  })
  t.same(await cluster('evict', 'paris'), {
    code: 0,
    stdout: 'cluster paris evicted: its records are withdrawn and its certificate is revoked\n',
    stderr: 'to let it join again: create a token here (sealane token create), and use it there with sealane join\n',
  })
  t.same(await cluster('evict', 'paris'), {
    code: 0,
    stdout: 'cluster paris was already evicted at TIME: nothing was changed\n',
    stderr: '',
  })
  t.same(await cluster('list'), { code: 0, stdout: head + row('milano', 'silent', milano), stderr: '' })
  t.equal(
    (await cluster('list', '--all')).stdout,
    head + row('milano', 'silent', milano) + row('paris', 'evicted', paris),
  )
  await joined(t, broker, 'paris')
  t.equal(
    (await cluster('list')).stdout,
    head + row('milano', 'silent', milano) + row('paris', 'silent', paris),
    'a new token takes it back, with its addresses',
  )
})

t.test('rekey: the identity of before is refused, and the site joins anew with its addresses', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const site = new SiteFolder(t, 'milano')
  const join = async (token: string) => runCli(['join', '--site', site.file, '--token', token])
  t.equal((await join(await broker.token())).code, 0)
  const [before] = await broker.tokens((store) => store.members())
  const cluster = async (...words: string[]) => {
    const { code, stdout, stderr } = await runCli(['cluster', ...words, '--state', broker.state])
    return { code, stdout: timeless(stdout), stderr: timeless(stderr) }
  }
  t.same(await cluster('rekey', 'tokyo'), {
    code: 1,
    stdout: '',
    stderr: 'sealane: cluster "tokyo" is not a member; the members are milano\nreason: MemberUnknown\n',
  })
  t.equal((await broker.tokens((store) => store.list())).length, 1, 'no token is left of it')
  const said = await cluster('rekey', 'milano')
  t.match(said, {
    code: 0,
    stderr:
      /^cluster milano: its certificates are revoked; it keeps its records and addresses\ntoken [0-9a-f]+, for the join with a new identity, until TIME\n$/,
  })
  t.match(said.stdout, /\nsealane join --site site.yaml --token-file token.txt\n$/)
  const token = /sealane1\.\S+/.exec(said.stdout)?.[0] ?? ''
  t.match((await cluster('list')).stdout, /milano +silent, gets a new identity /)
  t.match((await join(await broker.token())).stderr, /"milano" is already a member/, 'another token is not enough')
  t.equal((await join(token)).code, 0)
  const [after] = await broker.tokens((store) => store.members())
  t.equal(after?.rekeyedAtMs, undefined)
  t.same(after?.globalCIDRs, before?.globalCIDRs)
  const made = JSON.parse((await cluster('rekey', 'milano', '-o', 'json')).stdout) as Record<string, string>
  t.match(made, { cluster: 'milano', token: /^sealane1\./ })
})

t.test('quota: shown, given to one member, and a second time', async (t) => {
  const broker = await LoopbackBroker.start(t)
  await joined(t, broker, 'milano', 'paris')
  const cluster = async (...words: string[]) => {
    const { code, stdout, stderr } = await runCli(['cluster', ...words, '--state', broker.state])
    return { code, stdout: timeless(stdout).replaceAll(/ +/g, ' '), stderr }
  }
  const standard = 'records 0 of 50000\nbytes 0 of 16Mi\nchanges 100 per second\nstreams 10\n'
  t.same(await cluster('quota', 'milano'), { code: 0, stdout: standard, stderr: '' })
  const own = 'records 0 of 60000, its own\nbytes 0 of 1.5Gi, its own\nchanges 100 per second\nstreams 10\n'
  const raise = ['quota', 'milano', '--records', '60000', '--bytes', '1536Mi']
  t.same(await cluster(...raise), { code: 0, stdout: own, stderr: 'quota changed\n' })
  t.same(await cluster(...raise), {
    code: 0,
    stdout: own,
    stderr: 'the quota already has these limits: nothing was changed\n',
  })
  await broker.stop()
  await broker.start()
  const wide = (await cluster('list', '-o', 'wide')).stdout.split('\n')
  t.match(wide[0], /RECORDS BYTES CHANGES\/S STREAMS PODS/)
  t.match(wide[1], /^milano silent TIME 0\/60000 0\/1.5Gi 100 10 /, 'a restart keeps it')
  t.match(wide[2], /^paris silent TIME 0\/50000 0\/16Mi 100 10 /, 'and it is of one member')
  t.match(JSON.parse((await cluster('quota', 'milano', '--bytes', 'default', '-o', 'json')).stdout), {
    ...{ id: 'milano', changed: true, own: ['records'], used: { records: 0, bytes: 0 } },
    limit: { records: 60_000, bytes: 16 * 1024 * 1024, changes: 100, streams: 10 },
  })
  const usage = 'see: sealane cluster quota --help\n'
  for (const [flag, value, expected] of [
    ['records', '-1', '0 to 200000'],
    ['records', '1Ki', '0 to 200000'],
    ['bytes', '5Gi', '0 to 4Gi'],
    ['changes', '0', '1 to 100000'],
    ['streams', '1', '2 to 60'],
  ] as const) {
    const stderr = `sealane: --${flag} "${value}": expected ${expected}, or default\n${usage}`
    t.same(await cluster('quota', 'milano', `--${flag}=${value}`), { code: 2, stdout: '', stderr })
  }
  for (const words of [[], ['--records', '5']]) {
    const stderr =
      'sealane: cluster "tokyo" is not a member; list the members: sealane cluster list\nreason: MemberUnknown\n'
    t.same(await cluster('quota', 'tokyo', ...words), { code: 1, stdout: '', stderr })
  }
})

t.test('a stolen identity stands in the list', async (t) => {
  const broker = await LoopbackBroker.start(t)
  await joined(t, broker, 'milano')
  const log = openSqliteLog({ file: join(broker.state, DATABASE_FILE), create: false })
  const misuse = { atMs: Date.parse('2026-01-01T00:00:00Z'), serial: 'ab12', address: '192.0.2.7' }
  await log.transact((tx) => {
    const row = tx.get('member', 'milano')
    if (row !== undefined) tx.put('member', 'milano', { ...row, misuse })
  })
  await log.close()
  const { stdout, stderr } = await runCli(['cluster', 'list', '--state', broker.state])
  t.match(stdout, /milano +silent, identity stolen /)
  t.equal(
    stderr,
    'milano: certificate ab12 was used from 192.0.2.7 at 2026-01-01T00:00:00.000Z, after it had been replaced: ' +
      'a copy of its key is in use. Replace the identity: sealane cluster rekey milano\n',
  )
})

t.test('no broker there', async (t) => {
  const file = join(t.testdir({}), DATABASE_FILE)
  t.same(await runCli(['cluster', 'list', '--state', join(file, '..')]), {
    code: 1,
    stdout: '',
    stderr: `sealane: no broker state in ${file}: start the broker once first\nfor a broker on a cluster: --context NAME\nreason: StateAbsent\n`,
  })
})

/** Returns a cluster whose broker pod has the admin service of a real broker. */
function hub(broker: LoopbackBroker): MemoryAdmin {
  const labels = { 'app.kubernetes.io/name': 'sealane', 'app.kubernetes.io/component': 'broker' }
  const admin = new MemoryAdmin([
    {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name: 'sealane-broker-0', namespace: 'sealane-broker', labels },
      status: { conditions: [{ type: 'Ready', status: 'True' }] },
    },
  ])
  admin.dial = () => dialSocket(adminSocket(broker.state))
  return admin
}

const INIT = { flags: '--context hub', signal: new AbortController().signal }

t.test('in the pod of a broker on a cluster', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const admin = hub(broker)
  const there = podBroker(admin, INIT)
  await joined(t, broker, 'milano')
  t.same(await there.members(), await broker.tokens((store) => store.members()))
  await t.rejects(there.evict({ cluster: 'tokyo', force: false }), {
    message:
      'the broker of context "c1" of kubeconfig answered: cluster "tokyo" is not a member; the members are milano',
    reason: 'MemberUnknown',
  })
  const evicted = await there.evict({ cluster: 'milano', force: true })
  const [known] = await broker.tokens((store) => store.members())
  t.same([known?.state, known?.sinceMs], ['evicted', evicted.evictedAtMs])
  t.same(await there.evict({ cluster: 'milano', force: false }), { ...evicted, repeated: true })
  await joined(t, broker, 'paris')
  const quota = { cluster: 'paris', change: { records: 7, bytes: 'default' } } as const
  t.same([await there.changeQuota(quota), await there.changeQuota(quota)], [{ changed: true }, { changed: false }])
  t.match((await there.members()).at(-1)?.quota, { limit: { records: 7 }, own: ['records'] })
  const rekeyed = await there.rekey({ cluster: 'paris', ttlMs: 60_000 })
  t.match(rekeyed.text, /^sealane1\./)
  const made = await there.createToken({ ttlMs: 60_000, uses: 2, cluster: 'milano' })
  t.equal((await there.tokens())[0]?.id, made.id)
  await there.revokeToken({ id: made.id })
  t.equal((await there.tokens())[0]?.state, 'revoked')
  t.same(new Set(admin.done), new Set(['forward sealane-broker/sealane-broker-0 7444']), 'no command runs in the pod')
})

t.test('a broker of a release without the admin service', async (t) => {
  const admin = hub(await LoopbackBroker.start(t))
  const why = 'forward Pod sealane-broker/sealane-broker-0 port 7444: connection refused'
  admin.dial = () => Promise.reject(new KubeError(why, { code: 'Unavailable', status: 0, reason: 'ForwardFailed' }))
  t.equal(await messageOf(podBroker(admin, INIT).members()), why)
})

t.test('a hub without a broker', async (t) => {
  const there = podBroker(new MemoryAdmin(), INIT)
  t.equal(await messageOf(there.members()), 'context "c1" of kubeconfig: no broker is installed')
})

t.test('kill -9 at any moment: all of it or nothing, and the next one does the rest', async (t) => {
  const broker = await LoopbackBroker.start(t)
  await joined(t, broker, 'milano')
  const evicting = () => spawnServing(t, ['cluster', 'evict', 'milano', '--state', broker.state])
  const began = performance.now()
  const whole = evicting()
  await once(whole, 'close')
  const needs = performance.now() - began
  const found = new Set<string>()
  // The search halves the interval around the moment of the commit, so that kills happen on both sides of it.
  let [early, late] = [0, 2 * needs]
  for (let round = 0; round < 5 || (found.size < 2 && round < 25); round += 1) {
    const at = (early + late) / 2
    await joined(t, broker, 'milano')
    const child = evicting()
    const kill = setTimeout(() => child.kill('SIGKILL'), at)
    await once(child, 'close')
    clearTimeout(kill)
    const log = openSqliteLog({ file: join(broker.state, DATABASE_FILE), create: false })
    const row = log.get('member', 'milano')
    const records = log.list('record', 'milano').length
    await log.close()
    const state = row?.departure ?? 'member'
    found.add(state)
    if (state === 'evicted') late = at
    else early = at
    // The speed of the machine has changed, so the search starts again.
    if (late - early < needs / 20) [early, late] = [0, 2 * needs]
    t.same([records, row?.certificates.length], state === 'evicted' ? [0, 0] : [1, 1], `${state}, whole`)
    const { code, stdout } = await runCli(['cluster', 'evict', 'milano', '--state', broker.state, '-o', 'json'])
    t.same([code, (JSON.parse(stdout) as { repeated: boolean }).repeated], [0, state === 'evicted'])
  }
  t.same([...found].sort(), ['evicted', 'member'], 'killed before it was done, and after')
})
