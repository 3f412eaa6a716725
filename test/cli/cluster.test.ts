/** `sealane cluster` beside the broker, and in the pod of a broker on a cluster. */
import { once } from 'node:events'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { type ConnectionsInit, carriedBy, connectionsOf } from '../../cli/cluster/await-drained.ts'
import { podBroker } from '../../cli/broker/pod-broker.ts'
import { KubeError } from '../../kubeapi/kube/kube-error.ts'
import { adminSocket } from '../../protocol/admin/admin-socket.ts'
import { openSqliteLog } from '../../broker/store/sqlite/sqlite-log.ts'
import { DATABASE_FILE } from '../../broker/store/state-directory.ts'
import type { MemberSummary } from '../../protocol/admin/admin-api.ts'
import { FakeClock } from '../../reconcile/fake-clock.ts'
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

t.test('drain and undrain, each twice', async (t) => {
  const broker = await LoopbackBroker.start(t)
  await joined(t, broker, 'milano', 'paris')
  const cluster = (...words: string[]) => runCli(['cluster', ...words, '--state', broker.state])
  const unknown = 'cluster paris has not reported how many connections its pods have with other clusters\n'
  const answers = [
    ['drain', 'cluster paris is drained\n', unknown],
    ['drain', 'cluster paris was already drained: nothing was changed\n', unknown],
    ['undrain', 'cluster paris gets new connections again\n', ''],
    ['undrain', 'cluster paris is not drained\n', ''],
  ] as const
  for (const [verb, stdout, stderr] of answers)
    t.same(await cluster(verb, 'paris'), { code: 0, stdout, stderr }, `${verb}: ${stdout}`)
  t.same(JSON.parse((await cluster('drain', 'paris', '-o', 'json')).stdout), {
    id: 'paris',
    drained: true,
    changed: true,
  })
  t.match((await cluster('list')).stdout, /paris +silent, drained /)
  for (const stdout of [
    'cluster paris is drained now\n',
    'cluster paris was already drained now: nothing was changed\n',
  ])
    t.same(await cluster('drain', 'paris', '--now'), { code: 0, stdout, stderr: unknown })
  t.match((await cluster('list')).stdout, /paris +silent, drained now /)
  t.match(JSON.parse((await cluster('drain', 'paris', '--now', '-o', 'json')).stdout), { now: true, changed: false })
  t.match(await cluster('drain', 'paris'), { code: 0, stdout: 'cluster paris is drained\n' })
  const waited = await cluster('drain', 'paris', '--wait', '1s')
  t.match(waited, { code: 1, stderr: /waited 1s for the connections of cluster paris to end/ })
  t.match(await cluster('drain', 'tokyo'), {
    code: 1,
    stderr: /"tokyo" is not a member; the members are milano, paris/,
  })
})

type Counted = Pick<MemberSummary, 'state' | 'openConnections' | 'podCIDRs' | 'reported'>

const counted = (count: number, change: Partial<Counted> = {}): Counted => ({
  ...{ state: 'in contact', podCIDRs: ['10.42.0.0/16'], openConnections: { count, atLeast: false } },
  ...change,
})

function reporting(code: string, count: number): Pick<Counted, 'reported'> {
  const problems = [{ code, severity: 'degraded', count }] as const
  return { reported: { versions: [], lanes: { up: 0, of: 0 }, exports: { count: 0, failed: 0 }, problems } }
}

t.test('drain: which count of a member is believed', async (t) => {
  const dual = { podCIDRs: ['10.42.0.0/16', 'fd00:42::/48'] }
  const early =
    'the pods of cluster paris had no open connections with other clusters at the last count, which may be older than ' +
    'the drain: pods are counted once a minute, and this counts 75s after the drain'
  const none = 'the pods of cluster paris have no open connections with other clusters'
  const six = '; connections over IPv6 are not counted'
  const silent = 'cluster paris is not in contact with the broker; at its last report its pods had '
  const unknown = 'cluster paris has not reported how many connections its pods have with other clusters'
  const rows: readonly [member: Counted | undefined, sinceMs: number, done: boolean, sentence: string][] = [
    [undefined, 80_000, false, unknown],
    [{ state: 'in contact', podCIDRs: [] }, 80_000, false, unknown],
    [counted(0), 0, false, early],
    [counted(0), 74_999, false, early],
    [counted(0), 75_000, true, none],
    [counted(0, dual), 74_999, false, early + six],
    [counted(0, dual), 75_000, true, none + six],
    [counted(3), 80_000, false, 'the pods of cluster paris have about 3 open connections with other clusters'],
    [
      counted(0, { openConnections: { count: 0, atLeast: true } }),
      80_000,
      false,
      'the pods of cluster paris have at least 0 open connections with other clusters',
    ],
    [
      counted(3, { openConnections: { count: 3, atLeast: true }, ...reporting('RouteAgentSilent', 2) }),
      80_000,
      false,
      'the pods of cluster paris have at least 3 open connections with other clusters (2 nodes do not report theirs: ' +
        'RouteAgentSilent, run sealane status in that cluster)',
    ],
    [
      { state: 'in contact', podCIDRs: [], ...reporting('RouteAgentSilent', 1) },
      80_000,
      false,
      `${unknown} (1 node does not report its own: RouteAgentSilent, run sealane status in that cluster)`,
    ],
    [counted(0, reporting('NoLane', 1)), 80_000, true, none],
    [counted(0, { state: 'silent' }), 80_000, false, `${silent}no open connections with other clusters`],
    [counted(2, { state: 'left', ...dual }), 9, false, `${silent}about 2 open connections with other clusters${six}`],
  ]
  for (const [member, sinceMs, done, sentence] of rows)
    t.strictSame(carriedBy('paris', member, sinceMs), { done, sentence }, sentence)
})

t.test('drain --wait: the time counts from the drain, whatever was reported before', async (t) => {
  const wait = async (timeoutMs: number, at: (ms: number) => Counted) => {
    const clock = new FakeClock()
    const begun = clock.monotonic()
    const { signal } = new AbortController()
    const init: ConnectionsInit = { timeoutMs, clock, signal, say: () => undefined }
    let outcome: string | undefined
    const waiting = connectionsOf('paris', () => Promise.resolve(at(clock.monotonic() - begun)), init).then(
      ({ sentence }) => (outcome = sentence),
      (error: unknown) => (outcome = (error as Error).message),
    )
    for (let i = 0; i < 1000 && outcome === undefined; i += 1) await clock.advance(250)
    await waiting
    return { outcome, afterMs: clock.monotonic() - begun }
  }
  const none = 'the pods of cluster paris have no open connections with other clusters'
  const old = await wait(200_000, () => counted(0))
  t.equal(old.outcome, none)
  t.ok(old.afterMs >= 75_000 && old.afterMs < 77_000, `after ${old.afterMs} ms`)
  const late = await wait(200_000, (ms) => counted(ms < 60_000 || ms >= 130_000 ? 0 : 4))
  t.equal(late.outcome, none)
  t.ok(late.afterMs >= 130_000, 'calls that were counted later')
  const back = await wait(200_000, (ms) => counted(0, { state: ms < 100_000 ? 'silent' : 'in contact' }))
  t.equal(back.outcome, none)
  t.ok(back.afterMs >= 100_000, 'a member that was away')
  t.match((await wait(60_000, () => counted(0))).outcome, /^waited 1m for the connections .* once a minute, and this/)
  t.match((await wait(0, () => counted(0))).outcome, /^the pods of cluster paris had no open .* may be older than/)
})

t.test('drain --service: the ServiceExport of a site is marked in its file; twice changes nothing', async (t) => {
  const site = new SiteFolder(t, 'milano')
  const file = 'objects/own.yaml'
  const exported = `apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata:
  name: web # by hand
  namespace: shop
`
  site.write(file, exported)
  const cluster = (...words: string[]) => runCli(['cluster', ...words, '--site', site.file])
  const later = 'open connections continue; in an importing cluster: sealane show traffic shop/web\n'
  const answers = [
    ['drain', 'service shop/web is drained\n', later],
    ['drain', 'service shop/web was already drained: nothing was changed\n', ''],
    ['undrain', 'service shop/web gets new connections again\n', ''],
    ['undrain', 'service shop/web is not drained\n', ''],
  ] as const
  for (const [verb, stdout, stderr] of answers) {
    t.same(await cluster(verb, '--service', 'shop/web'), { code: 0, stdout, stderr }, `${verb}: ${stdout}`)
    const marked = `${exported}  annotations:\n    sealane.io/drain: "true"\n`
    t.equal(site.read(file), verb === 'drain' ? marked : exported)
  }
  const ended = 'open connections are ended; in an importing cluster: sealane show traffic shop/web\n'
  const now = [
    ['service shop/web is drained now\n', ended],
    ['service shop/web was already drained now: nothing was changed\n', ''],
  ] as const
  for (const [stdout, stderr] of now)
    t.same(await cluster('drain', '--service', 'shop/web', '--now'), { code: 0, stdout, stderr })
  t.match(site.read(file), /sealane.io\/drain: "?now/)
  t.match(await cluster('drain', '--service', 'shop/web'), { stdout: 'service shop/web is drained\n' })
  t.match(await cluster('undrain', '--service', 'shop/web'), { stdout: /gets new connections again/ })
  const json = await cluster('drain', '--service', 'shop/web', '-o', 'json')
  t.same(JSON.parse(json.stdout), { service: 'shop/web', drained: true, changed: true })
  site.write(file, `${exported}  annotations: { sealane.io/drain: 'false' }\n`)
  t.match(await cluster('undrain', '--service', 'shop/web'), { stdout: 'service shop/web is not drained\n' })
  t.match(await cluster('drain', '--service', 'shop/web'), { stdout: 'service shop/web is drained\n' })
  t.match(site.read(file), /sealane.io\/drain: "?'?true/)
})

t.test('drain --service: what is refused', async (t) => {
  const site = new SiteFolder(t, 'milano')
  const at = ['--site', site.file]
  const service = ['--service', 'shop/web']
  const rows: readonly [words: readonly string[], code: number, stderr: RegExp][] = [
    [['drain', 'paris', ...service, ...at], 2, /: cluster paris and --service shop\/web: expected one of them\n/],
    [
      ['undrain', 'paris', ...service, ...at],
      2,
      /: cluster paris and --service shop\/web: .*\n.*cluster undrain --help/,
    ],
    [['drain'], 2, /expected the id of a cluster, or --service NAMESPACE\/NAME/],
    [['drain', 'paris', ...at], 2, /--site: only with --service/],
    [['drain', ...service, '--state', '/none'], 2, /--state: not with --service shop\/web/],
    [['drain', ...service, ...at, '--clusterset', 'demo'], 2, /--clusterset: not with/],
    [['drain', ...service, ...at, '--wait', '1s'], 2, /--wait: not with/],
    [['drain', ...service, '--context', 'c1', ...at], 2, /--site/],
    [['drain', '--service', 'web', ...at], 2, /--service "web": expected NAMESPACE\/NAME/],
    [['drain', '--service', 'a/b/c', ...at], 2, /--service "a\/b\/c": expected NAMESPACE\/NAME/],
    [['drain', '--service', 'Shop/web', ...at], 2, /--service "Shop\/web": expected/],
    [['drain', ...service, ...at], 1, /service shop\/web is not exported by this cluster or site/],
  ]
  for (const [words, code, stderr] of rows) {
    const result = await runCli(['cluster', ...words])
    t.match(result, { code, stderr }, words.join(' '))
  }
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
  t.match(
    (await join(await broker.token())).stdout,
    /already a member of demo as milano/,
    'another token is not enough',
  )
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
