/** Of what each hub of a site has, only what is marked as removed goes on the other hubs; the rest was lost by a disk. */
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import t, { type Test } from 'tap'
import { HubStore } from '../../../compose/hub/hub-store.ts'
import { HubTree } from '../../../compose/hub/hub-tree.ts'
import { canRestore, isNewer } from '../../../compose/hub/plan-identity.ts'
import { SharedMarks } from '../../../compose/hub/shared-marks.ts'
import type { HubConnection } from '../../../kubeapi/remote/hub-connection.ts'
import { HubMember } from '../../../kubeapi/remote/hub-member.ts'
import type { Version } from '../../../kubeapi/remote/plan-term.ts'
import { type PeerAnswer, type PeerRequest, parsePeerAnswer, parsePeerRequest } from '../../../kubeapi/remote/wire.ts'
import { parseClusterId } from '../../../model/ids.ts'
import {
  certificateToPem,
  createCa,
  createCsr,
  createKey,
  issueMemberCertificate,
  keyToPem,
} from '../../../protocol/identity/identity.ts'
import { removeMemberIdentity } from '../../../protocol/membership/membership.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { eventually } from '../../support/eventually.ts'
import { failure } from '../../support/failure.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const KEY = 'state/identity/cluster.key'
const CERTIFICATE = 'state/identity/cluster.crt'
const BROKER = 'state/identity/broker.json'
const NODE = 'state/hub/nodes/gw9.json'
const INVITATION = 'state/hub/invitations/0123456789.json'
const AUTHORITY = 'state/hub/authority.pem'
const MEMBERSHIP = 'state/objects/Membership/_/self.json'
const HUBS = ['a:1', 'b:1']
const EQUAL: Version = { term: 1, index: 5 }
const BEHIND: Version = { term: 1, index: 4 }

/** Hubs look at their files each second; these do so much more often. */
class HastyClock extends SystemClock {
  override sleep(ms: number, signal: AbortSignal): Promise<void> {
    return super.sleep(ms / 50, signal)
  }
}
const clock = new HastyClock()

const key = createKey()
const pem = keyToPem(key)
const FILES: readonly (readonly [string, string])[] = [
  [MEMBERSHIP, '{"kind":"Membership","metadata":{"name":"self"}}'],
  [KEY, pem],
  [BROKER, '{"cluster":"milano"}'],
  [NODE, '{"keyHash":"9"}'],
  [INVITATION, '{"node":"gw8","expiresAtMs":9}'],
]

class Box {
  readonly folder: string
  readonly state: string
  readonly tree: HubTree
  readonly logger = new CapturingLogger()

  constructor(t: Test, files = FILES) {
    this.folder = temporaryFolder(t)
    this.state = this.at('state')
    this.tree = new HubTree({ file: this.at('site.yaml'), objects: this.at('objects'), state: this.state }, clock)
    this.put('state/hub/members.json', JSON.stringify(HUBS))
    for (const [path, content] of files) this.put(path, content)
  }

  at(path: string): string {
    return join(this.folder, path)
  }

  put(path: string, content: string): void {
    mkdirSync(dirname(this.at(path)), { recursive: true })
    writeFileSync(this.at(path), content)
  }

  lose(path: string): void {
    rmSync(this.at(path), { recursive: true })
  }

  has(path: string): string | undefined {
    return existsSync(this.at(path)) ? readFileSync(this.at(path), 'utf8') : undefined
  }

  marked(path: string): boolean {
    return new SharedMarks(this.state).has(path.replace('state/', ''))
  }

  said(): string {
    return this.logger.messages('warn').join('\n')
  }
}

interface PairInit {
  /** What b has. */
  readonly version?: Version
  /** Whether b is of the release before, which drops the fields that it does not know. */
  readonly isOld?: boolean
}

/** Lets a act, and b follow. */
async function act(t: Test, a: Box, b: Box, { version = EQUAL, isOld = false }: PairInit = {}): Promise<HubMember> {
  const never = (): HubConnection => ({ close: () => undefined }) as unknown as HubConnection
  const deps = { clock, save: () => Promise.resolve(), takePromotion: () => false }
  const follower = new HubMember(
    { ...deps, logger: b.logger, tree: b.tree, connect: never, act: () => Promise.resolve() },
    { hubs: HUBS, own: 'b:1', stored: { term: 1, version, acts: false } },
  )
  const askPeer = async (request: PeerRequest): Promise<PeerAnswer> => {
    const { removals, ...known } = JSON.parse(JSON.stringify(request)) as Extract<PeerRequest, { verb: 'follow' }>
    const heard = JSON.stringify(isOld ? known : { ...known, removals })
    return parsePeerAnswer(JSON.parse(JSON.stringify(await follower.answer(parsePeerRequest(heard)))))
  }
  const stop = new AbortController()
  const acting = new HubMember(
    {
      ...{ ...deps, logger: a.logger, tree: a.tree },
      connect: () => ({ askPeer, close: () => undefined }) as unknown as HubConnection,
      act: (_, signal) => new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true })),
    },
    { hubs: HUBS, own: 'a:1', stored: { term: 1, version: EQUAL, acts: true } },
  )
  const ended = acting.run(stop.signal)
  t.teardown(async () => {
    stop.abort()
    await ended
  })
  await soon(() => acting.confirm(undefined, AbortSignal.timeout(5000)).then(() => true), { say: 'a acts' })
  return acting
}

function soon<T>(look: () => T | Promise<T>, { say }: { readonly say: string }): Promise<unknown> {
  return eventually(look, { say, intervalMs: 5 })
}

/** Until b has all that a has. */
async function fed(a: Box, b: Box, mark: string): Promise<void> {
  a.put('objects/mark.yaml', mark)
  await soon(() => b.has('objects/mark.yaml') === mark, { say: `b follows: ${mark}` })
}

t.test('what the disk of the acting hub loses while it runs stays on the others, and comes back', async (t) => {
  const [a, b] = [new Box(t), new Box(t)]
  await act(t, a, b)
  await fed(a, b, 'first')
  const shared = FILES.slice(1)
  const losses: readonly (readonly [string, () => void])[] = [
    ['removed', () => shared.forEach(([path]) => a.lose(path))],
    ['emptied', () => shared.forEach(([path]) => a.put(path, ''))],
  ]
  for (const [what, lose] of losses) {
    lose()
    await fed(a, b, what)
    for (const [path, content] of FILES) {
      t.equal(b.has(path), content, `${what}: b still has ${path}`)
      await soon(() => a.has(path) === content, { say: `${what}: a has ${path} again` })
    }
  }
  t.match(a.said(), 'has lost')
})

t.test('what it has lost before its start stays on a hub that is not equal, and the identity comes back', async (t) => {
  const [a, b] = [new Box(t, FILES.slice(0, 1)), new Box(t, [...FILES, [AUTHORITY, 'ours']])]
  await act(t, a, b, { version: BEHIND })
  await fed(a, b, 'first')
  for (const [path, content] of FILES) t.equal(b.has(path), content, path)
  for (const path of [KEY, BROKER, AUTHORITY])
    await soon(() => a.has(path) === b.has(path), { say: `a has ${path} again` })
  t.notOk(existsSync(a.at(NODE)), 'a hub that was behind may have one that has changed since')
  await soon(() => b.said().includes('which this hub keeps'), { say: 'b tells it' })
  t.equal(b.said().split('which this hub keeps').length, 2, 'once')
})

t.test('what its owner removes goes on the others, too, also on one that was away', async (t) => {
  for (const version of [EQUAL, BEHIND]) {
    const [a, b] = [new Box(t), new Box(t)]
    const remove = async (): Promise<void> => {
      const store = await HubStore.open(clock, { state: a.state, site: 'milano' })
      t.ok(await store.revoke('gw9'))
      const marks = new SharedMarks(a.state)
      await removeMemberIdentity(join(a.state, 'identity'), (name) => marks.add(`identity/${name}`))
    }
    a.lose('state/hub/members.json')
    await HubStore.open(clock, { state: a.state, site: 'milano' })
    a.put('state/hub/members.json', JSON.stringify(HUBS))
    if (version === BEHIND) await remove()
    await act(t, a, b, { version })
    await fed(a, b, 'first')
    if (version === EQUAL) await remove()
    for (const path of [NODE, INVITATION, KEY, BROKER]) {
      await soon(() => b.has(path) === undefined, { say: `${path} goes` })
      t.equal(a.has(path), undefined)
    }
    t.ok(b.marked(NODE), 'b tells it to others once it acts')
    a.put(KEY, pem)
    await soon(() => b.has(KEY) === pem && !b.marked(KEY), { say: 'it is written again' })
    t.notOk(a.marked(KEY))
    a.lose(KEY)
    await fed(a, b, 'then')
    await soon(() => a.has(KEY) === pem, { say: 'an earlier removal proves nothing' })
  }
})

t.test('a hub that is yet to get all files brings none of an earlier site', async (t) => {
  const [a, b] = [new Box(t, FILES.slice(0, 1)), new Box(t)]
  a.put('state/hub/members.json', '["a:1"]')
  a.put(BROKER, '')
  await act(t, a, b)
  await fed(a, b, 'first')
  await soon(() => b.has(KEY) === undefined && b.has(NODE) === undefined, { say: 'b gives them up' })
  t.same([a.has(KEY), a.has(NODE), a.has(BROKER)], [undefined, undefined, ''])
  t.notOk(b.marked(KEY))
})

t.test('of two certificates of one key, the later one counts on every hub', async (t) => {
  const cluster = parseClusterId('milano')
  const ca = await createCa({ clusterset: 'demo', key: createKey(), nowMs: 0 })
  const issued = async (of: typeof key, nowMs: number): Promise<string> => {
    const csr = await createCsr(of)
    return certificateToPem(await issueMemberCertificate(ca, { clusterset: 'demo', cluster, csr, nowMs }))
  }
  const [old, renewed, other] = [await issued(key, 1e12), await issued(key, 1.1e12), await issued(createKey(), 2e12)]
  const octets = (text: string): Uint8Array => Buffer.from(text)
  const isLater = (one: string, two: string): boolean => isNewer(CERTIFICATE, octets(one), octets(two))
  t.same([isLater(renewed, old), isLater(old, renewed), isLater(old, old)], [true, false, false])
  t.same([isLater(other, old), isLater(renewed, ''), isLater('', old)], [false, false, false])
  const restores = (path: string, content: string, good: Readonly<Record<string, string>>): boolean =>
    canRestore(path, octets(content), new Map(Object.entries(good).map(([name, text]) => [name, octets(text)])))
  t.ok(restores(CERTIFICATE, old, {}))
  t.ok(restores(CERTIFICATE, old, { [KEY]: pem }))
  t.notOk(restores(CERTIFICATE, other, { [KEY]: pem }), 'a key and a certificate of two joins are no identity')
  t.notOk(restores(KEY, pem, { [CERTIFICATE]: other }))
  t.ok(restores(BROKER, '{}', { [CERTIFICATE]: other }))
  const [a, b] = [new Box(t, [...FILES, [CERTIFICATE, old]]), new Box(t, [...FILES, [CERTIFICATE, renewed]])]
  await act(t, a, b)
  await soon(() => a.has(CERTIFICATE) === renewed, { say: 'a gave an older one, as from a hub that was behind' })
  t.equal(b.has(CERTIFICATE), renewed)
  a.put(CERTIFICATE, renewed.slice(0, 200))
  await fed(a, b, 'cut off')
  await soon(() => a.has(CERTIFICATE) === renewed, { say: 'one that is cut off comes back' })
  t.equal(b.has(CERTIFICATE), renewed)
  a.put(CERTIFICATE, other)
  await soon(() => b.has(CERTIFICATE) === other, { say: 'a join with another key counts' })
})

t.test('a hub of the release before follows: it keeps and gives back the identity', async (t) => {
  const [a, b] = [new Box(t, FILES.slice(0, 1)), new Box(t)]
  await act(t, a, b, { version: BEHIND, isOld: true })
  await fed(a, b, 'first')
  for (const path of [KEY, BROKER]) {
    t.ok(b.has(path), path)
    await soon(() => a.has(path) === b.has(path), { say: `a has ${path} again` })
  }
})

t.test('a hub of the release before acts: what it does not name goes, and is marked', async (t) => {
  const b = new Box(t)
  const tree = b.tree
  const others = new Set(['state/hub/members.json', MEMBERSHIP, BROKER])
  t.same(await tree.keepOnly(others), [])
  t.same([b.has(KEY), b.has(NODE), b.has(BROKER)], [undefined, undefined, FILES[2]?.[1]])
  t.ok(b.marked(KEY), 'another hub that was away must not bring it back')
  await tree.keepOnly(others)
  t.ok(b.marked(KEY), 'a hub that knows no marks removes none')
  await tree.write(KEY, Buffer.from(pem))
  t.notOk(b.marked(KEY))
})

t.test('a hub of several creates no second authority', async (t) => {
  const box = new Box(t)
  const open = (): Promise<HubStore> => HubStore.open(clock, { state: box.state, site: 'milano' })
  t.match(await failure(open()), { message: /authority\.pem: .*copy it from another hub/ })
  t.equal(box.has(AUTHORITY), undefined)
})

t.test('marks of invitations go after they have ended, and those of nodes stay', async (t) => {
  const box = new Box(t)
  const marks = new SharedMarks(box.state)
  for (const path of [NODE, INVITATION]) await marks.add(path.replace('state/', ''))
  const now = (): number => clock.now()
  await marks.dropStale(now() + 7 * 86_400_000)
  t.ok(box.marked(INVITATION), 'it may be valid on a hub that is away')
  await marks.dropStale(now() + 9 * 86_400_000)
  t.same([box.marked(INVITATION), box.marked(NODE)], [false, true])
})
