/**
 * A site joins a real broker over TLS on loopback: the files that it writes, and the messages when it cannot write
 * them.
 */
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { type AddressInfo, createServer } from 'node:net'
import t, { type Test } from 'tap'
import { createJoinToken, parseJoinToken } from '../../../protocol/identity/token.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { freePort } from '../../support/free-port.ts'
import { LoopbackBroker } from '../loopback-broker.ts'
import { type CliResult, runCli, startCli } from '../run-cli.ts'
import { SiteFolder, withoutLikelyRung } from '../site-folder.ts'

const HOUR = 3_600_000
const TIME = /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{3})?Z/g

function join(site: SiteFolder, token: string, ...more: string[]): Promise<CliResult> {
  return runCli(['join', '--site', site.file, '--token', token, ...more])
}

/** The same of a join that has begun, without what it says of the likely rung. */
async function begun(joining: Promise<CliResult>): Promise<CliResult> {
  const result = await joining
  return { ...result, stderr: withoutLikelyRung(result.stderr) }
}

/** Returns the error message, with times replaced by TIME. */
async function refusal(t: Test, joining: Promise<CliResult>): Promise<string> {
  const { code, stdout, stderr } = await joining
  t.same({ code, stdout }, { code: 1, stdout: '' })
  const hasBegun = stderr.includes('links will likely be')
  return (hasBegun ? withoutLikelyRung(stderr) : stderr)
    .replace(/^sealane: /, '')
    .replaceAll(TIME, 'TIME')
    .trimEnd()
}

interface ClusterFile {
  readonly spec: {
    readonly index: number
    readonly podCIDRs: readonly string[]
    readonly globalCIDRs: readonly string[]
  }
}

function ownCluster(site: SiteFolder, id = 'milano'): ClusterFile['spec'] {
  return (JSON.parse(site.read(`state/objects/Cluster/_/${id}.json`)) as ClusterFile).spec
}

t.test('two sites with the same addresses join', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const milano = new SiteFolder(t)
  const paris = new SiteFolder(t, 'site2')
  t.same(await begun(join(milano, await broker.token())), {
    code: 0,
    stdout: 'milano has joined clusterset demo with its own addresses\n',
    stderr: `next, on each node: sealane up --site ${milano.file} --node NAME\n`,
  })
  t.same(milano.identity(), [
    '0700 identity/',
    '0600 identity/broker.json',
    '0600 identity/ca.crt',
    '0600 identity/cluster.crt',
    '0600 identity/cluster.key',
  ])
  t.same(milano.objects(), ['Cluster/_/milano.json', 'Membership/_/self.json'])
  const second = await join(paris, await broker.token(), '--cluster-id', 'paris')
  t.equal(second.stdout, 'paris has joined clusterset demo with global addresses 244.1.0.0/16\n')
  t.match(JSON.parse(paris.read('state/objects/Membership/_/self.json')), {
    spec: {
      clusterId: 'paris',
      phase: 'joined',
      clusterset: 'demo',
      globalRange: '244.0.0.0/8',
      clustersetIpRange: '245.0.0.0/16',
    },
  })
  t.notSame(ownCluster(paris, 'paris').index, ownCluster(milano).index)
})

t.test('sites with the same IPv6: the second is told, and so is who lists the members', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const dual = (id: string, pods4: string): SiteFolder => {
    const site = new SiteFolder(t, id)
    site.write('site.yaml', site.read('site.yaml').replace('[10.42.0.0/16]', `[${pods4}, 'fd00:42::/48']`))
    return site
  }
  const [milano, paris] = [dual('milano', '10.42.0.0/16'), dual('paris', '10.50.0.0/16')]
  const next = (site: SiteFolder): string => `next, on each node: sealane up --site ${site.file} --node NAME\n`
  t.equal((await begun(join(milano, await broker.token()))).stderr, next(milano))
  t.same(await begun(join(paris, await broker.token())), {
    code: 0,
    stdout: 'paris has joined clusterset demo with its own addresses\n',
    stderr: `its IPv6 is not carried: fd00:42::/48 overlaps fd00:42::/48 of cluster milano\n${next(paris)}`,
  })
  t.same(ownCluster(milano).podCIDRs, ['10.42.0.0/16', 'fd00:42::/48'])
  t.same(ownCluster(paris, 'paris').podCIDRs, ['10.50.0.0/16'])
  const { stdout } = await runCli(['cluster', 'list', '--state', broker.state])
  t.match(stdout, /^milano .* 10\.42\.0\.0\/16,fd00:42::\/48 /m)
  t.match(stdout, /^paris .* 10\.50\.0\.0\/16,fd00:42::\/48 \(not carried\) /m)
})

t.test('public space needs a token that allows it', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const site = new SiteFolder(t)
  site.write('site.yaml', site.read('site.yaml').replace('[10.42.0.0/16]', '[203.0.113.0/28]'))
  const refused = await join(site, await broker.token())
  t.match(refused, { code: 1, stdout: '', stderr: /podCIDRs\[0\]: "203\.0\.113\.0\/28" is public space/ })
  const create = ['token', 'create', '--state', broker.state, '-o', 'json']
  const wrong = await runCli([...create, '--allow-cidr', '203.0.113.1/24'])
  t.match(wrong, { code: 2, stderr: /--allow-cidr "203\.0\.113\.1\/24": expected no host bits set/ })
  const made = await runCli([...create, '--allow-cidr', '203.0.113.0/24', '--allow-cidr', '2001:db8::/32'])
  const { token } = JSON.parse(made.stdout) as { token: string }
  t.match(await join(site, token), { code: 0, stdout: 'milano has joined clusterset demo with its own addresses\n' })
  const { stdout } = await runCli(['token', 'list', '--state', broker.state])
  t.match(stdout, / 203\.0\.113\.0\/24,2001:db8::\/32 +milano /)
})

t.test('tokens that are no good', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const other = await LoopbackBroker.start(t, { clusterset: 'elsewhere' })
  const twin = await LoopbackBroker.start(t)
  const good = await broker.token()
  const { addresses, clusterset, caPin, id } = parseJoinToken(good, 0)
  const made = (change: object): string =>
    createJoinToken({ addresses, clusterset, caPin, expiresAtMs: Date.now() + HOUR, ...change }).text()
  const revoked = await broker.token()
  await broker.tokens((store) => store.revoke(parseJoinToken(revoked, 0).id))
  const revokedId = parseJoinToken(revoked, 0).id
  const bound = await broker.token({ cluster: 'paris' })
  const used = await broker.token()
  t.equal((await join(new SiteFolder(t, 'first'), used)).code, 0)

  const again = 'create a new one with "sealane token create"'
  const where = `127.0.0.1:${broker.port}`
  const port = await freePort()
  const rows: [string, string, string][] = [
    [
      'malformed',
      'sealane1.a+b',
      'join token: expected only A-Z, a-z, 0-9, - and _ after "sealane1."\nreason: TokenMalformed',
    ],
    [
      'of the future',
      good.replace('sealane1', 'sealane2'),
      'join token: a broker of another version created it (token format 2, expected 1)\nreason: TokenVersion',
    ],
    [
      'cut short',
      good.slice(0, -9),
      'join token: its checksum is wrong: the token was truncated or changed when copied\nreason: TokenDamaged',
    ],
    [
      'expired',
      made({ expiresAtMs: Date.now() - 1.5 * HOUR }),
      `join token: expired 1 h ago by this machine's clock: ${again}\nreason: TokenExpired`,
    ],
    [
      'unknown',
      made({}),
      `token: not known to this broker: another broker created it, or it was removed; ${again}\nreason: TokenUnknown`,
    ],
    ['revoked', revoked, `token: ${revokedId} was revoked at TIME: ${again}\nreason: TokenRevoked`],
    [
      'used',
      used,
      `token: ${parseJoinToken(used, 0).id} was already used by cluster "first" at TIME: ${again}\nreason: TokenUsed`,
    ],
    [
      'for another cluster',
      bound,
      `token: ${parseJoinToken(bound, 0).id} is for cluster "paris", not "milano"\nreason: TokenForOtherCluster`,
    ],
    [
      'of another clusterset',
      made({ addresses: [`127.0.0.1:${other.port}`] }),
      `the broker at 127.0.0.1:${other.port} belongs to clusterset "elsewhere", expected "demo"\nreason: CertificateOtherClusterset`,
    ],
    [
      'of another broker',
      made({ addresses: [`127.0.0.1:${twin.port}`] }),
      `the broker at 127.0.0.1:${twin.port} does not have the CA that the join token names: the token is from another broker, or something intercepts the connection\nreason: CertificateUntrusted`,
    ],
    [
      'nobody there',
      made({ addresses: [`127.0.0.1:${port}`] }),
      `broker at 127.0.0.1:${port}: connection refused: nothing listens there`,
    ],
  ]
  for (const [name, token, want] of rows) {
    const site = new SiteFolder(t)
    t.equal(await refusal(t, join(site, token)), want, name)
    t.same([site.identity(), site.objects()], [[], []], `${name}: the site is as it was`)
  }
  t.equal((await join(new SiteFolder(t), good)).code, 0, `${id} on ${where} was good all the time`)
})

t.test('one id, one site', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const site = new SiteFolder(t)
  await join(site, await broker.token())
  const key = site.read('state/identity/cluster.key')
  const taken =
    'cluster: "milano" is already a member (joined TIME, last seen TIME): choose another cluster id; or, if this is the ' +
    'same cluster, run "sealane leave" there first or join with a token for this id: "sealane token create --cluster-id milano"\nreason: ClusterIdTaken'
  t.equal(await refusal(t, join(new SiteFolder(t), await broker.token())), taken, 'another site')
  t.match(
    await join(site, await broker.token()),
    { code: 0, stdout: /already a member of demo as milano/ },
    'the same site',
  )
  t.equal(site.read('state/identity/cluster.key'), key, 'its identity is untouched')
  t.equal(site.has('state/identity/joining.key'), false)

  const elsewhere = 'this site is already joined as milano in clusterset demo\nleave first: sealane leave'
  t.equal(await refusal(t, join(site, await broker.token(), '--cluster-id', 'roma')), elsewhere)
  const other = await LoopbackBroker.start(t, { clusterset: 'other' })
  t.equal(await refusal(t, join(site, await other.token())), elsewhere)

  const index = ownCluster(site).index
  t.equal((await join(site, await broker.token({ cluster: 'milano' }))).code, 0, 'a token for this very cluster')
  t.not(site.read('state/identity/cluster.key'), key, 'a new key')
  t.equal(ownCluster(site).index, index)
})

t.test('a damaged identity is mended by joining again', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const site = new SiteFolder(t)
  await join(site, await broker.token())
  site.remove('state/identity/cluster.key')
  const key = site.path('state/identity/cluster.key')
  const up = await runCli(['up', '--site', site.file, '--node', 'gw', '--component', 'agent', '--status-listen', ':0'])
  t.same(up, { code: 1, stdout: '', stderr: `sealane: ${key}: missing: join again, or restore it from a backup\n` })
  const again = await begun(join(site, await broker.token({ cluster: 'milano' })))
  t.equal(again.code, 0)
  t.equal(
    again.stderr,
    `the identity of this site is replaced: ${key}: missing: join again, or restore it from a backup\n` +
      `next, on each node: sealane up --site ${site.file} --node NAME\n`,
  )
  t.equal(site.identity().length, 5)
})

t.test('a site that left comes back as what it was', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const milano = new SiteFolder(t)
  const paris = new SiteFolder(t, 'paris')
  await join(milano, await broker.token())
  await join(paris, await broker.token())
  const before = ownCluster(paris, 'paris')
  t.equal((await runCli(['leave', '--yes', '--site', paris.file])).code, 0)
  t.same([paris.identity(), paris.objects()], [[], []])
  await join(new SiteFolder(t, 'tokyo'), await broker.token())
  t.equal((await join(paris, await broker.token())).code, 0)
  t.same(ownCluster(paris, 'paris'), before, 'index and global CIDR')
})

t.test('an answer that was lost: the same token goes on', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const site = new SiteFolder(t)
  const token = await broker.token()
  site.write('state', '')
  site.remove('state')
  // The broker admits the site, and then the site cannot write. This is equivalent to a lost connection.
  const { folder } = site
  await join(site, 'sealane1.x')
  writeFileSync(`${folder}/state/objects`, '')
  const failed = await join(site, token)
  t.equal(failed.code, 1)
  t.equal(
    failed.stderr.split('\n').at(-2),
    `sealane: cannot write ${folder}/state/objects/Cluster/_/milano.json: a part of the path is not a folder`,
  )
  t.same(site.identity(), ['0700 identity/', '0600 identity/joining.key'], 'not joined, but the key is kept')
  site.remove('state/objects')
  t.equal((await join(site, token)).code, 0)
  t.equal(site.identity().length, 5)
})

t.test('state that cannot be written costs no token', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const site = new SiteFolder(t)
  await join(site, 'sealane1.x')
  const identity = site.path('state/identity')
  writeFileSync(identity, '')
  const token = await broker.token()
  const joining = join(site, token)
  t.equal(
    await refusal(t, joining),
    `the identity of this site is replaced: ${identity}/cluster.key: cannot be read: ENOTDIR: not a directory, open '${identity}/cluster.key'\n` +
      `sealane: ${identity}: cannot be written: EEXIST: file already exists, mkdir '${identity}'`,
  )
  const [row] = await broker.tokens((store) => store.list())
  t.equal(row?.state, 'valid')
})

t.test('interrupted while the broker does not answer', async (t) => {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close())
  const { port } = server.address() as AddressInfo
  const site = new SiteFolder(t)
  const token = createJoinToken({
    addresses: [`127.0.0.1:${port}`],
    caPin: '0'.repeat(64),
    clusterset: 'demo',
    expiresAtMs: Date.now() + HOUR,
  })
  const connected = once(server, 'connection')
  const running = startCli(['join', '--site', site.file, '--token', token.text()])
  await connected
  running.stop()
  t.same(await begun(running.result), {
    code: 1,
    stdout: '',
    stderr: 'sealane: interrupted before it was complete\n',
  })
  t.same([site.identity(), site.objects()], [[], []])
})

/** A system clock that is set wrong. */
class WrongClock extends SystemClock {
  readonly #aheadMs: number
  constructor(aheadMs: number) {
    super()
    this.#aheadMs = aheadMs
  }
  override now(): number {
    return super.now() + this.#aheadMs
  }
}

t.test('a clock that is an hour off', async (t) => {
  const attempt = async (broker: LoopbackBroker, ttlMs = 24 * HOUR): Promise<CliResult> =>
    join(new SiteFolder(t), await broker.token({ ttlMs }))
  const broker = await LoopbackBroker.start(t)
  const set = async (aheadMs: number): Promise<void> => {
    await broker.stop()
    broker.clock = new WrongClock(aheadMs)
    await broker.start()
  }
  const skew =
    'clock: the time is TIME on this machine and TIME on the broker: correct the clock that is wrong (the maximum difference is 5 minutes)\nreason: ClockDiffers'
  await set(HOUR)
  t.equal(await refusal(t, attempt(broker)), skew, 'this machine is slow')
  await set(240_000)
  t.equal((await attempt(broker)).code, 0, 'four minutes are borne')
  await set(-HOUR)
  t.equal(
    await refusal(t, attempt(broker, HOUR / 4)),
    `join token: expired 45 min ago by this machine's clock: create a new one with "sealane token create"\nreason: TokenExpired`,
    'this machine is fast, and the token is short-lived',
  )
  t.equal(await refusal(t, attempt(broker)), skew, 'this machine is fast')
  await broker.stop()
  const newBroker = await LoopbackBroker.start(t, {}, new WrongClock(HOUR))
  t.equal(
    await refusal(t, attempt(newBroker)),
    `the certificate of the broker at 127.0.0.1:${newBroker.port} is valid from TIME, but the clock of this machine says TIME: check the clocks\nreason: CertificateNotYetValid`,
    'slow, and the certificate of the broker is younger than that',
  )
})
